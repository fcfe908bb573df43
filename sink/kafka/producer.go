package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// newProducer returns a client that commits under a transactional id. It does
// nothing yet.
func (c *Conn) newProducer(transactionalID string, batch int32) (*kgo.Client, error) {
	opts := append(append([]kgo.Opt{}, c.opts...),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(c.cfg.TransactionTimeout),
		// The records of a commit go out when it flushes, or as batches get full. If
		// they went on their own as time passes, a busy machine would have several
		// batches of a partition on their way, and a broker that takes them in
		// another order refuses the commit.
		kgo.ProducerLinger(time.Second),
		kgo.RecordPartitioner(partitioner{c.cfg.Checkpoints}),
		kgo.ProducerBatchCompression(c.cfg.Compression.codecs()...),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if topic == c.cfg.Checkpoints || topic == "" {
				return defaultBatch
			}
			return batch
		}),
		// Without these a record waits for ever for a broker that is gone.
		kgo.ProduceRequestTimeout(c.cfg.Timeout),
		kgo.RecordDeliveryTimeout(c.cfg.Timeout),
		// How soon to ask again while the cluster still writes the markers of
		// the transaction before.
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
	)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, kgo.ErrClientClosed
	}
	p, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	c.producers[p] = true
	return p, nil
}

// defaultBatch is the largest batch that Kafka takes unless told otherwise, with
// something to spare.
const defaultBatch = 1_000_000

func (c *Conn) closeProducer(p *kgo.Client) {
	p.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.producers, p)
}

// begin takes the transactional id: what any other producer has under way with
// it is aborted, and none of them can commit from then on.
func begin(ctx context.Context, p *kgo.Client) error {
	id, _, err := p.ProducerID(ctx)
	if err != nil {
		return err
	}
	if id < 0 {
		// franz-go goes on without, if the brokers know of none.
		return errNoProducerID
	}
	return nil
}

var errNoProducerID = errors.New("the cluster gave no producer id")

// A writer is a transactional id, and what this sink has committed with it. A sink
// has two and commits with them by turns, so that a commit need not wait until the
// cluster has written the markers of the one before.
type writer struct {
	id       string
	producer *kgo.Client // nil unless the sink is open
	// last is where the last commit wrote, nil before the first, and over whether it
	// is known to be over there; nil if nobody was asked.
	last []spot
	over <-chan bool
}

// transactionalIDs are those of the writers of a feed's sinks.
func (c *Conn) transactionalIDs(topic, feedName string) [2]string {
	id := c.cfg.TransactionalIDPrefix + topic + "/" + feedName
	return [2]string{id, id + "/2"}
}

func (c *Conn) endTransaction(ctx context.Context, transactionalID string) error {
	p, err := c.newProducer(transactionalID, defaultBatch)
	if err != nil {
		return err
	}
	defer c.closeProducer(p)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return causeOf(ctx, begin(ctx, p))
}

// close closes the producers.
func (s *Sink) close() {
	for i := range s.writers {
		if w := &s.writers[i]; w.producer != nil {
			s.conn.closeProducer(w.producer)
			w.producer = nil
		}
	}
	s.open = false
}

// abandon closes the producers after an error, and first aborts what is under way
// if it still can: an open transaction hides what all others write to the same
// partitions, until its timeout.
//
// That is of no use for knowing what became of a commit. If it took place, this
// changes nothing; if it has yet to arrive, it is refused.
func (s *Sink) abandon(ctx context.Context, why error) {
	if !s.open {
		return
	}
	if !errors.Is(why, checkpoint.ErrConflict) {
		s.abort(ctx, &s.writers[s.turn])
	}
	s.close()
}

func (s *Sink) abort(ctx context.Context, w *writer) {
	ctx, cancel := s.conn.within(context.WithoutCancel(ctx), s.conn.grace())
	defer cancel()
	var now *kadm.DescribedTransaction // nil if the cluster does not tell
	if s.conn.tells.Load() {
		// One that has ended may hang. To abort what is none any more franz-go
		// takes the transactional id anew: see takeOver. What cannot be told now
		// the next Resume will see.
		var err error
		if now, err = s.transaction(ctx, w); err != nil || now.State != "Ongoing" {
			return
		}
	}
	if s.conn.transactions2.Load() {
		if w.producer.AbortBufferedRecords(ctx) == nil {
			_ = w.producer.EndTransaction(ctx, kgo.TryAbort)
		}
		return
	}
	// In version 1 the markers of what a producer aborts itself have its own epoch. A
	// broker before 3.6 takes records of that epoch which arrive later, and the next
	// commit with the id would publish them. The markers of what is aborted by taking
	// the id have the next epoch, and late records are refused. It is not taken from
	// another copy that has a transaction under way, where the cluster tells.
	w.producer.Close()
	if _, epoch, _ := w.producer.ProducerID(ctx); now == nil || now.ProducerEpoch == epoch {
		_ = s.conn.endTransaction(ctx, w.id)
	}
}

