package nats_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// eventually waits until is returns true. The error of a timeout has what.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		}
	}
}

// lastSequence returns the last sequence of the topic's stream.
func lastSequence(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	stream := ordersStream(t, js)
	return stream.CachedInfo().State.LastSeq
}

func TestAnswerOfACommitIsLost(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	s := connect(t, nats.Config{URL: p.url()}).Sink(orders())
	resumeAndCommit(t, s, 0, 3)

	js := admin(t, server.URL())
	before := lastSequence(t, js)
	s.Hurry() // after a pause it would wait for an answer first
	p.set(true)
	done := make(chan error, 1)
	go func() { done <- s.Commit(t.Context(), sinktest.Entities(3, 4), sinktest.At(7)) }()
	eventually(t, "the commit arrives", func() bool { return lastSequence(t, js) > before })
	p.cut()
	// The error comes with the loss of the connection, not with a timeout.
	wantError(t, <-done, false, nil, "the connection to NATS was lost")
	p.set(false)

	wantError(t, s.Commit(t.Context(), sinktest.Entities(3, 4), sinktest.At(7)), false, nil, "has not resumed since its last error")
	eventually(t, "the sink resumes", func() bool {
		cp, err := s.Resume(t.Context())
		if err == nil && cp.Count != 7 {
			t.Fatalf("checkpoint %+v, want that of the commit", cp)
		}
		return err == nil
	})
	wantIDs(t, s, 7)
	commitAndCheck(t, s, 7, 9)
}

// A commit that gets no answer ends at three times the timeout of the connection.
func TestCommitWithoutAnAnswerEnds(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	conn := connect(t, nats.Config{URL: p.url()})
	s := conn.Sink(orders())
	resumeAndCommit(t, s, 0, 3)
	s.Hurry() // after a pause it would wait for an answer first
	conn.SetTimeout(50 * time.Millisecond)
	p.set(true)
	done := make(chan error, 1)
	go func() { done <- s.Commit(t.Context(), sinktest.Entities(3, 4), sinktest.At(7)) }()
	select {
	case err := <-done:
		wantError(t, err, false, nil, "no answer")
	case <-time.After(time.Minute):
		t.Fatal("the commit still waits for its answer")
	}
}

// lateCommit returns a sink whose commit of the entities 2 to 5 is on its way
// and arrives when the function is called. Another sink shares the topic.
func lateCommit(t *testing.T) (late, other *nats.Sink, arrive func()) {
	t.Helper()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	conn := connect(t, nats.Config{URL: p.url()})
	late = conn.Sink(orders())
	other = connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resumeAndCommit(t, late, 0, 2)
	resume(t, other)

	late.Hurry() // after a pause it would wait for an answer first
	p.keepBack()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- late.Commit(ctx, sinktest.Entities(2, 3), sinktest.At(5)) }()
	eventually(t, "the commit is on its way", func() bool { return p.keeps(".2.$FI") })
	cancel()
	wantError(t, <-failed, false, context.Canceled)
	return late, other, func() {
		p.release()
		// Later messages on the same connection arrive later.
		must.Succeed(t, conn.Check(t.Context()))
	}
}

func TestCommitArrivesAfterAnotherWriterCommitted(t *testing.T) {
	t.Parallel()
	late, other, arrive := lateCommit(t)
	commit(t, other, 2, 3)
	arrive()
	wantFeed(t, other, 3)
	commit(t, other, 3, 4)
	wantCount(t, late, 4)
	wantFeed(t, late, 4)
}

func TestCommitArrivesAfterAnotherWriterLooked(t *testing.T) {
	t.Parallel()
	late, other, arrive := lateCommit(t)
	resume(t, other)
	arrive()
	err := other.Commit(t.Context(), sinktest.Entities(2, 1), sinktest.At(3))
	wantError(t, err, false, checkpoint.ErrConflict)
	wantCount(t, other, 5)
	commit(t, other, 5, 6)
	wantFeed(t, late, 6)
}

func TestConnectionIsRenewedBetweenResumeAndCommit(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	conn := connect(t, nats.Config{URL: p.url()})
	s := conn.Sink(orders())
	resume(t, s)
	p.cut()
	eventually(t, "the connection is lost", func() bool { return conn.Check(t.Context()) != nil })
	eventually(t, "there is another one", func() bool { return conn.Check(t.Context()) == nil })
	// It may be with a server of another version.
	err := s.Commit(t.Context(), sinktest.Entities(0, 1), sinktest.At(1))
	wantError(t, err, false, nil, "the connection to NATS was made after the sink resumed")
	resumeAndCommit(t, s, 0, 1)
}

