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
}

// Span returns the cached span of the topic, or after spanLifetime a new one.
func (c *spanCache) Span(ctx context.Context) (feed.Span, error) {
	if span, ok := c.freshSpan(); ok {
		return span, nil
	}
	return shareCall(ctx, &c.flights, "span", func(ctx context.Context) (feed.Span, error) {
		if span, ok := c.freshSpan(); ok { // of a call that has ended since
			return span, nil
		}
		return c.spanNow(ctx)
	})
}

func (c *spanCache) freshSpan() (span feed.Span, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.span, !c.at.IsZero() && time.Since(c.at) < spanLifetime
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
	c.span, c.at = span, at
	return span, err
}

// waitChange waits until the topic has another end than known, the bus does not answer, or ctx ends. All clients that
// wait share the requests to the bus.
func (c *spanCache) waitChange(ctx context.Context, known feed.Span) {
	ticker := time.NewTicker(spanLifetime)
	defer ticker.Stop()
	for {
		span, err := c.Span(ctx)
		if err != nil || span.Epoch != known.Epoch || span.End != known.End {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
