package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// openJetStream connects to a NATS server until the benchmark ends.
func openJetStream(b *testing.B, url string) (*nats.Conn, jetstream.JetStream) {
	nc, err := nats.Connect(url)
	must.Succeed(b, err)
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must.Succeed(b, err)
	return nc, js
}

// streamRate returns the entities per second of a topic that has n and a checkpoint, from its first
// message to its last, by the server's clock. It deletes the stream.
func streamRate(b *testing.B, js jetstream.JetStream, topic string, n int) float64 {
	stream, err := js.Stream(b.Context(), topic)
	must.Succeed(b, err)
	state := stream.CachedInfo().State
	if want := uint64(n + 1); state.Msgs != want {
		b.Fatalf("the stream has %d messages, want %d", state.Msgs, want)
	}
	must.Succeed(b, js.DeleteStream(b.Context(), topic))
	return float64(n) / state.LastTime.Sub(state.FirstTime).Seconds()
}

// streamLength returns the number of messages in a stream; 0 if there is no such stream.
func streamLength(b *testing.B, js jetstream.JetStream, stream string) int {
	s, err := js.Stream(b.Context(), stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0
	}
	must.Succeed(b, err)
	return int(s.CachedInfo().State.Msgs)
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// bridgeAll copies the feed with the real program, and returns when all of it
// is published.
func bridgeAll(b *testing.B, feedURL, natsURL, topic string, length int) {
	cmd, status := startProgram(b, map[string]string{
		"BUSES_MAIN_NATS_URL":     natsURL,
		"FEEDS_BENCH_URL":         feedURL,
		"FEEDS_BENCH_TO_TOPIC":    topic,
		"FEEDS_BENCH_LIMITS_RATE": "100000",
	})
	waitUntil(b, func() bool { return published(b, status) >= length })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
