package serve

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

var _ Log = (*kafka.Log)(nil)

// startKafka starts a broker, and a connection to it.
func startKafka(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *kafka.Conn) {
	t.Helper()
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	must.Succeed(t, err)
	t.Cleanup(cluster.Close)
	conn, err := kafka.Connect(t.Context(), kafka.Config{Brokers: cluster.ListenAddrs(), Timeout: time.Minute, TransactionTimeout: 3 * time.Minute}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return cluster, conn
}

// A topic of Kafka has markers between its messages, messages that were never
// committed, and tombstones.
func TestTopicOfKafka(t *testing.T) {
	t.Parallel()
	cluster, conn := startKafka(t, kfake.SeedTopics(1, "shop.orders"))
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("shop.orders"), kgo.TransactionalID("shop"))
	must.Succeed(t, err)
	t.Cleanup(producer.Close)

	f, err := New(Config{Name: "orders", PageSize: 4}, conn.Log("shop.orders", 0))
	must.Succeed(t, err)
	f.builder.ahead = 0
	s := &served{Feed: f}
	s.get(t, "/latest").want(t, 204)
	want := ""
	for n := range 10 {
		must.Succeed(t, producer.BeginTransaction())
		for i := range 2 {
			r := kgo.Record{Value: fmt.Appendf(nil, "%d", 2*n+i), Headers: []kgo.RecordHeader{{Key: "Content-ID", Value: fmt.Appendf(nil, "m%d@x", 2*n+i)}}}
			if n == 9 && i == 1 {
				r.Value = nil
			}
			must.Succeed(t, producer.ProduceSync(t.Context(), &r).FirstErr())
		}
		commit := n%3 != 1
		must.Succeed(t, producer.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)))
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

// Only the record key shows which record a tombstone deletes. A snapshot does not have the
// key. Readers of the feed get it in Message-Key.
func TestTombstonesOfKafka(t *testing.T) {
	t.Parallel()
	cluster, conn := startKafka(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	must.Succeed(t, err)
	t.Cleanup(client.Close)
	for name, test := range map[string]struct {
		records []kgo.Record
		key     kafka.Key
		want    string // the bodies of the snapshot
		names   string // the Message-Keys of the feed
	}{
		"by a key that is the record's, too": {
			[]kgo.Record{record("a", `{"id":"a"}`), record("b", `{"id":"b"}`), record("a", ""), record("b", `{"id":"b","n":2}`)},
			"/id",
			`{"id":"b","n":2}`, "a b a b z",
		},
		"by another than the record's": {
			[]kgo.Record{record("{1}", `{"id":"a"}`), record("{2}", `{"id":"b"}`), record("{1}", ""), record("{3}", "")},
			"/id",
			`{"id":"b"}`, "{1} {2} {1} {3} z",
		},
		"by none": {
			[]kgo.Record{record("a", "a1"), record("b", "b1"), record("a", "a2"), record("a", ""), record("b", "b2")},
			"",
			"b1 b2", "a b a a b z",
		},
		"by none, and a Content-ID that is blank": {
			[]kgo.Record{record("a", "a1"), record("b", "b1"), {Key: []byte("a"), Headers: []kgo.RecordHeader{{Key: "Content-ID", Value: []byte(" ")}}}},
			"",
			"b1", "a b a z",
		},
		"by the record's, whatever the bodies are": {
			[]kgo.Record{record("\x00a", "\xff1"), record("b", "\xff2"), record("\x00a", "\xff3"), record("b", ""), record("c", "\xff4")},
			"header:Message-Key",
			"\xff3 \xff4", "%00a b %00a b c z",
		},
		"messages after it": {
			[]kgo.Record{record("a", `{"id":"a"}`), record("a", ""), record("a", `{"id":"a","n":2}`)},
			"/id",
			`{"id":"a","n":2}`, "a a a z",
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := strings.NewReplacer(" ", "-", "'", "", ",", "").Replace(name)
			must.Succeed(t, cluster.CreateTopic(topic, 1, nil))
			for i, r := range append(test.records, record("z", "in the last second")) {
				r.Topic, r.Timestamp = topic, later(i)
				must.Succeed(t, client.ProduceSync(t.Context(), &r).FirstErr())
			}
			wantState(t, conn.Log(topic, 0), test.key, test.want, test.names)
		})
	}
	// The headers of feedbridge's messages identify the entity, but its tombstones have no
	// bodies.
	parallel.Run(t, "of feedbridge's own", func(t *testing.T) {
		sink := conn.Sink(kafka.Topic{Feed: "orders", Name: "orders", Key: "/id", Options: kafka.Options{Create: true, Partitions: 1, Delete: kafka.DeleteTombstone, MissingKey: kafka.KeyStop}})
		if _, err := sink.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, e := range []feed.Entity{{Op: feed.Put, Body: []byte(`{"id":"a"}`)}, {Op: feed.Put, Body: []byte(`{"id":"b"}`)}, {Op: feed.Delete, Body: []byte(`{"id":"a"}`)}} {
			e.ID, e.Modified = fmt.Sprintf("%d@x", i), later(i)
			must.Succeed(t, sink.Commit(t.Context(), []feed.Entity{e}, checkpoint.Checkpoint{Feed: "orders", Cursor: feed.Cursor(e.ID)}))
		}
		// They have the time of this second, as the snapshot's end has.
		last := record("z", "in the last second")
		last.Topic, last.Timestamp = "orders", time.Now().Add(time.Second)
		must.Succeed(t, client.ProduceSync(t.Context(), &last).FirstErr())
		wantState(t, conn.Log("orders", 0), "/id", `{"id":"b"}`, "- - a z")
	})
}

