package bridge

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// maxQueue is how many batches may wait for their commit, however small they are.
const maxQueue = 1024

// prefetcher reads ahead of the commits within one session: while the sink commits a
// batch, the next ones are read, because their cursors are known. It pauses where upstream
// has no more, so that the session decides when to poll.
//
// A batch that is read while it holds no other is begun without budget. Each further one
// needs budget before it is read. What a batch has of the budget is returned when it is
// released or the session ends.
type prefetcher struct {
	source   Source
	observer Observer
	limits   Limits
	share    *Share
	budget   *Budget // of share; nil for no bound but most
	most     int64   // bytes of budget at a time

	cancel context.CancelFunc
	done   chan struct{}
	// arrived, freed and resumed have a capacity of one: they wake a goroutine, which
	// looks for itself what has changed.
	arrived chan struct{} // a result is in the queue
	freed   chan struct{} // a batch was released
	resumed chan struct{} // reading is to continue after a pause

	mu    sync.Mutex
	queue []result // what was read, in order
	held  int      // batches that are being read, queued or being committed
	taken grant    // what they have of the budget
	// wake is called when the last held batch is released while the next waits for
	// budget; nil otherwise.
	wake context.CancelFunc

	// Owned by the caller of next, peekEntities and release.
	joined  *joined // the next batch, if ahead has assembled it already
	current joined  // the batch that next returned last
	paused  bool    // it had no more

	// Owned by the reading goroutine.
	largest int64 // batch of the session, which is what the next may need
}

// result is what one call of the source returned.
type result struct {
	batch feed.Batch
	err   error
	size  int // of the batch
	taken grant
}

// joined is one batch, or several in one, with what they hold.
type joined struct {
	batch feed.Batch
	err   error
	parts int
	taken grant
}

func (b *Bridge) startPrefetching(ctx context.Context, after feed.Cursor) *prefetcher {
	ctx, cancel := context.WithCancel(ctx)
	share := b.Share
	if share == nil {
		share = &Share{}
	}
	p := &prefetcher{
		source:   b.source,
		observer: b.Observer,
		limits:   b.Limits,
		share:    share,
		budget:   share.budget,
		most:     int64(max(b.ReadAhead, 1)),
		cancel:   cancel,
		done:     make(chan struct{}),
		arrived:  make(chan struct{}, 1),
		freed:    make(chan struct{}, 1),
		resumed:  make(chan struct{}, 1),
	}
	go func() {
		defer close(p.done)
		p.run(ctx, after)
	}()
	return p
}

// run calls the source until it fails or ctx ends.
func (p *prefetcher) run(ctx context.Context, after feed.Cursor) {
	for {
		reserved, first, err := p.reserve(ctx)
		if err != nil {
			return
		}
		free := int64(0)
		if first {
			free = unreserved
		}
		p.share.begin(reserved, free, p.largest)
		start := time.Now()
		batch, err := callNext(ctx, p.source, after)
		taken, used := p.share.end()
		if ctx.Err() != nil {
			taken.bytes -= reserved // which stop returns
			p.budget.release(taken)
			return
		}
		p.observer.Polled(batch, err, time.Since(start))
		// A batch that says More without moving is as good as none: asking
		// at once would give the same.
		if len(batch.Entities) == 0 && bytes.Equal(batch.Cursor, after) {
			batch.More = false
		}
		p.enqueue(batch, err, reserved, taken, used)
		if err != nil {
			return
		}
		after = batch.Cursor
		if batch.More {
			continue
		}
		select {
		case <-p.resumed:
		case <-ctx.Done():
			return
		}
	}
}

// reserve takes the budget to read another batch with, and returns how many bytes that is.
// It waits while this feed or all feeds have read enough ahead. If the feed holds no batch
// at all, this one is the first: it takes nothing, and does not wait.
func (p *prefetcher) reserve(ctx context.Context) (taken int64, first bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		p.mu.Lock()
		if p.held == 0 {
			p.held = 1
			p.mu.Unlock()
			return 0, true, nil
		}
		want := max(1, min(p.largest, p.most))
		if p.taken.bytes+want > p.most || len(p.queue) >= maxQueue {
			p.mu.Unlock()
			select {
			case <-p.freed:
			case <-ctx.Done():
			}
			continue
		}
		waiting, cancel := context.WithCancel(ctx)
		p.wake = cancel
		p.mu.Unlock()
		taken, err := p.budget.Acquire(waiting, want)
		cancel()
		p.mu.Lock()
		p.wake = nil
		if err == nil {
			p.held++
			p.taken.bytes += taken
			p.mu.Unlock()
			return taken, false, nil
		}
		p.mu.Unlock()
	}
}

