//go:build integration

package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkServeFromKafka reads a topic on a real Kafka as the pages of 500 entities of
// 1 KiB that the real program serves of it, each of them asked for the first time, and
// in turn with a bare consumer of franz-go, and reports the medians of both rates, in
// entities:
//
//	go test -tags integration -run '^$' -bench ServeFromKafka -benchtime 11x ./cmd/feedbridge
func BenchmarkServeFromKafka(b *testing.B) {
	bench := newKafkaBench(b)
	bench.topics++
	topic := fmt.Sprintf("bench-%d", bench.topics)
	cmd, status := runProgram(b, map[string]string{
		"BUSES_LAKE_KAFKA_BROKERS": bench.broker,
		"FEEDS_BENCH_URL":          bench.feedURL,
		"FEEDS_BENCH_TO_TOPIC":     topic,
		"FEEDS_BENCH_LIMITS_RATE":  "100000",
	})
	waitUntil(b, func() bool { return published(b, status) >= kafkaBenchLength })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	bench.readPages(topic)
	var bare, served, parts []float64
	for b.Loop() {
		bare = append(bare, bench.readBare(topic))
		served = append(served, bench.readPages(topic))
		parts = append(parts, 100*served[len(served)-1]/bare[len(bare)-1])
	}
	b.ReportMetric(median(bare), "bare/s")
	b.ReportMetric(median(served), "feedbridge/s")
	b.ReportMetric(median(parts), "%-of-bare")
}

// readBare reads a topic with a consumer of its own, and returns the rate.
func (k *kafkaBench) readBare(topic string) float64 {
	k.b.Helper()
	client := newKafkaClient(k.b, k.broker, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer client.Close()
	begun := time.Now()
	for n := 0; n < kafkaBenchLength; {
		fetches := client.PollFetches(k.b.Context())
		if err := fetches.Err(); err != nil {
			k.b.Fatal(err)
		}
		n += fetches.NumRecords()
	}
	return kafkaBenchLength / time.Since(begun).Seconds()
}

var selfLink = regexp.MustCompile(`<(.*/pages/[a-z0-9]+-500-)(\d+)>; rel=self`)

// readPages reads a topic, from its first page to its last, from a program that was
// just started, and returns the rate.
func (k *kafkaBench) readPages(topic string) float64 {
	k.b.Helper()
	address := freeAddress(k.b)
	cmd, _ := runProgram(k.b, map[string]string{
		"BUSES_LAKE_KAFKA_BROKERS":     k.broker,
		"SERVE_LISTEN":                 address,
		"SERVE_FEEDS_BENCH_FROM_TOPIC": topic,
		"SERVE_FEEDS_BENCH_PAGE_SIZE":  "500",
	})
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
			k.b.Fatalf("%s: %d bytes, %v", url, n, err)
		}
		return resp.Header, resp.StatusCode
	}
	var self []string
	waitUntil(k.b, func() bool {
		header, status := get("http://" + address + "/feeds/bench/latest")
		if status == http.StatusOK {
			self = selfLink.FindStringSubmatch(fmt.Sprint(header["Link"]))
		}
		return self != nil
	})
	last, err := strconv.Atoi(self[2])
	if err != nil {
		k.b.Fatal(err)
	}
	begun := time.Now()
	for page := range last {
		if _, status := get(self[1] + strconv.Itoa(page)); status != http.StatusOK {
			k.b.Fatalf("page %d: %d", page, status)
		}
	}
	return kafkaBenchLength / time.Since(begun).Seconds()
}