// record is one of a compacted topic's kind. Without a body it is a tombstone.
func record(key, body string) kgo.Record {
	r := kgo.Record{Key: []byte(key)}
	if body != "" {
		r.Value = []byte(body)
	}
	return r
}

// snapshotOf serves a topic with a snapshot, and returns its bodies.
func snapshotOf(t *testing.T, log Log, key kafka.Key) (f *Feed, bodies string) {
	t.Helper()
	f, err := New(Config{Name: "orders", Snapshot: Snapshot{Every: time.Hour, Key: key.Find()}}, log)
	must.Succeed(t, err)
	f.builder.ahead = 0
	must.Succeed(t, f.snapshots.Renew(t.Context(), time.Now().Add(24*time.Hour)))
	t.Cleanup(func() { f.snapshots.Drop(0) })
	return f, strings.Trim(fmt.Sprint((&served{Feed: f}).load(t).pages), "[]")
}

// wantState checks the bodies of a topic's snapshot, and the Message-Keys on its feed.
func wantState(t *testing.T, log Log, key kafka.Key, bodies, names string) {
	t.Helper()
	f, got := snapshotOf(t, log, key)
	if got != bodies {
		t.Errorf("the snapshot has %q, want %q", got, bodies)
	}
	// A tombstone without a PUT cannot be matched with anything.
	if view, err := f.View(t.Context()); err != nil || view.Unmatched != 0 {
		t.Errorf("got %+v, %v", view, err)
	}
	got = ""
	entities, err := f.Entities(t.Context(), func() {})
	must.Succeed(t, err)
	for e, err := range entities {
		must.Succeed(t, err)
		name, ok := e.Header.Get("Message-Key")
		if !ok {
			name = "-"
		}
		got += " " + name
	}
	if got != " "+names {
		t.Errorf("the feed has the keys%s, want %s", got, names)
	}
}

// stateOfTombstones returns the snapshot of a topic that our sink wrote with tombstones:
// order-1 and order-2 of a customer were put, and order-1 deleted.
func stateOfTombstones(t *testing.T, snapshotKey, topicKey kafka.Key, versions bool) string {
	t.Helper()
	cluster, conn := startKafka(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	must.Succeed(t, err)
	t.Cleanup(client.Close)
	sink := conn.Sink(kafka.Topic{Feed: "orders", Name: "orders", Key: topicKey, Options: kafka.Options{Create: true, Partitions: 1, Delete: kafka.DeleteTombstone, MissingKey: kafka.KeyStop}})
	if _, err := sink.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, e := range []feed.Entity{
		{ID: "order-1@x", Op: feed.Put, Body: []byte(`{"id":"a","c":"c1"}`)},
		{ID: "order-2@x", Op: feed.Put, Body: []byte(`{"id":"b","c":"c1"}`)},
		{ID: "order-1-gone@x", Op: feed.Delete, Body: []byte(`{"id":"a","c":"c1"}`)},
	} {
		if versions && i == 2 {
			e.ID = "order-1@x"
		}
		e.Modified = later(i)
		e.Header = feed.Header{{Name: "Content-ID", Value: e.ID}}
		must.Succeed(t, sink.Commit(t.Context(), []feed.Entity{e}, checkpoint.Checkpoint{Feed: "orders", Cursor: feed.Cursor(fmt.Sprint(i))}))
	}
	last := record("z", "in the last second")
	last.Topic, last.Timestamp = "orders", time.Now().Add(time.Second)
	must.Succeed(t, client.ProduceSync(t.Context(), &last).FirstErr())
	_, bodies := snapshotOf(t, conn.Log("orders", 0), snapshotKey)
	return bodies
}

func TestTombstonesOfOurSink(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		snapshot, topic kafka.Key
		versions        bool // share their IDs
	}{
		"by the Content-ID, in partitions by customer": {"", "/c", true},
		"by the topic's key":                           {"/id", "/id", false},
		"by the record's key":                          {"header:Message-Key", "/id", false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			if got, want := stateOfTombstones(t, test.snapshot, test.topic, test.versions), `{"id":"b","c":"c1"}`; got != want {
				t.Errorf("the snapshot has %q, want %q", got, want)
			}
		})
	}
}
