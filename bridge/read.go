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

	// Owned by the caller of next and ahead.
	held   *result // a result that did not fit the last answer
	joined *joined // the next answer, if ahead has made it up already
	parked bool    // the last answer had no more
}

// joined is what next returns: one batch, or several in one.
type joined struct {
	batch feed.Batch
	room  int64
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
		r.read(ctx, b.source, b.Observer, after)
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
	if r.joined == nil {
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
		if first.err != nil {
			return feed.Batch{}, first.err
		}
		r.joined = r.collect(first)
	}
	answer := r.joined
	r.joined = nil
	r.parked = !answer.batch.More
	r.room.Release(answer.room)
	return answer.batch, nil
}

// ahead returns the entities of the batch that next will return, if it is at
// hand. It does not wait.
func (r *reader) ahead() []feed.Entity {
	if r.joined == nil && !r.parked {
		if r.held == nil {
			select {
			case res := <-r.results:
				r.held = &res
			default:
			}
		}
		if r.held == nil || r.held.err != nil {
			return nil
		}
		first := r.held
		r.held = nil
		r.joined = r.collect(first)
	}
	if r.joined == nil {
		return nil
	}
	return r.joined.batch.Entities
}

// collect joins to the first result what is at hand and fits.
func (r *reader) collect(first *result) *joined {
	batches, room := []feed.Batch{first.batch}, first.room
	entities, size := len(first.batch.Entities), first.batch.Size()
	for last := first.batch; last.More; {
		select {
		case res := <-r.results:
			entities += len(res.batch.Entities)
			size += res.batch.Size()
			if res.err != nil || !r.fits(entities, size) {
				r.held = &res
				return &joined{join(batches), room}
			}
			room += res.room
			batches = append(batches, res.batch)
			last = res.batch
		default:
			return &joined{join(batches), room}
		}
	}
	return &joined{join(batches), room}
}

func (r *reader) fits(entities, size int) bool {
	return (r.limits.Entities == 0 || entities <= r.limits.Entities) && (r.limits.Bytes == 0 || size <= r.limits.Bytes)
}

// join makes one batch of several that follow each other.
func join(batches []feed.Batch) feed.Batch {
	all := batches[len(batches)-1]
	if len(batches) == 1 {
		return all
	}
	// The slices belong to whoever made the batches, so never append to them.
	all.Entities, all.Violations = nil, nil
	all.Duplicates, all.Oversized = 0, 0
	for _, b := range batches {
		all.Entities = append(all.Entities, b.Entities...)
		all.Violations = append(all.Violations, b.Violations...)
		all.Duplicates += b.Duplicates
		all.Oversized += b.Oversized
		if all.Newest.Before(b.Newest) {
			all.Newest = b.Newest
		}
	}
	return all
}

// stop ends the reading and returns when it has ended.
func (r *reader) stop() {
	r.cancel()
	<-r.done
}
