package kafka

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/feed"
)

// Log returns a partition of the sink's topic to be read back.
func (s *Sink) Log(partition int32) *Log { return newLog(s.client, s.topic.Name, partition) }

// Kept returns how many records are kept for a reader that continues where the last Read ended.
func (l *Log) Kept() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rest.records)
}

// KeptBytes returns how many bytes are held with them.
func (l *Log) KeptBytes() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.rest.records {
		n += len(k.Value)
		for _, h := range k.Headers {
			n += len(h.Value)
		}
	}
	return n
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
	if err != nil {
		t.Fatal(err)
	}
	return string(key)
}

// Doubt makes s not know whether its last commit is ended.
func (s *Sink) Doubt() { s.hung.last = kadm.Offsets{"missing": {0: {}}} }

// AwaitEnd waits until the last commit of s is ended.
func (s *Sink) AwaitEnd(t testing.TB) {
	t.Helper()
	if err := s.hung.awaitEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// StoredEnds returns the ends of the topic that the newest checkpoint has.
func (s *Sink) StoredEnds(t testing.TB) []int64 {
	t.Helper()
	last, err := s.readCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return last.ends
}
