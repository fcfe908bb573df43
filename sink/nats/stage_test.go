package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

func TestStagedBatchIsUsedForItsEntitiesWhileItLasts(t *testing.T) {
	entities := make([]feed.Entity, 3)
	for name, test := range map[string]struct {
		staged   *stagedBatch
		entities []feed.Entity
		want     bool
	}{
		"the same":                           {&stagedBatch{"b", entities, time.Now(), topicEnd{}}, entities, true},
		"nothing was sent":                   {nil, entities, false},
		"nothing to commit":                  {&stagedBatch{"b", entities, time.Now(), topicEnd{}}, nil, false},
		"fewer":                              {&stagedBatch{"b", entities, time.Now(), topicEnd{}}, entities[:2], false},
		"others":                             {&stagedBatch{"b", entities, time.Now(), topicEnd{}}, slices.Clone(entities), false},
		"the server may have forgotten them": {&stagedBatch{"b", entities, time.Now().Add(-stagedFor), topicEnd{}}, entities, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.staged.hasEntities(test.entities); got != test.want {
				t.Errorf("hasEntities is %v", got)
			}
		})
	}
}

// A daemon that reloads its configuration opens and closes sinks on the same connection.
func TestClosedSinksDoNotCount(t *testing.T) {
	conn := &Conn{client: &client{}, sinks: newSinkCounts()}
	topic := Topic{Feed: "orders", Subject: "orders", Stream: Stream{Name: "S"}}
	open := conn.Sink(topic)
	for range 2 * stagingSinks {
		conn.Sink(topic).Close()
	}
	if !open.staging.isAllowed() || conn.sinks.byStream["S"] != 1 {
		t.Errorf("%d sinks count", conn.sinks.byStream["S"])
	}
	open.Close()
	if len(conn.sinks.byStream) != 0 {
		t.Errorf("%v remains", conn.sinks.byStream)
	}
}
