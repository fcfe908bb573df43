//go:build integration

package main

import (
	"fmt"
	"net/http/httptest"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

const (
	keyedKeys = 50
	keyedPage = 100
	// keyedLater is the number of entities that follow after the program was killed: each
	// has a key of its own.
	keyedLater = 20
)

// keyedFeed is a feed whose entities have keys, and the program that copies it to a
// topic with six partitions.
type keyedFeed struct {
	t       *testing.T
	broker  *kafkatest.Broker
	feed    *sample.Feed
	url     string
	topic   string
	options []string // of the topic, as variables without their prefix
	cmd     *exec.Cmd
}

// A real Kafka cleans up topics while the real program copies to them. The newest
// of each key is right in the end, and a program that was killed goes on at its
// place, whatever is left of the topic.
func TestRealKafkaCleansUpWhileTheProgramCopies(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.QuickCleaning())
	t.Run("six partitions and a key", func(t *testing.T) { t.Parallel(); placed(newKeyedFeed(t, b)) })
	parallel.Run(t, "compaction and tombstones", func(t *testing.T) {
		compacted(newKeyedFeed(t, b, "KAFKA_DELETE=tombstone", "KAFKA_CONFIG=cleanup.policy=compact"))
	})
	parallel.Run(t, "retention", func(t *testing.T) {
		expired(newKeyedFeed(t, b, "KAFKA_CONFIG=retention.ms=1000"))
	})
}

func newKeyedFeed(t *testing.T, b *kafkatest.Broker, options ...string) *keyedFeed {
	f := &keyedFeed{t: t, broker: b, topic: kafkatest.Name(t), options: options}
	f.feed = sample.New(sample.Options{PageSize: keyedPage, Entity: keyedEntity})
	upstream := httptest.NewServer(f.feed)
	t.Cleanup(upstream.Close)
	f.url = upstream.URL + "/feed/latest"
	f.start()
	return f
}

var keyedHeaders = sample.Sized(0)

// keyedEntity returns entity i. Its key has many others, some of which delete.
func keyedEntity(i int) feed.Entity {
	e := keyedHeaders(i)
	if i%2 == 0 && i/keyedKeys%3 == 2 {
		e.Op = feed.Delete
	}
	e.Body = fmt.Appendf(nil, `{"id":%q,"n":%d}`, keyOf(i), i)
	return e
}

func keyOf(i int) string { return fmt.Sprintf("Key-%d", i%keyedKeys) }

func (f *keyedFeed) start() {
	env := []string{
		"FEEDBRIDGE_BUSES_LAKE_KAFKA_BROKERS=" + f.broker.Addr(),
		"FEEDBRIDGE_BUSES_LAKE_KAFKA_TIMEOUT=3s",
		"FEEDBRIDGE_FEEDS_ORDERS_URL=" + f.url,
		"FEEDBRIDGE_FEEDS_ORDERS_EVERY=100ms",
		"FEEDBRIDGE_FEEDS_ORDERS_LIMITS_RATE=1000",
		"FEEDBRIDGE_FEEDS_ORDERS_KEY=/id",
		"FEEDBRIDGE_FEEDS_ORDERS_TO_TOPIC=" + f.topic,
		"FEEDBRIDGE_FEEDS_ORDERS_TO_KAFKA_PARTITIONS=6",
		"FEEDBRIDGE_ADMIN_LISTEN=",
	}
	for _, option := range f.options {
		env = append(env, "FEEDBRIDGE_FEEDS_ORDERS_TO_"+option)
	}
	f.cmd, _ = spawn(f.t, "feedbridge", env, "run")
}

func (f *keyedFeed) kill() {
	_ = f.cmd.Process.Kill()
	_ = f.cmd.Wait()
}

// grow makes the feed longer, and waits until all of it is published.
func (f *keyedFeed) grow(by int) {
	f.t.Helper()
	f.feed.SetLen(f.feed.Len() + by)
	awaitKafka(f.t, func() bool {
		n := f.count()
		return n == f.feed.Len()
	})
}

// count returns the count of the newest checkpoint, -1 if there is none.
func (f *keyedFeed) count() int {
	f.t.Helper()
	admin := kadm.NewClient(newKafkaClient(f.t, f.broker.Addr()))
	if topics, err := admin.ListTopics(f.t.Context(), "feedbridge.checkpoints"); err != nil || topics.Error() != nil {
		return -1
	}
	all := checkpointCounts(f.t, f.broker.Addr(), f.topic, "orders")
	if len(all) == 0 {
		return -1
	}
	return all[len(all)-1]
}

