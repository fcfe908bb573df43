package nats_test

import (
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink/nats"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	server, _ := newServer(t)
	c := connect(t, nats.Config{URL: server.URL()})
	topic := ordersWithDead()
	without := c.Sink(topic)
	topic.Events = codec.NewEvents("com.example.order", "/orders")
	with := c.Sink(topic)
	sinktest.TestEvents(t, without, with, sinktest.Topic{Log: with.Log(), DeadLetters: c.Log(deadSubject, "shop_orders")}, "ce-")
}
