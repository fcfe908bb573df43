package bridge

import (
	"cmp"
	"context"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
)

// pump copies batches from the source to the sink. It is owned by the steps.
type pump struct {
	feed, writer string
	source       sourceSlot
	sink         Sink
	prefetch     prefetchOptions
	size         commitSize
	// start is the slot of the feed in its first step; nil later.
	start *limit.Slot

	known    *knownCheckpoint
	failures *failures
	report   *reporter
}

// init sets the largest commit. The rest of what is read ahead, and the memory that the sink frees
// before the commit has ended, is for what is read during the commit.
func (p *pump) init(most feed.Limits) {
	largest := max(1, p.prefetch.readAhead*3/4)
	most.Bytes = min(cmp.Or(most.Bytes, largest), largest)
	p.size.init(most)
	p.prefetch.size = &p.size
}

// begin prepares to copy from the checkpoint on, from which the sink has resumed.
func (p *pump) begin(ctx context.Context, cp checkpoint.Checkpoint) error {
	if err := p.source.openFor(ctx, cp, p.feed); err != nil {
		return err
	}
	p.known.set(cp)
	if !p.failures.failing {
		// After an error the state does not change until a session works. A state that
		// changes with every attempt would hide the error.
		p.report.enterState(Status{State: Reading})
	}
	return nil
}

// copyAll copies from the newest cursor on until there is nothing new, and then returns true and
// how long upstream wants not to be asked. It returns false if ctx ends before. It does not end
// because the checkpoint was read long ago: batches that were read and not committed are dropped
// only if the sink resumes before the next read, or their IDs would count as duplicates.
//
// After the first batch a prefetcher reads, and this goroutine commits. The reading has ended when
// copyAll returns.
func (p *pump) copyAll(ctx context.Context) (caughtUp bool, fresh time.Duration, err error) {
	ahead := startPrefetching(ctx, p.source.source, p.known.newestCursor(), p.prefetch)
	defer ahead.stop()
	for ctx.Err() == nil {
		batch, err := ahead.nextBatch(ctx)
		if err != nil {
			return false, 0, err
		}
		if err := p.commitBatch(ctx, batch); err != nil {
			return false, 0, err
		}
		ahead.release()
		if p.failures.end() {
			p.report.enterState(Status{State: Reading})
		}
		if !batch.More {
			return true, batch.Fresh, nil
		}
	}
	return false, 0, nil
}

// commitBatch commits the batch, unless it has no entities and its cursor need not be stored.
func (p *pump) commitBatch(ctx context.Context, batch feed.Batch) error {
	last := p.known.last
	if !p.known.needsCommit(batch) {
		// If the process dies here, the next poll is made without the newest validators.
		p.known.unstored, batch.Cursor = batch.Cursor, last.Cursor
		p.report.batchSkipped(batch)
		return nil
	}
	// Dead letters do not count: they are not in the topic.
	published := len(batch.Entities) - feed.CountDead(batch.Entities)
	cp := checkpoint.Checkpoint{
		Feed:   p.feed,
		Source: p.source.kind,
		Cursor: batch.Cursor,
		Count:  last.Count + uint64(published),
		At:     time.Now(),
		Writer: p.writer,
		Moved:  last.Moved,
	}
	// A stop of the process does not cancel the commit: see the package comment. The sink
	// bounds its time. If the process dies here, either all of the batch is published and
	// cp is stored, or cp is not, and the next Resume knows what is published of the batch.
	p.start.Extend(limit.SlowFirstCommit)
	if err := p.sink.Commit(context.WithoutCancel(ctx), batch.Entities, cp); err != nil {
		took := time.Since(cp.At)
		err = p.size.explainError(err, batch.Entities, took)
		p.size.failed(batch.Bytes, took)
		return &sinkError{err, false}
	}
	p.start.Release()
	took := time.Since(cp.At)
	p.size.committed(batch.Bytes, took)
	p.known.set(cp)
	p.report.batchCommitted(batch, published, took)
	return nil
}
