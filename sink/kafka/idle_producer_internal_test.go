package kafka

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A sink that commits again before the time keeps its producer, however often.
func TestProducerOfABusyFeedStaysOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		busy := &idleProducer{producer: new(kgo.Client)}
		park := func() {
			busy.park(producerIdle, func(*kgo.Client) {
				if closed++; !busy.mu.TryLock() {
					t.Error("a commit would wait until the producer is closed")
				} else {
					busy.mu.Unlock()
				}
			})
		}
		for range 10 {
			park()
			time.Sleep(producerIdle - time.Second)
			busy.claim()
		}
		time.Sleep(2 * producerIdle) // within a commit
		if closed > 0 || busy.producer == nil {
			t.Fatalf("%d producers are closed, want none", closed)
		}
		park()
		time.Sleep(producerIdle)
		synctest.Wait()
		if closed != 1 || busy.isOpen() {
			t.Errorf("%d producers are closed, want the one that is idle", closed)
		}
	})
}

// While many feeds start, only as many producers are open as have committed just now.
func TestManyIdleProducersAreClosedSooner(t *testing.T) {
	t.Parallel()
	c := &client{producers: map[*kgo.Client]bool{}}
	for n := range fewProducers + 2 {
		want := producerIdle
		if n > fewProducers {
			want = crowdedIdle
		}
		if got := c.idleTime(); got != want {
			t.Errorf("with %d producers they may be idle for %v, want %v", n, got, want)
		}
		c.producers[new(kgo.Client)] = true
	}
}
