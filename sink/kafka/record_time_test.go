package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// afterRequest returns a clock that is off by before until the cluster gets a request of a kind,
// and by after from then on.
func afterRequest(c *kfake.Cluster, key kmsg.Key, before, after time.Duration) func() time.Time {
	var received atomic.Bool
	c.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		received.Store(true)
		return nil, nil, false
	})
	return func() time.Time {
		if received.Load() {
			return time.Now().Add(after)
		}
		return time.Now().Add(before)
	}
}

// The producer gives up a record whose time is further back than the timeout, also one that it has
// not tried to send. A commit may wait that long before it sends.
func TestCommitOfRecordsWithTimesWaitsBeforeItSends(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Partitions, topic.Key = 4, "/n"
		s, c, more := open(t, topic)
		s.SetClock(afterRequest(c, kmsg.InitProducerID, -time.Hour, 0))
		entities := marked(0, 3)
		commitMarked(t, s, entities, 3)
		wantMarks(t, more(), entities)
	})
}

func TestCommitWaitsBeforeItSendsDeadLetters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, ordersWithDead())
		s.SetClock(afterRequest(c, kmsg.Produce, 0, time.Hour))
		entities := marked(0, 2)
		entities[1].Dead = &feed.DeadReason{Kind: feed.DeadTooLarge, Text: "it is too large"}
		cp := sinktest.At(2)
		cp.Count--
		if err := s.Commit(t.Context(), entities, cp, nil); err != nil {
			t.Fatal(err)
		}
		log := settled{connect(t, configFor(c)).Log(deadTopic, 0)}
		span, err := log.Span(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range log.Read(t.Context(), span.First, span.End) {
			if err != nil || time.Until(r.Time) < 50*time.Minute {
				t.Errorf("error %v, the dead letter has the time %v from before the entities were sent", err, r.Time)
			}
		}
	})
}
