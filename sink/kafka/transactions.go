package kafka

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// newProducer returns a client that commits under a transactional id. It does
// nothing yet.
func (c *Conn) newProducer(transactionalID string, batch int32, hooks ...kgo.Hook) (*kgo.Client, error) {
	opts := append(append([]kgo.Opt{}, c.opts...),
		kgo.WithHooks(hooks...),
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

// connections counts how often a client has got or lost a connection to a broker. A broker
// that comes back without its newest records was restarted, or is another one.
type connections struct{ changes atomic.Int64 }

func (c *connections) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	c.changes.Add(1)
}

func (c *connections) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { c.changes.Add(1) }

// initProducerID initializes the transactional id of p. The coordinator answers when the
// transaction that was open under the id is aborted, or ended as its producer has asked. From
// then on no other producer can commit with the id.
func initProducerID(ctx context.Context, p *kgo.Client) error {
	id, _, err := p.ProducerID(ctx)
	if err != nil {
		return err
	}
	if id < 0 {
		// franz-go goes on without one if the brokers do not know the request.
		return errNoProducerID
	}
	return nil
}

var errNoProducerID = errors.New("the cluster gave no producer id")

// transactionalID is that of a feed's sinks, in all processes.
func (c *Conn) transactionalID(topic, feedName string) string {
	return c.cfg.TransactionalIDPrefix + topic + "/" + feedName
}

// endTransaction aborts the transaction that is open under a transactional id.
func (c *Conn) endTransaction(ctx context.Context, transactionalID string) error {
	p, err := c.newProducer(transactionalID, defaultBatch)
	if err != nil {
		return err
	}
	defer c.closeProducer(p)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return causeOf(ctx, initProducerID(ctx, p))
}

// close closes the producer. The next commit takes over again.
func (s *Sink) close() {
	if s.producer != nil {
		s.conn.closeProducer(s.producer)
		s.producer = nil
	}
}

// abandon closes the producer after an error, and first aborts its transaction if it
// still can: an open one hides what all others write to the same partitions, until its
// timeout.
//
// It does not decide whether a commit took place: if it did, this changes nothing; if the
// request is still under way, the cluster refuses it.
func (s *Sink) abandon(ctx context.Context, why error) {
	if s.producer == nil {
		return
	}
	if !isFenced(why) {
		s.abort(ctx)
	}
	s.close()
}

// abort aborts the transaction by initializing the transactional id, in all versions of
// transactions. In version 1 the markers of what a producer aborts itself have its own
// epoch. A broker before 3.6 takes records of that epoch which arrive later, and the next
// commit with the id would publish them. Initializing the id aborts with the next epoch, so
// late records are refused.
//
// It does nothing if the transaction has ended, for it may hang (see hungTransaction), or if
// another copy has the id, where the cluster tells. What is unknown now the next Resume finds
// out.
func (s *Sink) abort(ctx context.Context) {
	ctx, cancel := s.conn.within(context.WithoutCancel(ctx), s.conn.grace())
	defer cancel()
	s.producer.Close()
	if s.conn.tells.Load() {
		now, err := s.conn.transaction(ctx, s.transactionalID)
		if _, epoch, _ := s.producer.ProducerID(ctx); err != nil || now.State != "Ongoing" || now.ProducerEpoch != epoch {
			return
		}
	}
	_ = s.conn.endTransaction(ctx, s.transactionalID)
}

// largestRequest is the largest batch that franz-go makes, in bytes.
const largestRequest = 64 << 20

// largestBatch is what the topic takes, within what franz-go does.
func (s *Sink) largestBatch() int32 { return int32(min(max(s.limit.Load(), 512), largestRequest)) }

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
