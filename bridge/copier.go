package bridge

import (
	"cmp"
	"context"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
)

// copier copies batches from the source to the sink. It is owned by the steps.
type copier struct {
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
func (c *copier) init(most feed.Limits) {
	largest := max(1, c.prefetch.readAhead*3/4)
	most.Bytes = min(cmp.Or(most.Bytes, largest), largest)
	c.size.init(most)
	c.prefetch.size = &c.size
}

// begin prepares to copy from the checkpoint on, from which the sink has resumed.
func (c *copier) begin(ctx context.Context, cp checkpoint.Checkpoint) error {
	if err := c.source.openFor(ctx, cp, c.feed); err != nil {
		return err
	}
	c.known.set(cp)
	if !c.failures.failing {
		// After an error the state does not change until a session works. A state that
		// changes with every attempt would hide the error.
		c.report.enterState(Status{State: Reading})
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
func (c *copier) copyAll(ctx context.Context) (caughtUp bool, fresh time.Duration, err error) {
	p := startPrefetching(ctx, c.source.source, c.known.newestCursor(), c.prefetch)
	defer p.stop()
	for ctx.Err() == nil {
		batch, err := p.nextBatch(ctx)
		if err != nil {
			return false, 0, err
		}
		if err := c.commitBatch(ctx, batch); err != nil {
			return false, 0, err
		}
		p.release()
		if c.failures.end() {
			c.report.enterState(Status{State: Reading})
		}
		if !batch.More {
			return true, batch.Fresh, nil
		}
	}
	return false, 0, nil
}

// commitBatch commits the batch, unless it has no entities and its cursor need not be stored.
func (c *copier) commitBatch(ctx context.Context, batch feed.Batch) error {
	last := c.known.last
	if !c.known.needsCommit(batch) {
		// If the process dies here, the next poll is made without the newest validators.
		c.known.unstored, batch.Cursor = batch.Cursor, last.Cursor
		c.report.batchSkipped(batch)
		return nil
	}
	// Dead letters do not count: they are not in the topic.
	published := len(batch.Entities) - feed.CountDead(batch.Entities)
	cp := checkpoint.Checkpoint{
		Feed:   c.feed,
		Source: c.source.kind,
		Cursor: batch.Cursor,
		Count:  last.Count + uint64(published),
		At:     time.Now(),
		Writer: c.writer,
		Moved:  last.Moved,
	}
	// A stop of the process does not cancel the commit: see the package comment. The sink
	// bounds its time. If the process dies here, either all of the batch is published and
	// cp is stored, or cp is not, and the next Resume knows what is published of the batch.
	c.start.Extend(limit.SlowFirstCommit)
	if err := c.sink.Commit(context.WithoutCancel(ctx), batch.Entities, cp); err != nil {
		took := time.Since(cp.At)
		err = c.size.explainError(err, batch.Entities, took)
		c.size.failed(batch.Bytes, took)
		return &sinkError{err, false}
	}
	c.start.Release()
	took := time.Since(cp.At)
	c.size.committed(batch.Bytes, took)
	c.known.set(cp)
	c.report.batchCommitted(batch, published, took)
	return nil
}
