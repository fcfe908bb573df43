package bridge

import (
	"bytes"
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/feedbridge/feedbridge/feed"
)

// reader reads ahead of the commits within one session: while the sink commits
// a batch, the next ones are read, for their cursors are known. It parks where
// upstream has no more, so the loop keeps the beat of polling.
type reader struct {
	limits Limits
	// room is what may still be read ahead, in bytes. Reading takes, next
	// gives back.
	room  *semaphore.Weighted
	space int64
	// results has what was read, in order. Room bounds it, not its capacity.
	results chan result
	// again wakes the goroutine after it has parked.
	again  chan struct{}
	cancel context.CancelFunc
	done   chan struct{}

	// Owned by the caller of next.
	held   *result // a result that did not fit the last answer
	parked bool    // the last answer had no more
}

type result struct {
	batch feed.Batch
	err   error
	room  int64
}

// queue is how many batches may wait, however small they are. Every session
// makes room for them, also those of a thousand idle feeds.
const queue = 64

func (b *Bridge) startReading(ctx context.Context, after feed.Cursor) *reader {
	ctx, cancel := context.WithCancel(ctx)
	space := int64(max(b.ReadAhead, 1))
	r := &reader{
		limits:  b.Limits,
		room:    semaphore.NewWeighted(space),
		space:   space,
		results: make(chan result, queue),
		again:   make(chan struct{}, 1),
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		r.read(ctx, b.Source, b.Observer, after)
	}()
	return r
}

// read calls the source until it fails or ctx ends.
func (r *reader) read(ctx context.Context, source Source, observer Observer, after feed.Cursor) {
	for {
		start := time.Now()
		batch, err := source.Next(ctx, after)
		if ctx.Err() != nil {
			return
		}
		observer.Polled(batch, err, time.Since(start))
		// A batch that says More without moving is as good as none: asking
		// at once would give the same.
		if len(batch.Entities) == 0 && bytes.Equal(batch.Cursor, after) {
			batch.More = false
		}
		res := result{batch, err, min(int64(batch.Size()), r.space)}
		if r.room.Acquire(ctx, res.room) != nil {
			return
		}
		select {
		case r.results <- res:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		after = batch.Cursor
		if batch.More {
			continue
		}
		select {
		case <-r.again:
		case <-ctx.Done():
			return
		}
	}
}

// next returns what comes next: one batch, or several in one if they are at
// hand and stay within the limits together.
func (r *reader) next(ctx context.Context) (feed.Batch, error) {
	if r.parked {
		r.parked = false
		r.again <- struct{}{}
	}
	first := r.held
	r.held = nil
	if first == nil {
		select {
		case res := <-r.results:
			first = &res
		case <-ctx.Done():
			return feed.Batch{}, ctx.Err()
		}
	}
	r.room.Release(first.room)
	if first.err != nil {
		return feed.Batch{}, first.err
	}
	batches := []feed.Batch{first.batch}
	entities, size := len(first.batch.Entities), first.batch.Size()
	for last := first.batch; last.More; {
		select {
		case res := <-r.results:
			entities += len(res.batch.Entities)
			size += res.batch.Size()
			if res.err != nil || !r.fits(entities, size) {
				r.held = &res
				return join(batches), nil
			}
			r.room.Release(res.room)
			batches = append(batches, res.batch)
			last = res.batch
		default:
			return join(batches), nil
		}
	}
	r.parked = true
	return join(batches), nil
}

func (r *reader) fits(entities, size int) bool {
	return (r.limits.Entities == 0 || entities <= r.limits.Entities) && (r.limits.Bytes == 0 || size <= r.limits.Bytes)
}

// join makes one batch of several that follow each other.
func join(batches []feed.Batch) feed.Batch {
	joined := batches[len(batches)-1]
	if len(batches) == 1 {
		return joined
	}
	// The slices belong to whoever made the batches, so never append to them.
	joined.Entities, joined.Violations = nil, nil
	joined.Duplicates, joined.Oversized = 0, 0
	for _, b := range batches {
		joined.Entities = append(joined.Entities, b.Entities...)
		joined.Violations = append(joined.Violations, b.Violations...)
		joined.Duplicates += b.Duplicates
		joined.Oversized += b.Oversized
		if joined.Newest.Before(b.Newest) {
			joined.Newest = b.Newest
		}
	}
	return joined
}

// stop ends the reading and returns when it has ended.
func (r *reader) stop() {
	r.cancel()
	<-r.done
}