// goOn kills the program, starts it again, and lets the feed grow. It checks that the topic
// gets the new entities, and nothing else.
func (f *keyedFeed) goOn() {
	f.t.Helper()
	ends, err := kadm.NewClient(newKafkaClient(f.t, f.broker.Addr())).ListEndOffsets(f.t.Context(), f.topic)
	must.Succeed(f.t, err)
	f.kill()
	// Messages may be gone as soon as they are there.
	from := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { from[o.Partition] = o.Offset })
	live := follow(f.t, f.broker.Addr(), f.topic, from)
	f.start()
	var want []string
	for i := range keyedLater {
		want = append(want, keyedHeaders(f.feed.Len()+i).ID)
	}
	f.grow(keyedLater)
	live.waitFor(keyedLater)
	got := live.contentIDs()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("published after the program was killed (-new in the feed +topic):\n%s", diff)
	}
}

// placed checks that every message is in the partition that the Java producer would choose, and
// that the order of the feed holds for each key.
func placed(f *keyedFeed) {
	f.grow(3000)
	f.goOn()
	java := kafkatest.ReadJava(f.t, f.broker, f.topic)
	if diff := cmp.Diff(java, readAll(f.t, f.broker.Addr(), f.topic)); diff != "" {
		f.t.Errorf("franz-go reads something else than the Java client (-Java +franz-go):\n%s", diff)
	}
	keys := make([]string, keyedKeys)
	byKey := map[string][]string{}
	for i := range keys {
		keys[i] = keyOf(i)
	}
	partitions := kafkatest.JavaPartitions(f.t, keys, 6)
	for _, r := range java {
		if want := partitions[slices.Index(keys, string(r.Key))]; r.Partition != want {
			f.t.Fatalf("a message with key %s lies in partition %d, want %d", r.Key, r.Partition, want)
		}
		byKey[string(r.Key)] = append(byKey[string(r.Key)], headerOf(r, "Content-ID"))
	}
	want := map[string][]string{}
	for i := range f.feed.Len() {
		want[keyOf(i)] = append(want[keyOf(i)], keyedHeaders(i).ID)
	}
	if diff := cmp.Diff(want, byKey); diff != "" {
		f.t.Errorf("entities by key (-feed +topic):\n%s", diff)
	}
}

// compacted checks that the newest message of each key is that of the newest
// entity.
func compacted(f *keyedFeed) {
	awaitKafka(f.t, func() bool {
		f.grow(1000)
		return len(readAll(f.t, f.broker.Addr(), f.topic)) < f.feed.Len()-1000
	})
	f.goOn()
	want, got := map[string]string{}, map[string]string{}
	for i := range f.feed.Len() {
		e := keyedEntity(i)
		want[keyOf(i)] = e.ID + string(e.Body)
		if e.Op == feed.Delete {
			want[keyOf(i)] = e.ID + " tombstone"
		}
	}
	for _, r := range kafkatest.ReadJava(f.t, f.broker, f.topic) {
		got[string(r.Key)] = headerOf(r, "Content-ID") + string(r.Value)
		if r.Value == nil {
			got[string(r.Key)] = headerOf(r, "Content-ID") + " tombstone"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("the newest of each key (-feed +topic):\n%s", diff)
	}
}

// empty reports whether the topic has no messages left.
func (f *keyedFeed) empty() bool {
	f.t.Helper()
	admin := kadm.NewClient(newKafkaClient(f.t, f.broker.Addr()))
	starts, err := admin.ListStartOffsets(f.t.Context(), f.topic)
	must.Succeed(f.t, err)
	ends, err := admin.ListEndOffsets(f.t.Context(), f.topic)
	must.Succeed(f.t, err)
	empty := true
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(f.topic, end.Partition)
		empty = empty && start.Offset == end.Offset
	})
	return empty
}

// expired checks that the program goes on at its place when nothing is left.
func expired(f *keyedFeed) {
	for range 2 {
		f.grow(500)
		awaitKafka(f.t, f.empty)
		f.goOn()
	}
}
