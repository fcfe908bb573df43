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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	nc, err := nats.Connect(natsURL)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	benchmarkServe(b, map[string]string{"BUSES_MAIN_NATS_URL": natsURL}, topic, length, func() {
		consumer, err := js.OrderedConsumer(b.Context(), topic, jetstream.OrderedConsumerConfig{FilterSubjects: []string{topic}})
		if err != nil {
			b.Fatal(err)
		}
		messages, err := consumer.Messages()
		if err != nil {
			b.Fatal(err)
		}
		defer messages.Stop()
		for range length {
			if _, err := messages.Next(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// benchmarkServe has readBare read a topic of a bus, and in turn with that a reader of
// the pages that the real program serves of it. It reports the medians, and that of what
// part of the bare rate the pages had right behind it: machines change their speed while
// a benchmark runs.
func benchmarkServe(b *testing.B, bus map[string]string, topic string, length float64, readBare func()) {
	readPages(b, bus, topic, length)
	var bare, served, parts []float64
	for b.Loop() {
		begun := time.Now()
		readBare()
		bare = append(bare, length/time.Since(begun).Seconds())
		served = append(served, readPages(b, bus, topic, length))
		parts = append(parts, 100*served[len(served)-1]/bare[len(bare)-1])
	}
	b.Logf("parts of the bare rate, in percent: %.0f", parts)
	b.ReportMetric(median(bare), "bare/s")
	b.ReportMetric(median(served), "feedbridge/s")
	b.ReportMetric(median(parts), "%-of-bare")
}

var selfLink = regexp.MustCompile(`<(.*/pages/[a-z0-9]+-500-)(\d+)>; rel=self`)

// readPages reads a topic, from its first page to its last, from a program that was
// just started, and returns the rate.
func readPages(b *testing.B, bus map[string]string, topic string, length float64) float64 {
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
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	for page := range last + 1 {
		if _, status := get(self[1] + strconv.Itoa(page)); status != http.StatusOK {
			b.Fatalf("page %d: %d", page, status)
		}
	}
	return length / time.Since(begun).Seconds()
}
