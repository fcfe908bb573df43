package kafka_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// seenCommits are the topics and writers of the commits that a watch has seen.
type seenCommits chan [2]string

func watchCheckpoints(t *testing.T, c *kafka.Conn) seenCommits {
	t.Helper()
	s := make(seenCommits, 100)
	c.LookEvery(time.Hour) // the tests look themselves
	c.WatchCheckpoints(t.Context(), func(topic, writer string) { s <- [2]string{topic, writer} })
	return s
}

// waitUntilWatched waits until the watch works, or does not.
func waitUntilWatched(t *testing.T, c *kafka.Conn, want bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); c.WatchesCheckpoints() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the watch works: %v, want %v", !want, want)
		}
	}
}

func commitAs(t *testing.T, c *kafka.Conn, topic, writer string) {
	t.Helper()
	to := orders()
	to.Feed, to.Name = topic, topic
	snk := c.Sink(to)
	defer snk.Close()
	last := resume(t, snk)
	next := sinktest.At(int(last.Count) + 1)
	next.Feed, next.Writer, next.At = topic, writer, time.Now()
	must.Succeed(t, snk.Commit(t.Context(), sinktest.Entities(int(last.Count), 1), next))
}

func (s seenCommits) want(t *testing.T, topic, writer string) {
	t.Helper()
	s.wantAfter(t, "", topic, writer)
}

// wantAfter is like want, but first there may be commits by another writer.
func (s seenCommits) wantAfter(t *testing.T, earlier, topic, writer string) {
	t.Helper()
	for {
		select {
		case got := <-s:
			if earlier != "" && got == [2]string{topic, earlier} {
				continue
			}
			if got != [2]string{topic, writer} {
				t.Errorf("saw %v, want a commit to %s by %q", got, topic, writer)
			}
			return
		case <-time.After(time.Minute):
			t.Fatal("the commit was not seen")
		}
	}
}

func TestTheWatchSeesCommitsOfAllTopics(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	other := connect(t, configFor(cluster))
	commitAs(t, other, "customers", "before the watch")
	idle := connect(t, configFor(cluster))
	seen := watchCheckpoints(t, idle)
	waitUntilWatched(t, idle, true)
	for _, topic := range []string{"customers", "shop.orders"} {
		commitAs(t, other, topic, "another copy")
		seen.want(t, topic, "another copy")
	}
}

// Only commits that took place are hints.
func TestTheWatchSeesNoAbortedCommit(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	c := connect(t, configFor(cluster))
	commitAs(t, c, "orders", "before the watch")
	seen := watchCheckpoints(t, c)
	waitUntilWatched(t, c, true)
	aborting, _ := admin(t, cluster, kgo.TransactionalID("other"))
	must.Succeed(t, aborting.BeginTransaction())
	value := checkpoint.Encode(checkpoint.Checkpoint{Feed: "orders", Source: "test", Writer: "aborted"})
	for p := range int32(60) {
		record := &kgo.Record{Topic: "feedbridge.checkpoints", Partition: p, Key: []byte("orders/orders"), Value: value}
		must.Succeed(t, aborting.ProduceSync(t.Context(), record).FirstErr())
	}
	must.Succeed(t, aborting.EndTransaction(t.Context(), kgo.TryAbort))
	commitAs(t, c, "orders", "committed")
	seen.want(t, "orders", "committed")
}

// Otherwise each copy of a fleet would fetch after each commit of each feed.
func TestTheWatchFetchesCommitsTogether(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cluster := startCluster(t)
		busy := connect(t, configFor(cluster))
		commitAs(t, busy, "orders", "before the watch")
		idle := connect(t, configFor(cluster))
		seen := watchCheckpoints(t, idle)
		waitUntilWatched(t, idle, true)
		snk := busy.Sink(orders())
		defer snk.Close()
		last := resume(t, snk)
		fetches := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
		const commits = 50
		for n := range commits {
			next := sinktest.At(int(last.Count) + 1)
			next.Feed, next.Writer, next.At = "shop.orders", strconv.Itoa(n), time.Now()
			must.Succeed(t, snk.Commit(t.Context(), sinktest.Entities(int(last.Count), 1), next))
			last.Count++
			time.Sleep(10 * time.Millisecond)
		}
		for n := range commits {
			seen.want(t, "shop.orders", strconv.Itoa(n))
		}
		if n := fetches.Hits(); n > commits/2 {
			t.Errorf("%d fetches for %d commits in half a second", n, commits)
		}
	})
}

