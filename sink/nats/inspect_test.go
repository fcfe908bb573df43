package nats_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink/nats"
)

func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	conn, js := connect(t, nats.Config{URL: server.URL()}), admin(t, server.URL())
	s := conn.Sink(orders())
	_, err := s.Checkpoint(t.Context())
	wantError(t, err, false, feed.ErrNoTopic, "there is no stream shop_orders; if nothing has been published yet, 'feedbridge run' creates it; "+
		"if it was deleted, a daemon that has published to it halts", "'feedbridge checkpoint reset orders'")
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check of a stream that Resume creates: %v", err)
	}
	if _, err := js.Stream(t.Context(), "shop_orders"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("looking made a stream: %v", err)
	}
	topic := orders()
	topic.Stream.Create = false
	wantError(t, conn.Sink(topic).Check(t.Context()), true, nil, "there is no stream shop_orders")
	_, err = conn.Sink(topic).Checkpoint(t.Context())
	wantError(t, err, true, nil, "there is no stream shop_orders, and stream.create is off")
}

func TestLookingFindsWhatResumeWould(t *testing.T) {
	t.Parallel()
	s, js, more := open(t, orders())
	commit(t, s, 0, 3)
	if cp, err := more().Checkpoint(t.Context()); err != nil || cp.Count != 3 {
		t.Errorf("checkpoint %+v (%v), want count 3", cp, err)
	}
	if err := more().Check(t.Context()); err != nil {
		t.Error(err)
	}
	purge(t, js)
	_, err := more().Checkpoint(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing)

	config := fitting()
	config.AllowAtomicPublish = false
	updateStream(t, js, config)
	wantError(t, more().Check(t.Context()), true, nil, "it allows no atomic batches")
}
