package kafka

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// client sends requests to a Kafka cluster. All sinks and logs of a [Conn] share it. It reads
// and administers with one kgo client. Each sink that commits has another one.
type client struct {
	*diagnosis
	cfg  Config
	log  *slog.Logger
	opts []kgo.Opt // of every kgo client

	kgo   *kgo.Client
	admin *kadm.Client
	// reconnects outlives outages; stop ends its probing.
	reconnects *reconnects
	stop       context.CancelFunc
	// decompressor is shared by all fetches.
	decompressor kgo.Decompressor

	// Properties of the cluster, set by checkVersions: it reports the state of a transaction
	// (Kafka 3.0), its transactions are of version 2 (KIP-890), and they may hang (Kafka 4.0;
	// see hungTransaction).
	reportsState, transactions2, mayHang atomic.Bool

	mu        sync.Mutex
	producers map[*kgo.Client]bool // those that are open
}

// newClient returns a client. It connects when it sends the first request.
func newClient(cfg Config, log *slog.Logger) (*client, error) {
	opts, err := cfg.options(log)
	if err != nil {
		return nil, err
	}
	c := &client{diagnosis: newDiagnosis(cfg, log), cfg: cfg, log: log, producers: map[*kgo.Client]bool{}, decompressor: kgo.DefaultDecompressor()}
	lifetime, stop := context.WithCancel(context.Background())
	c.reconnects, c.stop = newReconnects(lifetime, c.ping), stop
	c.opts = append(opts, kgo.WithHooks(c.diagnosis, c.reconnects))
	if c.kgo, err = kgo.NewClient(c.opts...); err != nil {
		stop()
		return nil, err
	}
	c.admin = kadm.NewClient(c.kgo)
	return c, nil
}

// close closes all connections. Requests that are under way fail.
func (c *client) close() {
	c.mu.Lock()
	c.closed.Store(true)
	c.stop()
	producers := slices.Collect(maps.Keys(c.producers))
	c.mu.Unlock()
	for _, p := range producers {
		p.Close()
	}
	c.kgo.Close()
}

// graceTime returns how long a transaction may hold a partition back before it is aborted: a
// copy that is alive has ended it by then.
func (c *client) graceTime() time.Duration { return c.cfg.Timeout / 5 }

// withRequestTimeout returns ctx with the configured timeout, for one request.
func (c *client) withRequestTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.withTimeout(ctx, c.cfg.Timeout)
}

func (c *client) withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, &silence{c.brokers, d})
}

// ping returns nil if a broker answers and takes the credentials; see [reconnects].
func (c *client) ping(ctx context.Context, broker int32) error {
	_, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.kgo.Broker(int(broker)))
	switch {
	case err == nil:
		return nil
	case err.Error() == "unknown broker": // kgo does not export it
		return errGone
	}
	return c.explainError(ctx, err)
}

// needed is the lowest version of InitProducerID: from it on a producer that renews its id is refused if another
// has taken it meanwhile (KIP-360). Before, it would fence its successor. Kafka minRelease has it, and all other
// requests that this package needs.
const needed = 3

// checkVersions returns an error if a broker is too old, and records which features it
// supports.
func (c *client) checkVersions(ctx context.Context) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.kgo)
	if err != nil {
		return err
	}
	most := map[int16]int16{}
	for _, k := range resp.ApiKeys {
		most[k.ApiKey] = k.MaxVersion
	}
	if most[kmsg.InitProducerID.Int16()] < needed {
		return errTooOld(c.brokers)
	}
	_, reports := most[kmsg.DescribeTransactions.Int16()]
	c.reportsState.Store(reports)
	c.mayHang.Store(slices.ContainsFunc(resp.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool {
		return f.Name == "transaction.version" && f.MaxVersion >= 2
	}))
	c.transactions2.Store(slices.ContainsFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
		return f.Name == "transaction.version" && f.MaxVersionLevel >= 2
	}))
	return nil
}

// newProducer returns a kgo client that commits under a transactional id. It does
// nothing yet.
func (c *client) newProducer(transactionalID string, batch int32, hooks ...kgo.Hook) (*kgo.Client, error) {
	opts := append(append([]kgo.Opt{}, c.opts...),
		kgo.WithHooks(hooks...),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(c.cfg.TransactionTimeout),
		// The records of a commit go out when it flushes, or as batches get full. If they were
		// sent after a short linger, a busy machine would have several batches of a partition
		// in flight, and a broker that receives them in another order refuses the commit.
		kgo.ProducerLinger(time.Second),
		kgo.RecordPartitioner(partitioner(c.cfg.Checkpoints)),
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
	if c.closed.Load() {
		return nil, kgo.ErrClientClosed
	}
	p, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	c.producers[p] = true
	return p, nil
}

// defaultBatch is the largest batch that Kafka accepts by default, in bytes, rounded down.
const defaultBatch = 1_000_000

func (c *client) closeProducer(p *kgo.Client) {
	p.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.producers, p)
}

// idleTime returns how long a producer may be idle.
func (c *client) idleTime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.producers) > fewProducers {
		return crowdedIdle
	}
	return producerIdle
}

// partitioner places a record with a key where the Java client does, and any other in the
// partition that it names. So are the records of the checkpoint topic, which have keys.
func partitioner(checkpoints string) kgo.Partitioner {
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		byKey := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Key == nil || topic == checkpoints {
				return int(r.Partition)
			}
			return byKey.Partition(r, n)
		}
	})
}

// partitionOf returns the partition of n that a key belongs to.
func partitionOf(key string, n int) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, n))
}
