package nats

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The answer to the first request arrives after the request was repeated. Meanwhile the stream went
// back in time, and another copy filled it up to the same sequence.
func TestAnAnswerThatTookLongConfirmsNothing(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	must.Succeed(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	known, other := storedMessage{Sequence: 5, Data: []byte("known")}, storedMessage{Sequence: 5, Data: []byte("of another copy")}
	respond := func(m *nats.Msg, stored storedMessage) {
		answer, err := json.Marshal(map[string]any{"message": stored})
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(answer)
	}
	var requests []*nats.Msg
	if _, err := nc.Subscribe("$JS.API.STREAM.MSG.GET.shop", func(m *nats.Msg) {
		switch requests = append(requests, m); len(requests) {
		case 1:
		case 2:
			respond(requests[0], known)
		default:
			respond(m, other)
		}
	}); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, nc.Flush())
	c, err := Connect(t.Context(), Config{URL: s.ClientURL(), Timeout: time.Minute}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	r := &checkpointReader{client: c.client, topic: &Topic{Subject: "orders", Stream: Stream{Name: "shop"}}}
	if err := r.confirm(t.Context(), fence{checkpoint: &known}); !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}
