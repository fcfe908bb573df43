//go:build integration

package main

import (
	"fmt"
	"testing"
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
	cmd, status := startProgram(b, map[string]string{
		"BUSES_LAKE_KAFKA_BROKERS": bench.broker,
		"FEEDS_BENCH_URL":          bench.feedURL,
		"FEEDS_BENCH_TO_TOPIC":     topic,
		"FEEDS_BENCH_LIMITS_RATE":  "100000",
	})
	waitUntil(b, func() bool { return published(b, status) >= kafkaBenchLength })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	bus := map[string]string{"BUSES_LAKE_KAFKA_BROKERS": bench.broker}
	benchmarkServe(b, bus, topic, kafkaBenchLength, func() readResult {
		return readBare(b, "bare-kafka", bench.broker, topic, kafkaBenchLength)
	})
}
