//go:build integration

package kafkatest_test

import (
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestDataSurvives(t *testing.T) {
	b := kafkatest.Start(t)
	topic := newTopic(t, b, 1, nil)
	var want int
	produceAndRead := func(t *testing.T) {
		t.Helper()
		want++
		transaction(t, b, kgo.TryCommit, &kgo.Record{Topic: topic, Value: []byte("v")})
		if got := len(read(t, b, topic, want)); got != want {
			t.Fatalf("%d records, want %d", got, want)
		}
	}
	produceAndRead(t)
	for _, way := range []struct {
		name string
		end  func() error
	}{
		{"kill", func() error { b.Kill(); return nil }},
		{"stop", b.Stop},
	} {
		t.Run(way.name, func(t *testing.T) {
			for range 2 { // to end a broker that has ended is no error
				must.Succeed(t, way.end())
			}
			if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.Addr()); err == nil {
				conn.Close()
				t.Fatal("the broker still listens")
			}
			must.Succeed(t, b.Restart(t.Context()))
			produceAndRead(t)
		})
	}
}

func TestBrokerThatDoesNotStartSaysWhy(t *testing.T) {
	b := kafkatest.Start(t)
	must.Succeed(t, b.Stop())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", b.Addr())
	must.Succeed(t, err)
	const want = "Address already in use"
	if err := b.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("on a port that is taken: %v, want %q in it", err, want)
	}
	l.Close()
	must.Succeed(t, b.Restart(t.Context()))
}
