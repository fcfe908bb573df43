package kafka

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The ends of a topic with very many partitions leave room for the checkpoint.
func TestEndsOfManyPartitions(t *testing.T) {
	t.Parallel()
	conn, err := Connect(t.Context(), Config{Brokers: []string{"127.0.0.1:1"}}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	s := &conn.Sink(Topic{Feed: "orders", Name: "shop.orders"}).checkpoints
	ends := make([]int64, 100_000)
	for i := range ends {
		ends[i] = int64(1_000_000_000 + i)
	}
	r := s.checkpointRecord(checkpoint.Checkpoint{Feed: "orders"}, storedCheckpoint{topic: topicEnds{kadm.TopicID{1}.String(), ends}})
	text := string(r.Headers[1].Value)
	if len(text) > 1<<17 || len(text) < 1<<16 {
		t.Errorf("the header of the ends has %d bytes, want no more than %d", len(text), 1<<17)
	}
	if got := parseEnds(text); len(got) == 0 || !slices.Equal(got, ends[:len(got)]) {
		t.Errorf("%d ends are read back, want a prefix", len(got))
	}
}
