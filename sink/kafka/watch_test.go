package kafka_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// seenCommits are the calls of a watch.
type seenCommits struct {
	commits chan [2]string
	missed  chan struct{}
}

func watchCheckpoints(t *testing.T, c *kafka.Conn) seenCommits {
	t.Helper()
	s := seenCommits{make(chan [2]string, 100), make(chan struct{}, 100)}
	c.WatchCheckpoints(t.Context(), func(topic, writer string) { s.commits <- [2]string{topic, writer} }, func() { s.missed <- struct{}{} })
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
	if err := snk.Commit(t.Context(), sinktest.Entities(int(last.Count), 1), next, nil); err != nil {
		t.Fatal(err)
	}
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
		case got := <-s.commits:
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
	if len(seen.missed) > 0 {
		t.Error("commits were reported as missed")
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
	if err := aborting.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	value := checkpoint.Encode(checkpoint.Checkpoint{Feed: "orders", Source: "test", Writer: "aborted"})
	for p := range int32(60) {
		record := &kgo.Record{Topic: "feedbridge.checkpoints", Partition: p, Key: []byte("orders/orders"), Value: value}
		if err := aborting.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := aborting.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
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
		var fetches atomic.Int64
		cluster.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			fetches.Add(1)
			return nil, nil, false
		})
		const commits = 50
		for n := range commits {
			next := sinktest.At(int(last.Count) + 1)
			next.Feed, next.Writer, next.At = "shop.orders", strconv.Itoa(n), time.Now()
			if err := snk.Commit(t.Context(), sinktest.Entities(int(last.Count), 1), next, nil); err != nil {
				t.Fatal(err)
			}
			last.Count++
			time.Sleep(10 * time.Millisecond)
		}
		for n := range commits {
			seen.want(t, "shop.orders", strconv.Itoa(n))
		}
		if n := fetches.Load(); n > commits/2 {
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