// takeOver makes the producers. From its success on the newest checkpoint is the
// one that it has resumed from, and nobody else can commit before this sink has, or
// has failed to: see the package comment for why the first writer must be the first
// to commit.
func (s *Sink) takeOver(ctx context.Context) error {
	// A stale writer finds out here, without disturbing anyone. A commit that
	// is under way is worth waiting for: it will make this one stale. One that
	// does not end is for Resume, which sees whether it hangs: taking the id
	// would make the cluster forget how it ended.
	if err := s.compare(ctx, s.conn.grace(), true); err != nil {
		return err
	}
	return s.take(ctx, s.largestBatch(), true)
}

// largestRequest is the largest batch that franz-go makes, in bytes.
const largestRequest = 64 << 20

// largestBatch is what the topic takes, within what franz-go does.
func (s *Sink) largestBatch() int32 { return int32(min(max(s.limit.Load(), 512), largestRequest)) }

// take opens the sink: it takes the transactional ids in their order, which fences
// all others off, and looks once more at what they have left. It minds other feeds'
// checkpoints if alone says so.
func (s *Sink) take(ctx context.Context, batch int32, alone bool) error {
	s.open, s.turn, s.batch = true, 0, batch
	err := s.takeAll(ctx)
	if err == nil {
		err = s.settled(ctx)
	}
	if err == nil {
		// All that the predecessor has committed is in the log by now, but not to
		// be seen behind another feed's transaction.
		err = s.compare(ctx, s.conn.cfg.Timeout, alone)
	}
	if err != nil {
		s.close()
	}
	return err
}

func (s *Sink) takeAll(ctx context.Context) error {
	for i := range s.writers {
		w := &s.writers[i]
		p, err := s.conn.newProducer(w.id, s.batch)
		if err != nil {
			return err
		}
		w.producer, w.over = p, nil
		bounded, cancel := s.conn.bounded(ctx)
		err = causeOf(bounded, begin(bounded, p))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// settled returns an error unless all that the topic has now gets committed or
// aborted. What was aborted when the ids were taken may hang, and the next commit in
// the same partitions would commit it.
func (s *Sink) settled(ctx context.Context) error {
	d, err := s.conn.describe(ctx, s.topic.Name)
	switch {
	case missing(err):
		return nil // the commit will say so, unless it has no entities
	case err != nil:
		return err
	}
	_, err = s.conn.settle(ctx, d.name, d.partitions(), s.conn.cfg.Timeout, nil)
	return err
}

// compare returns [checkpoint.ErrConflict] unless the newest checkpoint is the
// one that this sink has seen.
func (s *Sink) compare(ctx context.Context, patience time.Duration, alone bool) error {
	c := s.conn
	at, err := c.store.find(ctx, s.topic, false)
	if err != nil {
		return err
	}
	if at != s.place {
		return fmt.Errorf("topic %q for checkpoints is another one since the sink resumed", c.cfg.Checkpoints)
	}
	feeds, err := s.feeds(ctx, at, patience, nil)
	if err != nil {
		return err
	}
	now := int64(-1)
	if last, ok := feeds[s.topic.Feed]; ok {
		now = last.offset
	}
	if now != s.fence {
		return fmt.Errorf("%w: the newest checkpoint has offset %d, not %d", checkpoint.ErrConflict, now, s.fence)
	}
	if !alone {
		return nil
	}
	return s.foreign(feeds)
}

// partitioner places a record with a key where the Java client does, and any
// other where it says itself.
type partitioner struct{ checkpoints string }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	if topic == p.checkpoints {
		return fixed{}
	}
	return keyed{kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type fixed struct{}

func (fixed) RequiresConsistency(*kgo.Record) bool { return true }
func (fixed) Partition(r *kgo.Record, n int) int   { return int(r.Partition) }

type keyed struct{ murmur2 kgo.TopicPartitioner }

func (keyed) RequiresConsistency(*kgo.Record) bool { return true }

func (k keyed) Partition(r *kgo.Record, n int) int {
	if r.Key == nil {
		return int(r.Partition)
	}
	return k.murmur2.Partition(r, n)
}

// partitionOf returns the partition of n that a key belongs to.
func partitionOf(key string, n int) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, n))
}
