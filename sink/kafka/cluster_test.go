package kafka_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/freeport"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

var _ bridge.Sink = (*kafka.Sink)(nil)

var silent = slog.New(slog.DiscardHandler)

var bus = sinktest.Bus[*kafka.Sink]{Log: func(s *kafka.Sink) sinktest.Log { return settled{s.Log(0)} }}

// Steps and checks of any sink.
var (
	spanOf    = sinktest.Span
	records   = sinktest.Records
	wantError = sinktest.WantError
	wantKnown = sinktest.WantKnown
	wantIDs   = sinktest.WantIDs

	withDead   = sinktest.LastDead
	commitDead = sinktest.CommitLastDead
	marked     = sinktest.Marked
	bodies     = sinktest.Bodies
	wantLog    = sinktest.WantBodies
	wantPart   = sinktest.WantPart

	resume          = bus.Resume
	commit          = bus.Commit
	resumeAndCommit = bus.ResumeAndCommit
	commitAndCheck  = bus.CommitAndCheck
	continueTo      = bus.ContinueTo
	wantCount       = bus.WantCount
	wantFeed        = bus.WantFeed
	commitMarked    = bus.CommitMarked
	wantMarks       = bus.WantMarks
)

// startCluster starts a broker that is spoken to over the wire, in a bubble over the virtual network.
func startCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.ListenFn(listen)}, opts...)...)
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c
}

func connect(t testing.TB, cfg kafka.Config) *kafka.Conn {
	t.Helper()
	return connectLogging(t, cfg, silent)
}

func connectLogging(t testing.TB, cfg kafka.Config, log *slog.Logger) *kafka.Conn {
	t.Helper()
	if isInBubble() {
		if cfg.Compression == kafka.Zstd {
			t.Fatal("zstd cannot be used in a bubble") // see inBubble
		}
		return kafka.ConnectVia(t, cfg, log, dialVirtual)
	}
	c, err := kafka.Connect(t.Context(), cfg, log)
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c
}

// configFor returns the configuration for a cluster. Outside of a bubble its timeout is for a busy
// machine. Tests that wait for a timeout set another one, and run in a bubble.
func configFor(c *kfake.Cluster) kafka.Config {
	if isInBubble() {
		return kafka.Config{Brokers: c.ListenAddrs(), Timeout: 10 * time.Second}
	}
	return kafka.Config{Brokers: c.ListenAddrs(), Timeout: time.Minute, TransactionTimeout: 3 * time.Minute}
}

// configWithin is configFor with a timeout.
func configWithin(c *kfake.Cluster, timeout time.Duration) kafka.Config {
	cfg := configFor(c)
	cfg.Timeout = timeout
	return cfg
}

// admin is a client like Kafka's tools.
func admin(t testing.TB, c *kfake.Cluster, opts ...kgo.Opt) (*kgo.Client, *kadm.Client) {
	t.Helper()
	cl := newClient(t, c.ListenAddrs(), append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	return cl, kadm.NewClient(cl)
}

// newClient returns a client that is closed at the end of the test.
func newClient(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	if isInBubble() {
		opts = append(opts, kgo.Dialer(dialVirtual))
	}
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...))...)
	must.Succeed(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// downgraded starts a broker whose transactions have version 1.
func downgraded(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c := startCluster(t, opts...)
	downgrade(t, c.ListenAddrs()[0])
	return c
}

// downgrade makes transactions have version 1, as before Kafka 4.
func downgrade(t testing.TB, addr string) {
	t.Helper()
	cl := newClient(t, []string{addr})
	update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	update.Feature, update.MaxVersionLevel, update.UpgradeType = "transaction.version", 1, 2
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis, req.FeatureUpdates = 10_000, append(req.FeatureUpdates, update)
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	must.Succeed(t, err)
}

// orders is a topic that is created.
func orders() kafka.Topic {
	return kafka.Topic{Feed: "orders", Name: "shop.orders", Options: kafka.DefaultOptions()}
}

// settled returns a log whose span has all earlier commits. A cluster confirms a commit before
// it has written its markers.
type settled struct{ *kafka.Log }

func (l settled) Span(ctx context.Context) (feed.Span, error) {
	if span, err := l.Log.Span(ctx); err != nil {
		return span, err
	}
	if err := l.Settle(ctx); err != nil {
		return feed.Span{}, err
	}
	return l.Log.Span(ctx)
}

// messages returns the messages of a partition of a sink's topic.
func messages(t testing.TB, s *kafka.Sink, partition int32) []feed.Record {
	t.Helper()
	log := settled{s.Log(partition)}
	return records(t, log.Log, 0, spanOf(t, log).End)
}

func TestSink(t *testing.T) {
	t.Parallel()
	sinktest.TestIn(t, inBubble, func(t *testing.T) sinktest.Topic {
		c, topic := startCluster(t), orders()
		topic.Window, topic.DeadLetters = 50, true
		open := func() *kafka.Sink { return connect(t, configFor(c)).Sink(topic) }
		return sinktest.Topic{
			Open:        func() sinktest.Sink { return open() },
			Log:         settled{connect(t, configFor(c)).Log(topic.Name, 0)},
			DeadLetters: settled{connect(t, configFor(c)).Log(topic.Name+".dead", 0)},
			MaxEntities: kafka.MaxEntities,
			Window:      topic.Window,
		}
	})
}

// freePort returns a port that is reserved, also while its broker is stopped.
func freePort(t testing.TB) int {
	t.Helper()
	if isInBubble() {
		return int(lastVirtualPort.Add(1))
	}
	port, err := freeport.Reserve()
	must.Succeed(t, err)
	return port
}

func until(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing came of it in two minutes")
		}
	}
}
