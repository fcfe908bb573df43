package kafka_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/sinktest"
)

var _ bridge.Stager = (*kafka.Sink)(nil)

var silent = slog.New(slog.DiscardHandler)

// startCluster starts a broker that is spoken to over the wire.
func startCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func connect(t testing.TB, cfg kafka.Config) *kafka.Conn {
	t.Helper()
	c, err := kafka.Connect(t.Context(), cfg, silent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// at is the configuration for a cluster. Its timeout is long for what answers at
// once, and short for what is waited for in vain.
func at(c *kfake.Cluster) kafka.Config {
	return kafka.Config{Brokers: c.ListenAddrs(), Timeout: 3 * time.Second}
}

// admin is a client like Kafka's tools.
func admin(t testing.TB, c *kfake.Cluster, opts ...kgo.Opt) (*kgo.Client, *kadm.Client) {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl, kadm.NewClient(cl)
}

// orders is a topic that is created.
func orders() kafka.Topic {
	return kafka.Topic{Feed: "orders", Name: "shop.orders", Options: kafka.DefaultOptions()}
}

func resume(t testing.TB, s *kafka.Sink) checkpoint.Checkpoint {
	t.Helper()
	cp, err := s.Resume(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

func commit(t testing.TB, s *kafka.Sink, from, to int) {
	t.Helper()
	if err := s.Commit(t.Context(), sinktest.Entities(from, to-from), sinktest.At(to)); err != nil {
		t.Fatal(err)
	}
}

// wantFeed checks that the topic holds the first n entities of the feed.
func wantFeed(t testing.TB, s *kafka.Sink, n int) {
	t.Helper()
	want := sinktest.Entities(0, n)
	i := 0
	for m, err := range s.Messages(t.Context(), 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if i < n && m.Entity.ID != want[i].ID {
			t.Fatalf("entity %d is %s, want %s", i, m.Entity.ID, want[i].ID)
		}
		i++
	}
	if i != n {
		t.Errorf("the topic holds %d entities, want %d", i, n)
	}
}

// wantError checks that err is permanent or not, matches is unless that is nil,
// and has all of the texts.
func wantError(t testing.TB, err error, permanent bool, is error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", texts)
	}
	if got := errors.Is(err, feed.ErrPermanent); got != permanent {
		t.Errorf("permanent is %v, want %v: %v", got, permanent, err)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("error %v does not match %v", err, is)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}

func TestSink(t *testing.T) {
	t.Parallel()
	sinktest.Test(t, func(t *testing.T) sinktest.Topic {
		c := startCluster(t)
		reader := connect(t, at(c)).Sink(orders())
		return sinktest.Topic{
			Open: func() sinktest.Sink { return connect(t, at(c)).Sink(orders()) },
			Read: func(ctx context.Context) iter.Seq2[feed.Entity, error] {
				return func(yield func(feed.Entity, error) bool) {
					for m, err := range reader.Messages(ctx, 0, 0) {
						if !yield(m.Entity, err) {
							return
						}
					}
				}
			},
			MaxEntities: kafka.MaxEntities,
		}
	})
}

func portOf(t testing.TB, c *kfake.Cluster) int {
	t.Helper()
	_, port, err := net.SplitHostPort(c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
