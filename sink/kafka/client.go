package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/feed"
)

// minAge is how old what a client knows of topics may be at least before it asks
// again after a broker has said that it is wrong.
const minAge = 250 * time.Millisecond

// Conn is how to reach a Kafka cluster, for as long as it is not closed. Any
// number of sinks share it. It reads and administers by one client of its own;
// each sink that commits has another.
type Conn struct {
	cfg     Config
	brokers string // for errors and logs
	log     *slog.Logger
	opts    []kgo.Opt // what every client has

	client      *kgo.Client
	admin       *kadm.Client
	checkpoints *checkpointTopic
	// reconnects outlives outages; stop ends its probing.
	reconnects *reconnects
	stop       context.CancelFunc
	// decompressor is what fetches by hand share.
	decompressor kgo.Decompressor

	// refused says that a broker has hung up on the credentials, which is how
	// some of them refuse, and that none has taken them since.
	refused atomic.Bool
	// What the cluster was found to have: it tells the state of a transaction (Kafka 3.0),
	// its transactions are of version 2 (KIP-890), and they may hang (Kafka 4.0; see
	// hungTransaction).
	tells, transactions2, mayHang atomic.Bool

	mu sync.Mutex
	// down is why the newest attempt to connect to a broker failed, nil if it
	// did not.
	down      error
	closed    bool
	producers map[*kgo.Client]bool // those that are open
}

// Connect makes a connection to the cluster that cfg names. That no broker
// answers, or that one refuses, is no error: [Conn.Check] and the sinks say what
// is wrong. Errors are for what no retry cures, such as a file that cannot be
// read, and match [feed.ErrPermanent].
func Connect(ctx context.Context, cfg Config, log *slog.Logger) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if errs := cfg.Validate(); len(errs) > 0 {
		return nil, feed.Permanent(fmt.Errorf("kafka: %w", errors.Join(errs...)))
	}
	cfg = cfg.withDefaults()
	c := &Conn{cfg: cfg, brokers: strings.Join(cfg.Brokers, ", "), log: log, producers: map[*kgo.Client]bool{}, decompressor: kgo.DefaultDecompressor()}
	c.checkpoints = newCheckpointTopic(c)
	var err error
	if c.opts, err = cfg.options(log); err != nil {
		return nil, feed.Permanent(fmt.Errorf("kafka: %w", err))
	}
	lifetime, stop := context.WithCancel(context.Background())
	c.reconnects, c.stop = newReconnects(lifetime, c.ping), stop
	c.opts = append(c.opts, kgo.WithHooks(hooks{c}))
	if c.client, err = kgo.NewClient(c.opts...); err != nil {
		return nil, feed.Permanent(fmt.Errorf("kafka: %w", err))
	}
	c.admin = kadm.NewClient(c.client)
	return c, nil
}

// hooks hear of connections.
type hooks struct{ conn *Conn }

// OnBrokerConnect is called when a connection is ready for use, or is not to be.
func (h hooks) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// The time for it was over, which says nothing about the broker.
		return
	}
	if err != nil {
		h.conn.reconnects.suspect(meta.NodeID, true)
	}
	h.conn.mu.Lock()
	defer h.conn.mu.Unlock()
	h.conn.down = err
	if err == nil {
		h.conn.refused.Store(false)
	}
}

// OnBrokerRead is called for every answer.
func (h hooks) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == kmsg.SASLAuthenticate.Int16() && errors.Is(err, io.EOF) {
		h.conn.refused.Store(true)
	}
}

func (c *Conn) lastDown() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

// Close closes the connection. What the sinks have under way fails.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	c.stop()
	producers := slices.Collect(maps.Keys(c.producers))
	c.mu.Unlock()
	for _, p := range producers {
		p.Close()
	}
	c.client.Close()
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// grace is how long a transaction that holds a partition back is left alone: a
// living copy is done by then.
func (c *Conn) grace() time.Duration { return c.cfg.Timeout / 5 }

// bounded is ctx for one request.
func (c *Conn) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.within(ctx, c.cfg.Timeout)
}

func (c *Conn) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, &silence{c.brokers, d})
}

// silence says that nothing came in time.
type silence struct {
	brokers string
	after   time.Duration
}

func (e *silence) Error() string {
	return fmt.Sprintf("no answer from Kafka at %s within %v", e.brokers, e.after)
}

// Check returns an error unless a broker answers, takes the credentials, and is
// new enough.
func (c *Conn) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	// Ping tells a refusal from silence: a request tries on for a while, and
	// may end in the latter.
	if err := c.client.Ping(ctx); err != nil {
		return c.explain(ctx, err)
	}
	if err := c.checkVersions(ctx); err != nil {
		return c.explain(ctx, err)
	}
	return nil
}

// needs are the requests without which this package cannot work, and from which
// version on.
var needs = []struct {
	key     kmsg.Key
	version int16
}{
	// Fetch 4 and ListOffsets 2 know transactions; Produce 3 has headers.
	{kmsg.Produce, 3},
	{kmsg.Fetch, 4},
	{kmsg.ListOffsets, 2},
	{kmsg.AddPartitionsToTxn, 0},
	{kmsg.EndTxn, 0},
	// From 3 on a producer that renews its id is refused if another has taken
	// it meanwhile (KIP-360). Before, it would fence its successor.
	{kmsg.InitProducerID, 3},
}

// checkVersions returns an error if a broker is too old.
func (c *Conn) checkVersions(ctx context.Context) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	most := map[int16]int16{}
	for _, k := range resp.ApiKeys {
		most[k.ApiKey] = k.MaxVersion
	}
	for _, need := range needs {
		if v, ok := most[need.key.Int16()]; !ok || v < need.version {
			return c.errTooOld()
		}
	}
	_, tells := most[kmsg.DescribeTransactions.Int16()]
	c.tells.Store(tells)
	c.mayHang.Store(slices.ContainsFunc(resp.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool {
		return f.Name == "transaction.version" && f.MaxVersion >= 2
	}))
	c.transactions2.Store(slices.ContainsFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
		return f.Name == "transaction.version" && f.MaxVersionLevel >= 2
	}))
	return nil
}

func (c *Conn) errTooOld() error {
	return feed.Permanent(fmt.Errorf("the Kafka cluster at %s is too old: feedbridge needs transactions as Kafka has them from 2.5 on; upgrade it", c.brokers))
}
