package kafka

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Log returns a partition of the sink's topic to be read back.
func (s *Sink) Log(partition int32) *Log { return newLog(s.client, s.topic.Name, partition) }

// PartitionOf returns the partition, of n, of a message with a key.
func PartitionOf(key string, n int) int32 {
	return int32(partitioner("feedbridge.checkpoints").ForTopic("shop.orders").Partition(&kgo.Record{Key: []byte(key)}, n))
}

// Kept returns how many records are kept for a reader that continues where the last Read ended.
func (l *Log) Kept() int { return len(l.keptRecords()) }

// KeptBytes returns how many bytes are held with them.
func (l *Log) KeptBytes() (n int) {
	for _, k := range l.keptRecords() {
		n += len(k.Body)
		for _, h := range k.Header {
			n += len(h.Value)
		}
	}
	return n
}

func (l *Log) keptRecords() (records []feed.Record) {
	l.kept.Take(func(r leftover) bool {
		records = r.records
		return false
	})
	return records
}

// Look looks at the topics of all sinks once.
func (c *Conn) Look(ctx context.Context) { c.watch.lookAtTopics(ctx) }

// LookEvery sets the interval of looks.
func (c *Conn) LookEvery(d time.Duration) { c.watch.lookEvery = d }

// CountConsumer makes the watch take its consumer for another one.
func (c *Conn) CountConsumer() { c.watch.consumers.Add(1) }

// WatchesCheckpoints reports whether the commits of other copies are seen at present.
func (c *Conn) WatchesCheckpoints() bool {
	return c.watch.working.Load() && !c.client.reconnects.anyUnreachable()
}

// Producers returns how many clients c has that commit.
func (c *Conn) Producers() int {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	return len(c.client.producers)
}

// Settle waits until all that the partition has now is committed or aborted.
func (l *Log) Settle(ctx context.Context) error {
	_, err := stableWait{l.client, l.topic, []int32{l.partition}, l.client.cfg.Timeout, nil}.toEnd(ctx, nil)
	return err
}

// KeyOf returns an entity's key.
func (s *Sink) KeyOf(t testing.TB, e feed.Entity) string {
	t.Helper()
	key, err := s.records.entityKey(e)
	must.Succeed(t, err)
	return string(key)
}

// Doubt makes s not know whether its last commit is ended.
func (s *Sink) Doubt() { s.hung.last = kadm.Offsets{"missing": {0: {}}} }

// AwaitEnd waits until the last commit of s is ended.
func (s *Sink) AwaitEnd(t testing.TB) {
	t.Helper()
	if _, err := s.hung.awaitEnd(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// StoredEnds returns the ends of the topic that the newest checkpoint has.
func (s *Sink) StoredEnds(t testing.TB) []int64 {
	t.Helper()
	last, err := s.readCheckpoint(t.Context())
	must.Succeed(t, err)
	return last.topic.ends
}

// ConnectVia is [Connect] with a function that makes the connections to the brokers.
func ConnectVia(t testing.TB, cfg Config, log *slog.Logger, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Conn {
	t.Helper()
	conn, err := Connect(t.Context(), cfg, log)
	must.Succeed(t, err)
	c := conn.client
	c.kgo.Close()
	c.opts = append(c.opts, kgo.Dialer(dial))
	if c.kgo, err = kgo.NewClient(c.opts...); err != nil {
		t.Fatal(err)
	}
	c.admin = kadm.NewClient(c.kgo)
	t.Cleanup(conn.Close)
	return conn
}

// CheckpointPartitions is how many partitions a checkpoint topic is created with.
const CheckpointPartitions = checkpointPartitions
