package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// asked runs when a person is asked something, and answers yes.
type asked func()

func (f asked) Read(p []byte) (int, error) {
	f()
	return copy(p, "yes\n"), nil
}

// A daemon publishes while the command waits for the answer. These entities count.
func TestCheckpointIsMovedWhileTheFeedIsPublished(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) (daemon bridge.Sink, environ []string){
		"NATS": func(t *testing.T) (bridge.Sink, []string) {
			url, _ := startServer(t, "nats", t.TempDir(), "-1")
			c, err := nats.Connect(t.Context(), nats.Config{URL: url, Timeout: patience}, slog.New(slog.DiscardHandler))
			must.Succeed(t, err)
			t.Cleanup(c.Close)
			topic := nats.Topic{Feed: "orders", Subject: "orders", Stream: nats.Stream{Create: true}}
			return c.Sink(topic), []string{"FEEDBRIDGE_BUSES_HERE_NATS_URL=" + url}
		},
		"Kafka": func(t *testing.T) (bridge.Sink, []string) {
			addr, _ := startServer(t, "kafka", t.TempDir(), "127.0.0.1:0")
			c, err := kafka.Connect(t.Context(), kafka.Config{Brokers: []string{addr}, Timeout: time.Minute, TransactionTimeout: 3 * time.Minute}, slog.New(slog.DiscardHandler))
			must.Succeed(t, err)
			t.Cleanup(c.Close)
			topic := kafka.Topic{Feed: "orders", Name: "orders", Options: kafka.DefaultOptions()}
			return c.Sink(topic), []string{"FEEDBRIDGE_BUSES_HERE_KAFKA_BROKERS=" + addr}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon, environ := connect(t)
			if _, err := daemon.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			publish := func(from, to int) {
				if err := daemon.Commit(t.Context(), sinktest.Entities(from, to-from), sinktest.At(to)); err != nil {
					t.Error(err)
				}
			}
			publish(0, 2)
			var out bytes.Buffer
			var errs logbuffer.Buffer
			args := []string{"checkpoint", "reset", "orders"}
			environ = append(environ, "FEEDBRIDGE_FEEDS_ORDERS_URL=http://127.0.0.1:1/")
			if code := runProgram(args, environ, asked(func() { publish(2, 5) }), &out, &errs); code != exitDone {
				t.Fatalf("exit code %d: %s", code, errs.String())
			}
			if !strings.HasPrefix(out.String(), "now    2 entities are published") {
				t.Errorf("it says: %s", out.String())
			}
			cp, err := daemon.Resume(t.Context())
			must.Succeed(t, err)
			if cp.Count != 5 || len(cp.Cursor) > 0 {
				t.Errorf("checkpoint %+v, want one with 5 entities and no cursor", cp)
			}
		})
	}
}
