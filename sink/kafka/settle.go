package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// settle waits until all that partitions of a topic have now is committed or
// aborted, and returns their stable ends. What is committed shows to a reader
// only from then on: a transaction that is under way hides all that lies behind
// its first record, whoever made it, and the markers of one that was committed
// are written partition by partition.
//
// It returns an error when patience is over. meanwhile, if not nil, is called
// now and then with how long it has been.
func (c *Conn) settle(ctx context.Context, topic string, partitions []int32, patience time.Duration, meanwhile func(context.Context, time.Duration) error) ([]int64, error) {
	ends, err := c.offsets(ctx, topic, partitions, end)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		now, err := c.offsets(ctx, topic, partitions, stable)
		if err != nil {
			return nil, err
		}
		behind := 0
		for behind < len(ends) && now[behind] >= ends[behind] {
			behind++
		}
		if behind == len(ends) {
			return now, nil
		}
		took := time.Since(began)
		if took >= patience {
			return nil, &unsettled{topic, partitions[behind], took, c.holders(ctx, topic, partitions[behind])}
		}
		if meanwhile != nil {
			if err := meanwhile(ctx, took); err != nil {
				return nil, err
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// unsettled says that a partition is held back by a transaction.
type unsettled struct {
	topic     string
	partition int32
	after     time.Duration
	holders   []string
}

func (e *unsettled) Error() string {
	whose := "a transaction that is not ended"
	if len(e.holders) > 0 {
		whose = "a transaction of " + strings.Join(e.holders, ", ")
	}
	return fmt.Sprintf("partition %d of %s is held back by %s for %v or longer; if its program is gone, the cluster aborts it "+
		"at its transaction timeout, or never, if it takes it for ended (CompleteCommit, CompleteAbort, Empty); "+
		"the documentation says how to do it by hand", e.partition, e.topic, whose, e.after.Round(time.Millisecond))
}

// holders returns who has a transaction under way in a partition, as far as the
// cluster tells: that takes Kafka 3.0 and the right to ask.
func (c *Conn) holders(ctx context.Context, topic string, partition int32) []string {
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

// A watch is kept on a sink's own transactional ids while it waits: a copy that
// died within a transaction leaves it open, and nobody but its successor ends it
// before its timeout.
type watch struct {
	sink *Sink
	next time.Duration // when to look
	seen [2]seen       // of each writer
}

// seen is what was under way.
type seen struct {
	*kadm.DescribedTransaction
	since time.Duration
	ended bool // by this sink
}

func (s *Sink) watch() *watch { return &watch{sink: s, next: s.conn.grace() / 2} }

// look ends the transactions under the sink's transactional ids once they have
// stood open for the time of grace. It leaves a living copy alone, which has ended
// them by then or is at others.
func (w *watch) look(ctx context.Context, took time.Duration) error {
	if took < w.next {
		return nil
	}
	w.next = took + w.sink.conn.grace()/2
	if w.sink.cure != nil {
		return w.sink.goOnCuring(ctx)
	}
	for i := range w.seen {
		if err := w.lookAt(ctx, &w.sink.writers[i], &w.seen[i], took); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) lookAt(ctx context.Context, of *writer, before *seen, took time.Duration) error {
	s := w.sink
	now, err := s.transaction(ctx, of)
	switch {
	case err != nil, before.ended:
		// The cluster does not tell, or not now. A copy may be alive, and what
		// holds the partition back another's: the cluster ends it in time.
	case now.State != "Ongoing":
		// What is open is someone else's, or hangs.
		*before = seen{}
		return s.finish(ctx, of, now)
	case before.DescribedTransaction == nil || before.StartTimestamp != now.StartTimestamp || before.ProducerEpoch != now.ProducerEpoch:
		*before = seen{now, took, false}
	case took-before.since >= s.conn.grace():
		before.ended = true
		s.conn.log.Warn("ending a transaction that was left open", "transactional_id", of.id)
		s.close()
		return s.conn.endTransaction(ctx, of.id)
	}
	return nil
}

// transaction returns how a writer's transactional id stands.
func (s *Sink) transaction(ctx context.Context, w *writer) (*kadm.DescribedTransaction, error) {
	ctx, cancel := s.conn.within(ctx, s.conn.grace())
	defer cancel()
	all, err := s.conn.admin.DescribeTransactions(ctx, w.id)
	if err != nil {
		return nil, err
	}
	t, ok := all[w.id]
	if !ok {
		return nil, errors.New("the cluster says nothing about the transactional id")
	}
	if t.Err != nil {
		return nil, t.Err
	}
	return &t, nil
}
