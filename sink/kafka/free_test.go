package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// Entities are freed when the broker has acknowledged them, while the commit has not ended, and only if
// those before them are acknowledged, too.
func TestStoredEntitiesAreFreed(t *testing.T) {
	t.Parallel()
	const n = 20
	for name, test := range map[string]struct {
		change func(*kafka.Topic, []feed.Entity)
		refuse kfake.Fault
		want   int
	}{
		"stored":                   {want: n},
		"the records are refused":  {refuse: kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.orders"}},
		"the end of it is refused": {refuse: kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}}, want: n},
		"in several partitions":    {change: func(topic *kafka.Topic, _ []feed.Entity) { topic.Key, topic.Partitions = "/n", 6 }},
		"with a dead letter":       {change: func(_ *kafka.Topic, e []feed.Entity) { e[1].Dead = &feed.DeadReason{Kind: feed.DeadTooLarge} }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := startCluster(t)
				topic, entities := ordersWithDead(), sinktest.Entities(1, n)
				if test.change != nil {
					test.change(&topic, entities)
				}
				cfg := configFor(c)
				cfg.Timeout = 4 * time.Second
				s := connect(t, cfg).Sink(topic)
				resume(t, s)
				commit(t, s, 0, 1)
				var freed []int
				for i := range entities {
					entities[i].Free = func() { freed = append(freed, i) }
				}
				atEnd := -1
				c.ControlKey(kmsg.EndTxn.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
					atEnd = len(freed)
					return nil, nil, false
				})
				fails := len(test.refuse.Keys) > 0
				if fails {
					test.refuse.Err = kerr.UnknownServerError
					c.Fault(test.refuse)
				}
				cp := sinktest.At(1 + n)
				cp.Count -= uint64(feed.CountDead(entities))
				if err := s.Commit(t.Context(), entities, cp); (err != nil) != fails {
					t.Fatal(err)
				}
				if len(freed) != test.want || !slices.IsSorted(freed) || !fails && atEnd != test.want {
					t.Errorf("freed are %v, %d of them before the end of the transaction; want %d", freed, atEnd, test.want)
				}
			})
		})
	}
}
