package bridge

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
)

// maxQueue limits the number of batches that wait for their commit, however small they are.
const maxQueue = 1024

// maxWait limits how long a feed with a backlog waits for budget if it holds no batch. It
// is short, because the feeds that have the budget may be stuck. It is not zero, because a
// batch without budget is small, and so is its commit.
const maxWait = time.Second

// commitsAhead limits what is read ahead to a number of the largest commits of the moment. A bus
// that takes small ones needs no more, and a batch that was read is not divided any more.
const commitsAhead = 4

// prefetcher reads ahead of the commits within one read: while the sink commits a batch, it
// reads the next ones on a goroutine. It ends when upstream has no more. So a feed that waits for
// its next poll has no prefetcher.
//
// A batch that is read while the prefetcher holds no other starts without budget. Any other
// batch needs budget before it is read. The budget of a batch is returned when the batch is
// released or the prefetcher is stopped.
type prefetcher struct {
	prefetchOptions
	source feed.Source
	budget *readahead.Budget // of share; nil for no bound but readAhead

	cancel context.CancelFunc
	done   chan struct{}
	// arrived and freed have a capacity of one. They wake a goroutine, which then checks the
	// state.
	arrived chan struct{} // a result is in the queue
	freed   chan struct{} // a batch was released

	mu    sync.Mutex
	queue []result        // results of the source, in order
	held  int             // number of batches that are being read, queued or being committed
	taken readahead.Grant // the budget of these batches

	// Owned by the caller of nextBatch and release.
	// spare is the slice of a joined batch that was committed.
	spare   []feed.Entity
	current joinedBatch // the batch that nextBatch returned last

	// Owned by readBatch and reserve, which one goroutine calls at a time.
	largest int64              // size of the largest batch of the read
	request *readahead.Request // for the budget of the next batch, or nil
}

// result is the result of one call of the source.
type result struct {
	batch feed.Batch
	err   error
	taken readahead.Grant
}

// joinedBatch is one batch, or several batches joined to one.
type joinedBatch struct {
	batch feed.Batch
	err   error
	parts []result // those that are not released
	own   bool     // whether the prefetcher has made the slice of the entities
}

// prefetchOptions has the bounds of a prefetcher. Its fields are those of [Bridge].
type prefetchOptions struct {
	observer  Observer
	size      *commitSize
	readAhead int
	share     *readahead.Share
}

// startPrefetching reads the first batch after the cursor, and starts to read those that follow it.
// So a poll that finds nothing new needs no other goroutine. The caller stops the prefetcher.
func startPrefetching(ctx context.Context, source feed.Source, after feed.Cursor, o prefetchOptions) *prefetcher {
	ctx, cancel := context.WithCancel(ctx)
	if o.share == nil {
		o.share = &readahead.Share{}
	}
	p := &prefetcher{
		prefetchOptions: o, source: source, budget: o.share.Budget(), cancel: cancel,
		held: 1, // a poll does not wait for budget
		done: make(chan struct{}), arrived: make(chan struct{}, 1), freed: make(chan struct{}, 1),
	}
	next, more := p.readBatch(ctx, after, 0, true)
	if !more {
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		p.readOn(ctx, next)
	}()
	return p
}

// readOn calls the source until it has no more or fails, or ctx ends.
func (p *prefetcher) readOn(ctx context.Context, after feed.Cursor) {
	defer p.cancelRequest()
	for more := true; more; {
		reserved, first, err := p.reserve(ctx)
		if err != nil {
			return
		}
		after, more = p.readBatch(ctx, after, reserved, first)
	}
}

