package serve

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/feedbridge/feedbridge/feed"
)

// spanLifetime is how long a span is cached. Clients see new messages later by
// at most that time, and thousands of clients do not cause thousands of requests to
// the bus.
const spanLifetime = 100 * time.Millisecond

// spanCache caches the span of a Log for many concurrent clients.
type spanCache struct {
	log     Log
	flights singleflight.Group

	mu   sync.Mutex // protects the fields below
	span feed.Span
	at   time.Time // when span was asked for
	// changed is closed when the end changes; nil if nobody waits for that.
	changed chan struct{}
	waiting int
	unwatch func() // ends the goroutine that asks the bus while clients wait
}

// Span returns the cached span of the topic, or after spanLifetime a new one.
func (c *spanCache) Span(ctx context.Context) (feed.Span, error) {
	c.mu.Lock()
	span, at := c.span, c.at
	c.mu.Unlock()
	if !at.IsZero() && time.Since(at) < spanLifetime {
		return span, nil
	}
	return shareCall(ctx, &c.flights, "span", c.spanNow)
}

// spanNow reads the span from the bus and caches it.
func (c *spanCache) spanNow(ctx context.Context) (feed.Span, error) {
	at := time.Now()
	span, err := c.log.Span(ctx)
	if err != nil {
		at = time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil && !sameEnd(c.span, span) {
		close(c.changed)
		c.changed = nil
	}
	c.span, c.at = span, at
	return span, err
}

func sameEnd(a, b feed.Span) bool { return a.Epoch == b.Epoch && a.End == b.End }

// watchInterval is the interval of requests to the bus while clients wait for messages.
const watchInterval = 50 * time.Millisecond

// waitChange waits until the topic has another end than known, the bus does not answer, or ctx ends. All waiting
// clients share one goroutine that asks the bus.
func (c *spanCache) waitChange(ctx context.Context, known feed.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !sameEnd(c.span, known) {
		return
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	changed := c.changed
	if c.waiting++; c.waiting == 1 {
		watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c.unwatch = cancel
		go c.watch(watching)
	}
	c.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.waiting--; c.waiting == 0 {
		c.unwatch()
	}
}

// watch reads spans until ctx ends.
func (c *spanCache) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = shareCall(ctx, &c.flights, "span", c.spanNow) // an error is a change
		case <-ctx.Done():
			return
		}
	}
}