// Before the first commit there is no topic to watch.
func TestTheWatchBeginsWithTheCheckpointTopic(t *testing.T) {
	t.Parallel()
	c := connect(t, configFor(startCluster(t)))
	seen := watchCheckpoints(t, c)
	commitAs(t, c, "orders", "this copy")
	waitUntilWatched(t, c, true)
	commitAs(t, c, "orders", "another copy")
	// The watch begins with the topic, so the first commit may be seen, at any time.
	seen.wantAfter(t, "this copy", "orders", "another copy")
}

func TestTheWatchGoesOnAfterAnOutage(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	cluster := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	c := connect(t, configFor(cluster))
	commitAs(t, c, "orders", "before the watch")
	seen := watchCheckpoints(t, c)
	waitUntilWatched(t, c, true)
	cluster.Close()
	waitUntilWatched(t, c, false)
	cluster = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	waitUntilWatched(t, c, true)
	commitAs(t, connect(t, configFor(cluster)), "orders", "another copy")
	seen.want(t, "orders", "another copy")
}

// A copy that trusted a look which shows another topic than the one that it knows would say that it is
// caught up as long as it is idle.
func TestALookConfirmsTheCheckpointOfTheTopicThatItShows(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(t *testing.T, cluster *kfake.Cluster, c *kafka.Conn) error
		want    bool // the look after that confirms
	}{
		"nothing": {func(*testing.T, *kfake.Cluster, *kafka.Conn) error { return nil }, true},
		"another copy commits": {func(t *testing.T, cluster *kfake.Cluster, _ *kafka.Conn) error {
			commitAs(t, connect(t, configFor(cluster)), "orders", "another copy")
			return nil
		}, true}, // there is a hint
		"another topic is deleted": {func(t *testing.T, cluster *kfake.Cluster, c *kafka.Conn) error {
			commitAs(t, c, "next", "this copy")
			return cluster.DeleteTopic("next")
		}, true},
		"the topic is deleted": {func(_ *testing.T, cluster *kfake.Cluster, _ *kafka.Conn) error {
			return cluster.DeleteTopic("orders")
		}, false},
		"the topic is created again": {func(t *testing.T, cluster *kfake.Cluster, _ *kafka.Conn) error {
			if err := errors.Join(cluster.DeleteTopic("orders"), cluster.CreateTopic("orders", 1, nil)); err != nil {
				return err
			}
			producer, _ := admin(t, cluster)
			return producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("0")}, &kgo.Record{Topic: "orders", Value: []byte("1")}).FirstErr()
		}, false},
		"the topic has lost its newest records": {func(_ *testing.T, cluster *kfake.Cluster, _ *kafka.Conn) error {
			cluster.ControlKey(kmsg.ListOffsets.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
				return offsetsOf(req.(*kmsg.ListOffsetsRequest), map[string]int64{"orders": 0}), nil, true
			})
			return nil
		}, false},
		"the checkpoints are deleted": {func(_ *testing.T, cluster *kfake.Cluster, _ *kafka.Conn) error {
			return cluster.DeleteTopic("feedbridge.checkpoints")
		}, false},
		"the watch begins again": {func(_ *testing.T, _ *kfake.Cluster, c *kafka.Conn) error {
			c.CountConsumer()
			return nil
		}, false},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			cluster := startCluster(t)
			c := connect(t, configFor(cluster))
			commitAs(t, c, "orders", "this copy")
			watchCheckpoints(t, c)
			waitUntilWatched(t, c, true)
			to := orders()
			to.Feed, to.Name = "orders", "orders"
			s := c.Sink(to)
			defer s.Close()
			resume(t, s)
			confirms := func() bool {
				time.Sleep(25 * time.Second) // the client remembers topics for a second
				began := time.Now()
				c.Look(t.Context())
				return !s.Unchanged().Before(began)
			}
			if !s.Unchanged().IsZero() || !confirms() {
				t.Fatal("the first look, and nothing before it, should confirm the checkpoint")
			}
			must.Succeed(t, test.happens(t, cluster, c))
			if got := confirms(); got != test.want {
				t.Errorf("a look confirms the checkpoint: %v, want %v", got, test.want)
			}
			if _, err := s.Resume(t.Context()); err == nil && !confirms() {
				t.Error("a look after Resume does not confirm the checkpoint")
			}
		}))
	}
}

// offsetsOf answers a request with the offsets of topics; 100 for all others.
func offsetsOf(req *kmsg.ListOffsetsRequest, offsets map[string]int64) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			partition := kmsg.NewListOffsetsResponseTopicPartition()
			partition.Partition, partition.Offset = p.Partition, 100
			if offset, ok := offsets[t.Topic]; ok {
				partition.Offset = offset
			}
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
