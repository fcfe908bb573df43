package kafka

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A sink that commits again before the time keeps its producer, however often.
func TestProducerOfABusyFeedStaysOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		p := &idleProducers{closeProducer: func(*kgo.Client) { closed.Add(1) }}
		busy := &idleProducer{producer: new(kgo.Client)}
		for range 10 {
			p.park(busy)
			time.Sleep(producerIdle - time.Second)
			p.claim(busy)
		}
		time.Sleep(2 * producerIdle) // within a commit
		if n := closed.Load(); n > 0 || busy.producer == nil {
			t.Fatalf("%d producers are closed, want none", n)
		}
		p.park(busy)
		time.Sleep(producerIdle)
		synctest.Wait()
		if n := closed.Load(); n != 1 || p.isOpen(busy) {
			t.Errorf("%d producers are closed, want the one that is idle", n)
		}
		p.claim(busy)
		if busy.producer != nil {
			t.Error("the sink has a producer that is closed")
		}
	})
}

// While many feeds start, only as many producers are open as have committed just now.
func TestManyIdleProducersAreClosedSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		most := int64(0)
		p := &idleProducers{closeProducer: func(*kgo.Client) { open.Add(-1) }}
		const sinks, perSecond = 10_000, 100
		for range sinks {
			open.Add(1)
			p.park(&idleProducer{producer: new(kgo.Client)})
			most = max(most, open.Load())
			time.Sleep(time.Second / perSecond)
			synctest.Wait()
		}
		if want := int64(fewProducers + perSecond*int(crowdedIdle/time.Second)); most > want {
			t.Errorf("%d producers were open, want %d at most", most, want)
		}
		time.Sleep(crowdedIdle)
		synctest.Wait()
		if n := open.Load(); n != fewProducers {
			t.Errorf("%d producers are open, want %d", n, fewProducers)
		}
		time.Sleep(producerIdle)
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d producers are open, want none", n)
		}
	})
}

// The timer ends with the connection.
func TestIdleProducersOfAClosedConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		p := &idleProducers{closeProducer: func(*kgo.Client) { closed.Add(1) }}
		p.stop() // before the first commit
		p.park(&idleProducer{producer: new(kgo.Client)})
		p.stop()
		time.Sleep(2 * producerIdle)
		synctest.Wait()
		if n := closed.Load(); n > 0 {
			t.Errorf("%d producers are closed a second time", n)
		}
	})
}