// enqueue queues what was read. Of what was taken of the budget for it, reserved bytes were
// taken before the reading. used is how much of the budget the source has reserved.
func (p *prefetcher) enqueue(batch feed.Batch, err error, reserved int64, taken grant, used int64) {
	size := batch.Size()
	p.largest = max(p.largest, int64(size), used)
	needed := used
	if reserved > 0 {
		needed = max(used, int64(size))
	}
	// If there is no budget for the batch, nothing is gained by waiting, because the batch
	// is there. The next one waits.
	if more := needed - taken.bytes; more <= 0 || p.budget.TryAcquire(more) {
		p.budget.release(grant{max(0, -more), taken.alone})
		taken = grant{bytes: needed}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken.bytes += taken.bytes - reserved
	p.taken.alone = p.taken.alone || taken.alone
	p.queue = append(p.queue, result{batch, err, size, taken})
	signal(p.arrived)
}

// next returns what comes next: one batch, or several in one if they are at hand and stay
// within the limits together. The caller releases it before it asks for another.
func (p *prefetcher) next(ctx context.Context) (feed.Batch, error) {
	if p.paused {
		p.paused = false
		signal(p.resumed)
	}
	for p.joined == nil && !p.assemble() {
		select {
		case <-p.arrived:
		case <-ctx.Done():
			return feed.Batch{}, ctx.Err()
		}
	}
	p.current, p.joined = *p.joined, nil
	p.paused = p.current.err == nil && !p.current.batch.More
	return p.current.batch, p.current.err
}

// peekEntities returns the entities of the batch that next will return, if it is at hand. It does
// not wait.
func (p *prefetcher) peekEntities() []feed.Entity {
	if p.joined == nil && !p.assemble() {
		return nil
	}
	return p.joined.batch.Entities
}

// release returns the budget of the batch that next returned last, which the caller no
// longer needs.
func (p *prefetcher) release() {
	taken := p.current.taken
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held -= p.current.parts
	p.taken.bytes -= taken.bytes
	p.taken.alone = p.taken.alone && !taken.alone
	p.budget.release(taken)
	p.current = joined{}
	if p.held == 0 && p.wake != nil {
		p.wake()
	}
	signal(p.freed)
}

// assemble makes the next batch of what is in the queue, and reports whether there is any.
func (p *prefetcher) assemble() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return false
	}
	n, entities, size := 0, 0, 0
	for _, r := range p.queue {
		entities += len(r.batch.Entities)
		size += r.size
		if n > 0 && (r.err != nil || !p.fits(entities, size)) {
			break
		}
		if n++; r.err != nil {
			break
		}
	}
	parts := p.queue[:n]
	p.joined = &joined{batch: join(parts), err: parts[0].err, parts: n}
	for _, r := range parts {
		p.joined.taken.bytes += r.taken.bytes
		p.joined.taken.alone = p.joined.taken.alone || r.taken.alone
	}
	// What is left moves to a slice of its own, so that the batches of this one can be
	// freed.
	p.queue = append([]result(nil), p.queue[n:]...)
	return true
}

// fits reports whether a commit may be as large. Half of what may be held is left for
// reading during the commit.
func (p *prefetcher) fits(entities, size int) bool {
	return int64(size) <= p.most/2 && (p.limits.Entities == 0 || entities <= p.limits.Entities) && (p.limits.Bytes == 0 || size <= p.limits.Bytes)
}

// join makes one batch of several that follow each other.
func join(parts []result) feed.Batch {
	all := parts[len(parts)-1].batch
	if len(parts) == 1 {
		return all
	}
	// The slices belong to the source that made the batches, so never append to them.
	all.Entities, all.Violations = nil, nil
	all.Duplicates, all.Oversized = 0, 0
	for _, r := range parts {
		b := r.batch
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

// stop ends the reading, waits until it has ended, and returns all budget.
func (p *prefetcher) stop() {
	p.cancel()
	<-p.done
	p.budget.release(p.taken)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
