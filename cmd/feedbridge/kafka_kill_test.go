//go:build integration

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

// kafkaKillPage is the number of entities on a page. Pages are small, so that much of the
// time is spent in commits.
const kafkaKillPage = 50

// The real program is killed twenty times, at random, while it copies a feed of
// 20,000 entities to a real Kafka. Whatever it was doing then, the topic holds
// the feed in the end: nothing lost, nothing twice, nothing out of order. A
// consumer that reads all the while sees the same as two that read it later.
func TestRealKafkaLosesAndRepeatsNothingWhenTheProgramIsKilled(t *testing.T) {
	for _, test := range []struct {
		name   string
		copies int
		broker bool // is killed too
	}{
		{"one copy", 1, false},
		{"two copies at once", 2, false},
		{"two copies at once, and the broker", 2, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			k := newKafkaKilling(t)
			victims := make([]func(), 0, test.copies+1)
			for range test.copies {
				victims = append(victims, k.startCopy())
			}
			if test.broker {
				victims = append(victims, k.killBroker)
			}
			at := map[int]bool{}
			for n := range kills {
				// There is always more to come, however fast the machine is.
				k.feed.SetLen(killLength * (n + 1) / (kills + 1))
				if n%2 == 0 {
					// Once more on its way; else it may die while it recovers.
					k.live.waitFor(k.live.len() + 1)
				}
				k.pause(0, 1000)
				at[k.live.len()] = true
				victims[rand.IntN(len(victims))]()
			}
			t.Logf("killed after so many entities: %v", slices.Sorted(maps.Keys(at)))
			if len(at) < kills/3 {
				t.Error("too few of the kills came in the middle of the copy to prove anything")
			}
			k.feed.SetLen(killLength)
			k.live.waitFor(killLength)
			k.pause(500, 600) // for what should not come
			k.check()
		})
	}
}

// kafkaKilling is a feed, a broker, and copies of the program that come to harm.
type kafkaKilling struct {
	t       *testing.T
	feed    *sample.Feed // grows
	feedURL string
	broker  *kafkatest.Broker
	live    *follower // of the topic
}

func newKafkaKilling(t *testing.T) *kafkaKilling {
	feed := sample.New(sample.Options{PageSize: kafkaKillPage, Entity: sample.Sized(100)})
	upstream := httptest.NewServer(feed)
	t.Cleanup(upstream.Close)
	b := kafkatest.Start(t)
	return &kafkaKilling{t: t, feed: feed, feedURL: upstream.URL + "/feed/latest", broker: b, live: follow(t, b.Addr(), "orders", map[int32]int64{0: 0})}
}

// startCopy starts a copy of the program, and returns what kills it and starts
// another in its place.
func (k *kafkaKilling) startCopy() (kill func()) {
	return startAgain(k.t, func() *exec.Cmd {
		cmd, _ := spawn(k.t, "feedbridge", []string{
			"FEEDBRIDGE_BUSES_LAKE_KAFKA_BROKERS=" + k.broker.Addr(),
			// A fifth of it is how long a commit that a killed copy has left
			// open holds its successor up.
			"FEEDBRIDGE_BUSES_LAKE_KAFKA_TIMEOUT=2s",
			"FEEDBRIDGE_FEEDS_ORDERS_URL=" + k.feedURL,
			"FEEDBRIDGE_FEEDS_ORDERS_EVERY=200ms",
			// Slow enough to be at it when a kill comes.
			"FEEDBRIDGE_FEEDS_ORDERS_LIMITS_RATE=40",
			"FEEDBRIDGE_ADMIN_LISTEN=",
		}, "run")
		return cmd
	})
}

// killBroker kills the broker, and starts it on the same data.
func (k *kafkaKilling) killBroker() {
	k.broker.Kill()
	if err := k.broker.Restart(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// pause waits for some milliseconds between least and most.
func (k *kafkaKilling) pause(least, most int) {
	select {
	case <-time.After(time.Duration(least+rand.IntN(most-least)) * time.Millisecond):
	case <-k.t.Context().Done():
	}
}

// check compares what each reader has of the topic with the feed.
func (k *kafkaKilling) check() {
	k.t.Helper()
	for reader, got := range map[string][]string{
		"franz-go, all the while": k.live.contentIDs(),
		"franz-go":                contentIDs(readAll(k.t, k.broker.Addr(), "orders")),
		"the Java client":         contentIDs(kafkatest.ReadJava(k.t, k.broker, "orders")),
	} {
		if len(got) != killLength {
			k.t.Errorf("%s reads %d entities, and the feed has %d", reader, len(got), killLength)
		}
		for i, id := range got {
			if want := fmt.Sprintf("%d@sample", i); id != want {
				k.t.Errorf("%s: entity %d is %s, want %s", reader, i, id, want)
				break
			}
		}
	}
}
