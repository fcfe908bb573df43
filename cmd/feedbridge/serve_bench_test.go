package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// BenchmarkServeFromNATS reads a topic on a NATS server as the pages of 500 entities of
// 1 KiB that the real program serves of it, each of them asked for the first time, and
// in turn with an ordered consumer, and reports the medians of both rates, in entities.
// Server, program and reader are processes of their own on this machine:
//
//	go test -run '^$' -bench ServeFromNATS -benchtime 11x ./cmd/feedbridge
func BenchmarkServeFromNATS(b *testing.B) {
	const (
		length = 100_000
		topic  = "bench"
	)
	natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
	feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", "500", strconv.Itoa(length), strconv.Itoa(1<<10))
	bridgeAll(b, feedURL, natsURL, topic, length)
	benchmarkServe(b, map[string]string{"BUSES_MAIN_NATS_URL": natsURL}, topic, length, func() readResult {
		return readBare(b, "bare-nats", natsURL, topic, length)
	})
}

// benchmarkServe has readBare read a topic of a bus, and in turn with that a reader of
// the pages that the real program serves of it. It reports the medians, and that of what
// part of the bare rate the pages had right behind it: machines change their speed while
// a benchmark runs. The processor time depends less on the load of the machine; that of the
// reader of the pages is not in it.
func benchmarkServe(b *testing.B, bus map[string]string, topic string, length float64, readBare func() readResult) {
	readPages(b, bus, topic)
	var bare, served, parts, bareCPU, servedCPU []float64
	for b.Loop() {
		one, ours := readBare(), readPages(b, bus, topic)
		bare, served = append(bare, length/one.took.Seconds()), append(served, length/ours.took.Seconds())
		parts = append(parts, 100*one.took.Seconds()/ours.took.Seconds())
		bareCPU, servedCPU = append(bareCPU, one.cpu.Seconds()*1e5/length), append(servedCPU, ours.cpu.Seconds()*1e5/length)
	}
	b.Logf("parts of the bare rate, in percent: %.0f", parts)
	b.ReportMetric(median(bare), "bare/s")
	b.ReportMetric(median(served), "feedbridge/s")
	b.ReportMetric(median(parts), "%-of-bare")
	b.ReportMetric(median(bareCPU), "bare-cpu-s/100k")
	b.ReportMetric(median(servedCPU), "feedbridge-cpu-s/100k")
}

var selfLink = regexp.MustCompile(`<(.*/pages/[a-z0-9]+-500-)(\d+)>; rel=self`)

// readPages reads a topic, from its first page to its last, from a program that was
// just started.
func readPages(b *testing.B, bus map[string]string, topic string) readResult {
	b.Helper()
	address := freeAddress(b)
	env := maps.Clone(bus)
	env["SERVE_LISTEN"] = address
	env["SERVE_FEEDS_BENCH_FROM_TOPIC"] = topic
	env["SERVE_FEEDS_BENCH_PAGE_SIZE"] = "500"
	cmd, _ := startProgram(b, env)
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	buffer := make([]byte, 64<<10)
	get := func(url string) (http.Header, int) {
		resp, err := client.Get(url)
		if err != nil {
			return nil, 0
		}
		defer resp.Body.Close()
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buffer)
		if err != nil || n == 0 {
			b.Fatalf("%s: %d bytes, %v", url, n, err)
		}
		return resp.Header, resp.StatusCode
	}
	var self []string
	waitUntil(b, func() bool {
		header, status := get("http://" + address + "/feeds/bench/latest")
		if status == http.StatusOK {
			self = selfLink.FindStringSubmatch(fmt.Sprint(header["Link"]))
		}
		return self != nil
	})
	last, err := strconv.Atoi(self[2])
	must.Succeed(b, err)
	begun, used := time.Now(), cpuTime(b, cmd.Process.Pid)
	for page := range last + 1 {
		if _, status := get(self[1] + strconv.Itoa(page)); status != http.StatusOK {
			b.Fatalf("page %d: %d", page, status)
		}
	}
	return readResult{time.Since(begun), cpuTime(b, cmd.Process.Pid) - used}
}
