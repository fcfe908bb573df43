package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/internal/retry"
)

// meanwhile is called during a wait, after each attempt, with the time that was waited so far.
// Its error ends the wait.
type meanwhile func(ctx context.Context, waited time.Duration) error

// stableWait waits until transactions in partitions of a topic have ended.
//
// Committed records are visible only below the last stable offset: an open transaction,
// of any program, hides all records behind its first one, and the coordinator writes the
// markers of a committed transaction partition by partition, after it has confirmed the
// commit.
type stableWait struct {
	client     *client
	topic      string
	partitions []int32
	// patience is the time limit of the wait. After it the wait ends with an error.
	patience  time.Duration
	meanwhile meanwhile // nil for none
}

// toEnd waits until the last stable offset of each partition reaches the end that
// the partition has now, or atLeast if that is more; atLeast may be nil, or shorter than
// partitions. It returns the last stable offsets.
func (w stableWait) toEnd(ctx context.Context, atLeast []int64) ([]int64, error) {
	ends, err := w.client.listOffsets(ctx, w.topic, w.partitions, endOffset)
	if err != nil {
		return nil, err
	}
	for i := range min(len(ends), len(atLeast)) {
		ends[i] = max(ends[i], atLeast[i])
	}
	return w.upTo(ctx, ends)
}

// upTo waits until the last stable offset of each partition reaches to, and returns them.
func (w stableWait) upTo(ctx context.Context, to []int64) ([]int64, error) {
	began := time.Now()
	backoff := retry.Backoff{Min: 2 * time.Millisecond, Max: 100 * time.Millisecond}
	for {
		now, err := w.client.listOffsets(ctx, w.topic, w.partitions, stableOffset)
		if err != nil {
			return nil, err
		}
		behind := 0
		for behind < len(to) && now[behind] >= to[behind] {
			behind++
		}
		if behind == len(to) {
			return now, nil
		}
		waited := time.Since(began)
		if waited >= w.patience {
			return nil, w.explainTimeout(ctx, w.partitions[behind], waited)
		}
		if w.meanwhile != nil {
			if err := w.meanwhile(ctx, waited); err != nil {
				return nil, err
			}
		}
		if err := backoff.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// errHeldBack reports that a transaction that is not ended holds a partition back.
var errHeldBack = errors.New("is held back by")

// explainTimeout returns the reason why the last stable offset of a partition does not advance. It
// matches errHeldBack unless too few replicas are in sync, so that markers cannot be written.
func (w stableWait) explainTimeout(ctx context.Context, partition int32, after time.Duration) error {
	if d, err := w.client.describeTopic(ctx, w.topic); err == nil {
		config, _ := w.client.topicConfig(ctx, w.topic) // without it the default is assumed
		has := len(d.Partitions[partition].ISR)
		if want, err := strconv.Atoi(config["min.insync.replicas"]); err == nil && has < want {
			return fmt.Errorf("partition %d of %s has %d replicas in sync, and min.insync.replicas is %d; are brokers down?", partition, w.topic, has, want)
		}
	}
	whose := "a transaction that is not ended"
	if holders := w.describeHolders(ctx, partition); len(holders) > 0 {
		whose = "a transaction of " + strings.Join(holders, ", ")
	}
	return fmt.Errorf("partition %d of %s %w %s for %v or longer; if its program is gone, the cluster aborts it "+
		"at its transaction timeout, or never, if it reports it as ended (CompleteCommit, CompleteAbort, Empty); "+
		"the documentation says how to do it by hand", partition, w.topic, errHeldBack, whose, after.Round(time.Millisecond))
}

// describeHolders returns the transactional ids, and states, of the transactions that are open in
// a partition. It returns none if the cluster does not report them: that takes Kafka 3.0 and the
// right to ask.
func (w stableWait) describeHolders(ctx context.Context, partition int32) (names []string) {
	ctx, cancel := w.client.withTimeout(ctx, w.client.graceTime())
	defer cancel()
	open, err := w.client.openTransactions(ctx, kadm.TopicsSet{w.topic: {partition: {}}})
	if err != nil || len(open) == 0 {
		return nil
	}
	var ids []int64
	for _, p := range open {
		ids = append(ids, p.ProducerID)
	}
	transactions, _ := w.client.admin.ListTransactions(ctx, ids, nil)
	for _, t := range transactions.Sorted() {
		names = append(names, fmt.Sprintf("%q (%s)", t.TxnID, t.State))
	}
	return names
}