// readBatch calls the source, and puts its result into the queue unless ctx has ended. Of the
// budget, reserved bytes were acquired for the batch. first reports that it starts without budget.
// readBatch returns the next cursor, and whether to go on.
func (p *prefetcher) readBatch(ctx context.Context, after feed.Cursor, reserved int64, first bool) (next feed.Cursor, more bool) {
	if ctx.Err() != nil {
		return nil, false
	}
	free := int64(0)
	if first {
		free = readahead.Unreserved
	}
	p.share.BeginBatch(reserved, free, p.largest, p.endRequest)
	start := time.Now()
	batch, err := callNext(ctx, p.source, after, p.size.batchLimits())
	taken, used := p.share.EndBatch()
	if ctx.Err() != nil {
		taken.Bytes -= reserved // which stop returns
		p.budget.Return(taken)
		return nil, false
	}
	p.observer.Polled(batch, err, time.Since(start))
	// A batch with More set that does not move the cursor ends the reading for now.
	// The next call would return the same.
	if len(batch.Entities) == 0 && bytes.Equal(batch.Cursor, after) {
		batch.More = false
	}
	p.enqueue(batch, err, reserved, taken, used)
	return batch.Cursor, err == nil && batch.More
}

// reserve acquires budget for another batch and returns the number of bytes. It waits while
// the feed holds as much as ReadAhead, or all feeds as much as the budget. If the feed holds
// no batch, it waits for maxWait at most: then nothing is acquired, and first is true.
func (p *prefetcher) reserve(ctx context.Context) (taken int64, first bool, err error) {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		p.mu.Lock()
		most := int64(max(p.readAhead, 1))
		empty, want := p.held == 0, max(1, min(p.largest, most))
		most = min(most, commitsAhead*int64(p.size.limits().Bytes))
		full := !empty && (p.taken.Bytes+want > most || len(p.queue) >= maxQueue)
		p.mu.Unlock()
		var acquired <-chan struct{}
		if !full {
			if p.request == nil {
				p.request = p.budget.Request(want)
			}
			acquired = p.request.Done()
		}
		var expired <-chan time.Time
		if empty {
			expired = timer.C
		}
		select {
		case <-acquired:
			taken := p.endRequest()
			p.mu.Lock()
			p.held++
			p.taken.Bytes += taken
			p.mu.Unlock()
			return taken, false, nil
		case <-expired:
			// The request keeps its place in the queue, and serves the next batch.
			p.mu.Lock()
			p.held = 1
			p.mu.Unlock()
			return 0, true, nil
		case <-p.freed:
			// The wait begins when the feed holds nothing any more.
			timer.Reset(maxWait)
		case <-ctx.Done():
		}
	}
}

// endRequest ends the request for the budget of the next batch, if there is one, and returns
// the bytes that were granted.
func (p *prefetcher) endRequest() (granted int64) {
	if p.request != nil {
		granted = p.request.Stop().Bytes
		p.request = nil
	}
	return granted
}

// cancelRequest returns the budget that was requested for the next batch.
func (p *prefetcher) cancelRequest() { p.budget.Release(p.endRequest()) }

