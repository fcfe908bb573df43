package kafka_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

func TestEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := ordersWithDead()
		without, cluster, _ := open(t, topic)
		topic.Events = message.NewEvents("com.example.order", "/orders")
		c := connect(t, configFor(cluster))
		with := c.Sink(topic)
		sinktest.TestEvents(t, without, with, sinktest.Topic{Log: settled{with.Log(0)}, DeadLetters: settled{c.Log(topic.Name+sink.DeadSuffix, 0)}}, "ce_")
	})
}

// The attributes count when the size of a message is compared with the limit of the topic.
func TestEventThatIsTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Config = []string{"max.message.bytes=5000"}
		topic.Events = message.NewEvents("com.example.order", "/orders/"+strings.Repeat("x", 4500))
		s, _, _ := open(t, topic)
		if n, err := s.Fits([]feed.Entity{sinktest.Entities(0, 1)[0]}); n != 0 || !errors.Is(err, sink.ErrTooLarge) {
			t.Errorf("%d entities fit, and the error is %v", n, err)
		}
	})
}
