package kafka

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/retry"
)

// watch is the consumer of the checkpoints that all copies commit.
type watch struct {
	client *client
	// working is set while all partitions are read.
	working atomic.Bool
}

// WatchCheckpoints reads the checkpoint topic from its present end on, with one consumer for all
// topics, which has no group. committed is called with the topic of each commit and the writer of
// its checkpoint, which is empty if the checkpoint was deleted or cannot be read. missed is called
// when commits may have gone unseen: when the watch begins again after an error. Both are called
// from one goroutine at a time, and must not block.
//
// An outage of a broker delays calls, and loses none. The watch begins when there is a checkpoint
// topic. It ends with ctx, or when the [Conn] is closed. It is called once.
func (c *Conn) WatchCheckpoints(ctx context.Context, committed func(topic, writer string), missed func()) {
	go func() {
		backoff := retry.Backoff{Min: time.Second, Max: watchRetry}
		for again := false; ctx.Err() == nil && !c.client.closed.Load(); again = true {
			if again && backoff.Wait(ctx) != nil {
				return
			}
			err := c.watch.run(ctx, committed, func() {
				if again {
					missed()
				}
				backoff = retry.Backoff{Min: time.Second, Max: watchRetry}
			})
			c.watch.working.Store(false)
			c.client.log.Debug("the watch of the checkpoints has ended; until it begins again, each feed reads its own", "error", err)
		}
	}()
}

// watchPause is the time between two fetches. Without it a copy would fetch after each commit of
// each feed, its own included, and decode one record at a time.
const watchPause = 100 * time.Millisecond

// watchRetry is the longest wait until an interrupted watch begins again.
const watchRetry = 30 * time.Second

// WatchesCheckpoints reports whether the commits of other copies are seen at present. It is false
// while a broker is unreachable.
func (c *Conn) WatchesCheckpoints() bool {
	return c.watch.working.Load() && !c.client.reconnects.anyUnreachable()
}

// run watches until ctx ends or there is an error. It calls begun when it sees all commits from then
// on.
func (w *watch) run(ctx context.Context, committed func(topic, writer string), begun func()) error {
	topic := w.client.cfg.Checkpoints
	partitions, err := w.countPartitions(ctx)
	if err != nil {
		return err
	}
	all := make([]int32, partitions)
	for i := range all {
		all[i] = int32(i)
	}
	ends, err := w.listEnds(ctx, all)
	if err != nil {
		return err
	}
	offsets := map[int32]kgo.Offset{}
	for i, p := range all {
		offsets[p] = kgo.NewOffset().At(ends[i])
	}
	consumer, err := kgo.NewClient(append(slices.Clone(w.client.opts),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(fetchBytes),
		// An offset that is gone is that of another topic with the same name.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	begun()
	w.working.Store(true)
	checked := time.Now()
	for {
		poll, cancel := context.WithTimeout(ctx, recheck)
		fetches := consumer.PollFetches(poll)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := fetches.Err0(); err != nil && poll.Err() == nil {
			return err
		}
		for _, f := range fetches.Errors() {
			if poll.Err() == nil {
				return f.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			name, _, _ := strings.Cut(string(r.Key), "/")
			cp, _ := checkpoint.Decode(r.Value) // without a writer if it cannot be read
			committed(name, cp.Writer)
		})
		if retry.Sleep(ctx, watchPause) != nil {
			return context.Cause(ctx)
		}
		if time.Since(checked) < recheck {
			continue
		}
		now, err := w.countPartitions(ctx)
		if err != nil {
			return err
		}
		for ; partitions < now; partitions++ {
			consumer.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(partitions): kgo.NewOffset().AtStart()}})
		}
		checked = time.Now()
	}
}

func (w *watch) countPartitions(ctx context.Context) (int, error) {
	ctx, cancel := w.client.withRequestTimeout(ctx)
	defer cancel()
	d, err := w.client.describeTopic(ctx, w.client.cfg.Checkpoints)
	return len(d.Partitions), err
}

// listEnds returns the offset in each partition that comes after all records.
func (w *watch) listEnds(ctx context.Context, partitions []int32) ([]int64, error) {
	ctx, cancel := w.client.withRequestTimeout(ctx)
	defer cancel()
	return w.client.listOffsets(ctx, w.client.cfg.Checkpoints, partitions, stableOffset)
}
