package serve

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/sink/kafka"
)

var _ Log = (*kafka.Log)(nil)

// startKafka starts a broker, and a connection to it.
func startKafka(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *kafka.Conn) {
	t.Helper()
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	conn, err := kafka.Connect(t.Context(), kafka.Config{Brokers: cluster.ListenAddrs(), Timeout: 5 * time.Second}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return cluster, conn
}

// A topic of Kafka has markers between its messages, messages that were never
// committed, and tombstones.
func TestTopicOfKafka(t *testing.T) {
	t.Parallel()
	cluster, conn := startKafka(t, kfake.SeedTopics(1, "shop.orders"))
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("shop.orders"), kgo.TransactionalID("shop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)

	f, err := New(Config{Name: "orders", PageSize: 4}, conn.Log("shop.orders", 0))
	if err != nil {
		t.Fatal(err)
	}
	f.testOnlyIdle = true
	s := &served{Feed: f}
	s.get(t, "/latest").want(t, 204)
	want := ""
	for n := range 10 {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			r := kgo.Record{Value: fmt.Appendf(nil, "%d", 2*n+i), Headers: []kgo.RecordHeader{{Key: "Content-ID", Value: fmt.Appendf(nil, "m%d@x", 2*n+i)}}}
			if n == 9 && i == 1 {
				r.Value = nil
			}
			if err := producer.ProduceSync(t.Context(), &r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		commit := n%3 != 1
		if err := producer.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
			t.Fatal(err)
		}
		if commit {
			want += fmt.Sprintf(" m%d m%d", 2*n, 2*n+1)
		}
		got := ""
		for _, g := range s.pages(t) {
			got += " " + g.ids()
		}
		if got != want {
			t.Fatalf("got%s, want%s", got, want)
		}
	}
	if newest := s.get(t, "/latest"); strings.Count(newest.body, "http-equiv=DELETE") != 1 {
		t.Errorf("the tombstone is no DELETE: %s", newest.body)
	}
}
