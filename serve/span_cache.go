package serve

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// spanLifetime is how long a span is cached. Clients see new messages later by
// at most that time, and thousands of clients do not cause thousands of requests to
// the bus.
const spanLifetime = 100 * time.Millisecond

// spanCache caches the span of a Log for many concurrent clients.
type spanCache struct {
	log     Log
	flights singleflight.Group

	mu   sync.Mutex // protects span and at
	span feed.Span
	at   time.Time // when span was asked for
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
	c.span, c.at = span, at
	return span, err
}

// shareCall calls do once for all concurrent callers with the same key, and returns its
// result to each. The call continues when callers leave, for at most [busTimeout]. A panic of
// do is an error that matches [feed.ErrPermanent].
func shareCall[T any](ctx context.Context, flights *singleflight.Group, key string, do func(context.Context) (T, error)) (T, error) {
	done := flights.DoChan(key, func() (result any, err error) {
		defer snapshot.RecoverPanic(&err)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), busTimeout)
		defer cancel()
		return do(ctx)
	})
	var zero T
	select {
	case r := <-done:
		if r.Err != nil {
			return zero, r.Err
		}
		return r.Val.(T), nil
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// firstMessage returns the first position in [from, to) that has a message.
func (c *spanCache) firstMessage(ctx context.Context, from, to uint64) (position uint64, ok bool, err error) {
	if from >= to {
		return 0, false, nil
	}
	for r, err := range c.log.Read(ctx, from, to) {
		return r.Position, err == nil, err
	}
	return 0, false, nil
}

// newestMessage returns the position of the n-th newest message, or of the oldest one if
// there are not so many; the end of the topic if there is none. Most positions may
// have no message: those of checkpoints have none.
func (c *spanCache) newestMessage(ctx context.Context, span feed.Span, n uint64) (position uint64, err error) {
	for width := 2 * n; ; width *= 4 {
		from := span.First
		if width < span.End-span.First {
			from = span.End - width
		}
		var last []uint64 // the positions of n messages at least, if there are so many
		for r, err := range c.log.Read(ctx, from, span.End) {
			if err != nil {
				return 0, err
			}
			if last = append(last, r.Position); uint64(len(last)) >= 2*n {
				last = append(last[:0], last[uint64(len(last))-n:]...)
			}
		}
		switch found := uint64(len(last)); {
		case found >= n:
			return last[found-n], nil
		case from > span.First:
		case found > 0:
			return last[0], nil
		default:
			return span.End, nil
		}
	}
}

// nextPage returns the first page behind page k that has a message.
func (c *spanCache) nextPage(ctx context.Context, id pageID, span feed.Span) (k uint64, ok bool, err error) {
	// The message is mostly right behind the page, and reading more than necessary may
	// take long.
	for from, width := id.endPosition(), uint64(1); from < span.End; width = max(width*2, id.size) {
		to := min(from+width, span.End)
		position, ok, err := c.firstMessage(ctx, from, to)
		if ok || err != nil {
			return position / id.size, ok, err
		}
		from = to
	}
	return 0, false, nil
}

// previousPage returns the last page in front of page k that has a message.
func (c *spanCache) previousPage(ctx context.Context, id pageID, span feed.Span) (k uint64, ok bool, err error) {
	n := id.size
	low := span.First / n // no page in front of this one has any
	for high, width := id.k, uint64(1); high > low; width *= 2 {
		from := max(low, high-min(width, high))
		_, ok, err := c.firstMessage(ctx, from*n, min(high*n, span.End))
		if err != nil {
			return 0, false, err
		}
		if !ok {
			high = from
			continue
		}
		for high-from > 1 { // there is one in [from, high)
			middle := from + (high-from)/2
			_, ok, err := c.firstMessage(ctx, middle*n, min(high*n, span.End))
			if err != nil {
				return 0, false, err
			}
			if ok {
				from = middle
			} else {
				high = middle
			}
		}
		return from, true, nil
	}
	return 0, false, nil
}

// busTimeout limits the time of one request to the bus, such as a page of large
// messages. The Log itself detects earlier that the bus does not answer.
const busTimeout = 2 * time.Minute
