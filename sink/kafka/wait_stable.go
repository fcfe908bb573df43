package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// waitStable waits until the last stable offset of each partition reaches the end that
// the partition has now, or atLeast if that is more; atLeast may be nil, or shorter than
// partitions. It returns the last stable offsets.
//
// Committed records are visible only below the last stable offset: an open transaction,
// of any program, hides all records behind its first one, and the coordinator writes the
// markers of a committed transaction partition by partition, after it has confirmed the
// commit.
//
// It returns an error when patience is over. It calls meanwhile, unless that is nil,
// after each attempt, with the time that it has waited so far.
func (c *Conn) waitStable(ctx context.Context, topic string, partitions []int32, atLeast []int64, patience time.Duration, meanwhile func(context.Context, time.Duration) error) ([]int64, error) {
	ends, err := c.offsets(ctx, topic, partitions, end)
	if err != nil {
		return nil, err
	}
	for i := range min(len(ends), len(atLeast)) {
		ends[i] = max(ends[i], atLeast[i])
	}
	return c.waitStableUpTo(ctx, topic, partitions, ends, patience, meanwhile)
}

// waitStableUpTo is waitStable for offsets that the caller knows.
func (c *Conn) waitStableUpTo(ctx context.Context, topic string, partitions []int32, to []int64, patience time.Duration, meanwhile func(context.Context, time.Duration) error) ([]int64, error) {
	began := time.Now()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		now, err := c.offsets(ctx, topic, partitions, stable)
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
		if waited >= patience {
			return nil, c.explainUnstable(ctx, topic, partitions[behind], waited)
		}
		if meanwhile != nil {
			if err := meanwhile(ctx, waited); err != nil {
				return nil, err
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// unstableError reports that an open transaction holds a partition back.
type unstableError struct {
	topic     string
	partition int32
	after     time.Duration
	holders   []string
}

func (e *unstableError) Error() string {
	whose := "a transaction that is not ended"
	if len(e.holders) > 0 {
		whose = "a transaction of " + strings.Join(e.holders, ", ")
	}
	return fmt.Sprintf("partition %d of %s is held back by %s for %v or longer; if its program is gone, the cluster aborts it "+
		"at its transaction timeout, or never, if it takes it for ended (CompleteCommit, CompleteAbort, Empty); "+
		"the documentation says how to do it by hand", e.partition, e.topic, whose, e.after.Round(time.Millisecond))
}

// inSyncError reports that a partition takes no records, and so no markers of
// transactions, because too few of its replicas are in sync.
type inSyncError struct {
	topic     string
	partition int32
	has, want int
}

func (e *inSyncError) Error() string {
	return fmt.Sprintf("partition %d of %s has %d replicas in sync, and min.insync.replicas is %d; are brokers down?", e.partition, e.topic, e.has, e.want)
}

// explainUnstable returns the reason why the last stable offset of a partition does not
// advance.
func (c *Conn) explainUnstable(ctx context.Context, topic string, partition int32, after time.Duration) error {
	if d, err := c.describe(ctx, topic); err == nil && int(partition) < len(d.inSync) {
		config, _ := c.config(ctx, topic) // without it the default is assumed
		if want, err := strconv.Atoi(config["min.insync.replicas"]); err == nil && d.inSync[partition] < want {
			return &inSyncError{topic, partition, d.inSync[partition], want}
		}
	}
	return &unstableError{topic, partition, after, c.openTransactions(ctx, topic, partition)}
}

// openTransactions returns the transactional ids, and states, of the transactions that
// are open in a partition. It returns none if the cluster does not tell: that takes Kafka
// 3.0 and the right to ask.
func (c *Conn) openTransactions(ctx context.Context, topic string, partition int32) []string {
	ctx, cancel := c.within(ctx, c.grace())
	defer cancel()
	producers, err := c.admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {partition: {}}})
	if err != nil {
		return nil
	}
	var ids []int64
	for _, p := range producers[topic].Partitions[partition].ActiveProducers {
		if p.CurrentTxnStartOffset >= 0 {
			ids = append(ids, p.ProducerID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	transactions, err := c.admin.ListTransactions(ctx, ids, nil)
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range transactions.Sorted() {
		names = append(names, fmt.Sprintf("%q (%s)", t.TxnID, t.State))
	}
	return names
}