// enqueue queues a result of the source, which has the grant taken. Of that, reserved bytes
// were acquired before the call. used is the number of bytes that the source has reserved.
func (p *prefetcher) enqueue(batch feed.Batch, err error, reserved int64, taken readahead.Grant, used int64) {
	batch.Bytes = batch.Size()
	size := int64(batch.Bytes)
	p.largest = max(p.largest, size, used)
	needed := used
	if reserved > 0 || size > readahead.Unreserved {
		needed = max(used, size)
	}
	// If there is no budget for the batch, do not wait: it is in memory already. The next
	// batch waits.
	if more := needed - taken.Bytes; more <= 0 || p.budget.TryAcquire(more) {
		p.budget.Return(readahead.Grant{Bytes: max(0, -more), OverBudget: taken.OverBudget})
		taken = readahead.Grant{Bytes: needed}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken.Bytes += taken.Bytes - reserved
	p.taken.OverBudget = p.taken.OverBudget || taken.OverBudget
	p.queue = append(p.queue, result{batch, err, taken})
	signal(p.arrived)
}

// nextBatch returns the next batch, joined with those after it that are in the queue and
// fit into the limits. The caller releases it before it calls nextBatch again, which it does
// not after a batch without More.
func (p *prefetcher) nextBatch(ctx context.Context) (feed.Batch, error) {
	for !p.assemble() {
		select {
		case <-p.arrived:
		case <-ctx.Done():
			return feed.Batch{}, ctx.Err()
		}
	}
	return p.current.batch, p.current.err
}

// release returns the budget and the memory of the batch that nextBatch returned last, after it
// was committed. Nothing that the sink or an observer keeps may refer to its entities.
func (p *prefetcher) release() {
	for len(p.current.parts) > 0 {
		p.releasePart()
	}
	if p.current.own {
		clear(p.current.batch.Entities)
		p.spare = p.current.batch.Entities[:0]
	}
	p.current = joinedBatch{}
}

// releasePart returns the budget and the memory of the first part of the current batch that has them.
func (p *prefetcher) releasePart() {
	part := p.current.parts[0]
	p.current.parts = p.current.parts[1:]
	if part.batch.Free != nil {
		part.batch.Free()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	p.taken.Bytes -= part.taken.Bytes
	p.taken.OverBudget = p.taken.OverBudget && !part.taken.OverBudget
	p.budget.Return(part.taken)
	signal(p.freed)
}

// releaseEarly releases the first part before the commit has ended, with these entities of the current
// batch. They keep what the sink and the observers need of them after the commit.
func (p *prefetcher) releaseEarly(entities []feed.Entity) {
	size := 0
	for i := range entities {
		size += len(entities[i].ID)
	}
	var ids strings.Builder
	ids.Grow(size)
	for i := range entities {
		e := &entities[i]
		ids.WriteString(e.ID)
		e.ID = ids.String()[ids.Len()-len(e.ID):]
		e.Header, e.Body, e.Free = nil, nil, nil
	}
	p.releasePart()
}

// assemble makes the next batches of the queue the current one, and reports whether there was any.
func (p *prefetcher) assemble() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return false
	}
	limits := p.size.limits()
	n, entities, size := 0, 0, 0
	for _, r := range p.queue {
		entities += len(r.batch.Entities)
		size += r.batch.Bytes
		if n > 0 && (r.err != nil || size > limits.Bytes || limits.Entities > 0 && entities > limits.Entities) {
			break
		}
		if n++; r.err != nil {
			break
		}
	}
	parts := slices.Clone(p.queue[:n])
	p.current = joinedBatch{err: parts[0].err, parts: parts}
	p.joinBatches(parts)
	p.queue = slices.Delete(p.queue, 0, n) // which clears the rest, so that the joined batches can be freed
	return true
}

// joinBatches sets the batch of p.current to consecutive batches, joined to one.
func (p *prefetcher) joinBatches(parts []result) {
	all := parts[len(parts)-1].batch
	if len(parts) == 1 {
		p.current.batch = all
		return
	}
	// The slices belong to the source, so do not append to them.
	all.Entities, all.Violations = p.spare, nil
	all.Bytes, all.Duplicates, all.Oversized = 0, 0, 0
	for _, r := range parts {
		b := r.batch
		all.Entities = append(all.Entities, b.Entities...)
		all.Violations = append(all.Violations, b.Violations...)
		all.Bytes += b.Bytes
		all.Duplicates += b.Duplicates
		all.Oversized += b.Oversized
		if all.Newest.Before(b.Newest) {
			all.Newest = b.Newest
		}
	}
	p.current.batch, p.current.own, p.spare = all, true, nil
	rest := all.Entities
	for i, r := range parts {
		n := len(r.batch.Entities)
		own := rest[:n]
		rest = rest[n:]
		if n == 0 || r.batch.Free == nil || feed.CountDead(own) > 0 {
			continue // the records of dead letters are stored last
		}
		own[n-1].Free = func() {
			if len(p.current.parts) == len(parts)-i { // those before it are released
				p.releaseEarly(own)
			}
		}
	}
}

// stop ends the reading, waits until it has ended, and returns all budget.
func (p *prefetcher) stop() {
	p.cancel()
	<-p.done
	p.budget.Return(p.taken)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