func TestServerRestartsInTheMiddleOfACopy(t *testing.T) {
	t.Parallel()
	const n = 600
	dir, listen := t.TempDir(), freeAddress(t)
	server := startServer(t, dir, listen)
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	half := make(chan struct{})
	var once sync.Once
	done := make(chan error, 1)
	go func() {
		done <- copyFeed(t.Context(), s, n, 7, func(i int) {
			if i > n/2 {
				once.Do(func() { close(half) })
			}
		})
	}()
	<-half
	server.Close()
	startServer(t, dir, listen)
	must.Succeed(t, <-done)
	wantFeed(t, s, n)
}

func TestReplicatedStream(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a cluster")
	}
	t.Parallel()
	servers, urls := runCluster(t)
	js := admin(t, urls)
	eventually(t, "the cluster has a leader", func() bool {
		// Without one there is no answer.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err == nil
	})
	t.Run("conforms", func(t *testing.T) { conform(t, urls, 3) })
	t.Run("IDs are loaded up to the checkpoint", func(t *testing.T) {
		// With a leader that was deposed, the last entity may be an older one than the checkpoint's.
		topic := nats.Topic{Feed: "replicated", Subject: "replicated.ids", Stream: nats.Stream{Create: true, Name: "replicated", Replicas: 3}}
		if got, want := subjectsOfIDs(t, urls, topic, 3), []string{"replicated.ids,_feedbridge.replicated.ids"}; !slices.Equal(got, want) {
			t.Errorf("it has read %q, want %q", got, want)
		}
	})
	t.Run("a torn batch is not continued by a copy that does not know it", func(t *testing.T) {
		topic := nats.Topic{Feed: "replicated", Subject: "torn", DeadLetters: true, Stream: nats.Stream{Create: true, Name: "torn", Replicas: 3}}
		for i, subject := range []string{"torn", "torn.dead"} {
			s := connect(t, nats.Config{URL: urls}).Sink(topic)
			whole := int(resume(t, s).Count)
			commit(t, s, whole, whole+3)
			torn(t, urls, subject, whole+3)
			err := s.Commit(t.Context(), sinktest.Entities(whole+3, 3), sinktest.At(whole+6))
			wantError(t, err, false, checkpoint.ErrConflict)
			resume(t, s)
			if id := sinktest.Entities(whole+3, 1)[0].ID; s.IDs().Add(id) {
				t.Errorf("batch %d: %s is not known", i, id)
			}
			resumeAndCommit(t, s, whole+4, whole+6)
		}
	})
	t.Run("commits to a shared stream are atomic batches", func(t *testing.T) {
		// A fence by subject is refused while another message with that fence is on its way to the replicas.
		config := fitting()
		config.Name, config.Subjects = "shared", []string{"shared.>", "_feedbridge.shared.>"}
		config.AllowBatchPublish, config.Replicas = true, 3
		createStream(t, js, config)
		known(t, urls, "shared.orders")
		s := connect(t, nats.Config{URL: urls}).Sink(nats.Topic{Feed: "orders", Subject: "shared.orders", Stream: nats.Stream{Name: "shared"}})
		resume(t, s)
		for n := range 3 {
			commit(t, s, 50*n, 50*n+50)
		}
		if s.CommitsBy() != "atomic_batches" {
			t.Errorf("commits by %s", s.CommitsBy())
		}
		wantFeed(t, s, 150)
	})
	t.Run("its leader stops in the middle of a copy", func(t *testing.T) { leaderStops(t, servers, urls) })
}

func leaderStops(t *testing.T, servers []*server.Server, urls string) {
	const n = 2000
	topic := orders()
	topic.Stream.Replicas = 3
	half := make(chan struct{})
	var once sync.Once
	var group sync.WaitGroup
	for w := range 2 {
		s := connect(t, nats.Config{URL: urls, Timeout: 5 * time.Second}).Sink(topic) // copyFeed tries again
		group.Go(func() {
			err := copyFeed(t.Context(), s, n, 20+w, func(i int) {
				if i > n/2 {
					once.Do(func() { close(half) })
				}
			})
			if err != nil {
				t.Errorf("writer %d: %v", w, err)
			}
		})
	}
	<-half
	stream := ordersStream(t, admin(t, urls))
	leader := stream.CachedInfo().Cluster.Leader
	for _, s := range servers {
		if s.Name() == leader {
			s.Shutdown()
		}
	}
	group.Wait()

	s := connect(t, nats.Config{URL: urls}).Sink(topic)
	wantCount(t, s, n)
	wantIDs(t, s, n)
	wantFeed(t, s, n)
}
