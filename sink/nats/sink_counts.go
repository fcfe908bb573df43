package nats

import (
	"maps"
	"slices"
	"sync"
)

// sinkCounts counts the open sinks by stream, and has the last look at each of the streams. It is safe
// for concurrent use.
type sinkCounts struct {
	mu       sync.Mutex
	byStream map[string]int
	looks    map[string]look // those that were answered
	reported map[string]bool // see [sinkCounts.isFirstReport]
}

func newSinkCounts() *sinkCounts {
	return &sinkCounts{byStream: map[string]int{}, looks: map[string]look{}, reported: map[string]bool{}}
}

// increment counts one more sink of a stream.
func (c *sinkCounts) increment(stream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byStream[stream]++
}

// decrement counts one sink less of a stream.
func (c *sinkCounts) decrement(stream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byStream[stream]--; c.byStream[stream] == 0 {
		delete(c.byStream, stream)
		delete(c.looks, stream)
		delete(c.reported, stream)
	}
}

// recordLook compares a look with the one before it, and keeps it while the stream has an open sink.
func (c *sinkCounts) recordLook(stream string, now look) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.looks[stream]
	if now.losses = before.losses; now.lostSince(before) {
		now.losses++
	}
	if c.byStream[stream] > 0 {
		c.looks[stream] = now
	}
}

// isFirstReport reports whether it is called for the first time for a stream while that has an open sink.
func (c *sinkCounts) isFirstReport(stream string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.reported[stream]
	c.reported[stream] = true
	return !again
}

// lastLook returns the last look at a stream that was answered; the zero look if there was none.
func (c *sinkCounts) lastLook(stream string) look {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks[stream]
}

// streams returns the streams that have an open sink, in an order that does not change.
func (c *sinkCounts) streams() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.byStream))
}
