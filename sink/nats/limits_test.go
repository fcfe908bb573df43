package nats_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// A stream that begins at a later sequence is as fresh as any.
func TestStreamBeginsAtALaterSequence(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	config := fitting()
	config.FirstSeq = 1000
	createStream(t, js, config)
	open := func() *nats.Sink { return connect(t, nats.Config{URL: server.URL()}).Sink(orders()) }
	if cp := resume(t, open()); !cp.IsZero() {
		t.Errorf("checkpoint %+v, want the zero one", cp)
	}
	s := open()
	resumeAndCommit(t, s, 0, 3)
	if span := spanOf(t, s.Log()); span.First != 0 || span.End != 1004 {
		t.Errorf("positions %+v, want all up to 1004", span)
	}
	purge(t, js)
	_, err := open().Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing)
}

// A server that cannot write to its disk drops a batch when it is committed.
func TestServerCannotWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := runServer(t, &server.Options{JetStream: true, StoreDir: dir})
	s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
	resume(t, s)
	// Batches are kept in a directory of that name.
	batches := filepath.Join(filepath.Dir(filepath.Dir(block(t, dir))), "batches")
	must.Succeed(t, os.WriteFile(batches, nil, 0o600))
	err := s.Commit(t.Context(), sinktest.Entities(0, 3), sinktest.At(3))
	wantError(t, err, false, nil, "the server has dropped the batch: its disk or the storage of the account is full (see its log), its leader has changed, or it has too many batches at once")
	must.Succeed(t, os.Remove(batches))
	continueTo(t, s, 0, 3)
}

// A server that runs into a limit of the account in the middle of a batch has stored its
// beginning, without the checkpoint. Its entities are known when the feed is read again.
func TestAccountLimitTearsABatch(t *testing.T) {
	t.Parallel()
	const first, more = 200, 600
	o := newOperator(t)
	account, claims := o.limitedAccount(300_000)
	server := o.run()
	conn := connect(t, nats.Config{URL: server.ClientURL(), CredentialsFile: writeFile(t, credentials(t, account, asIs))})
	// Another copy resumes before the batch is torn, and commits when there is room again. Its
	// window is smaller than what the server has stored of the batch.
	small := orders()
	small.Window = 10
	s, stale := conn.Sink(orders()), conn.Sink(small)
	withBodies := func(from, to int) []feed.Entity {
		entities := sinktest.Entities(from, to-from)
		for i := range entities {
			entities[i].Body = make([]byte, 500)
		}
		return entities
	}
	resume(t, s)
	must.Succeed(t, s.Commit(t.Context(), withBodies(0, first), sinktest.At(first)))
	resume(t, stale)
	err := s.Commit(t.Context(), withBodies(first, more), sinktest.At(more))
	wantError(t, err, true, nil, "raise the account's JetStream limits")
	counted := int(resume(t, s).Count)
	held := first
	for _, e := range sinktest.Entities(first, more-first) {
		if !s.IDs().Add(e.ID) {
			held++
		}
	}
	if held == first || held == more || held != counted {
		t.Fatalf("%d entities are known, and %d counted: the batch was not torn, or nobody noticed", held, counted)
	}

	err = s.Commit(t.Context(), withBodies(held, more), sinktest.At(more))
	wantError(t, err, true, nil, "raise the account's JetStream limits")
	o.liftLimit(server, claims)
	err = stale.Commit(t.Context(), withBodies(first, more), sinktest.At(more))
	wantError(t, err, false, checkpoint.ErrConflict)
	if cp := resume(t, stale); int(cp.Count) != held {
		t.Errorf("checkpoint %+v, want the count %d", cp, held)
	}
	for i, e := range sinktest.Entities(first, more-first) {
		if fresh := stale.IDs().Add(e.ID); fresh != (first+i >= held) {
			t.Fatalf("entity %d counts as fresh: %v; %d are held", first+i, fresh, held)
		}
	}
	must.Succeed(t, stale.Commit(t.Context(), withBodies(held, more), sinktest.At(more)))
	wantFeed(t, s, more)
}

// The batch that is torn is the first one of a copy that takes over, which is atomic. The copy that it
// takes over from has fast commits, of which only the checkpoint is compared in a shared stream.
func TestAccountLimitTearsTheBatchOfACopyThatTakesOver(t *testing.T) {
	t.Parallel()
	const first, more = 200, 600
	for name, others := range streams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			account, claims := o.limitedAccount(300_000)
			server := o.run()
			file := writeFile(t, credentials(t, account, asIs))
			nc, err := natsgo.Connect(server.ClientURL(), natsgo.UserCredentials(file))
			must.Succeed(t, err)
			t.Cleanup(nc.Close)
			js, err := jetstream.New(nc)
			must.Succeed(t, err)
			config := fitting()
			config.AllowBatchPublish = true
			config.Subjects = append(config.Subjects, others...)
			createStream(t, js, config)
			conn := connect(t, nats.Config{URL: server.ClientURL(), CredentialsFile: file})
			stale, heir := conn.Sink(orders()), conn.Sink(orders())
			resumeAndCommit(t, stale, 0, first/2)
			commit(t, stale, first/2, first)
			resume(t, heir)
			entities := sinktest.Entities(first, more-first)
			for i := range entities {
				entities[i].Body = make([]byte, 500)
			}
			conn.SetTimeout(3 * time.Second) // the server may not answer
			if err := heir.Commit(t.Context(), entities, sinktest.At(more)); err == nil {
				t.Fatal("the commit is stored")
			}
			conn.SetTimeout(time.Minute)
			if end := spanOf(t, heir.Log()).End; end < first+10 {
				t.Fatalf("the topic ends at %d: the batch was not torn", end)
			}
			held := int(resume(t, heir).Count)
			if err := heir.Commit(t.Context(), entities[held-first:], sinktest.At(more)); err == nil || !strings.Contains(err.Error(), "the account") {
				t.Errorf("%v: want an error that names the account", err)
			}
			o.liftLimit(server, claims)
			publishFresh(t, stale, first, more)
			wantFeed(t, stale, more)
		})
	}
}

// If the first commit of a topic is torn, there is no checkpoint in front of it. That looks like
// a topic that lost its checkpoint, and has the same cure.
func TestAccountLimitTearsTheFirstBatch(t *testing.T) {
	t.Parallel()
	const n = 600
	o := newOperator(t)
	account, claims := o.limitedAccount(150_000)
	server := o.run()
	conn := connect(t, nats.Config{URL: server.ClientURL(), CredentialsFile: writeFile(t, credentials(t, account, asIs))})
	s := conn.Sink(orders())
	entities := sinktest.Entities(0, n)
	for i := range entities {
		entities[i].Body = make([]byte, 500)
	}
	resume(t, s)
	s.Hurry() // as in the test before this one
	conn.SetTimeout(3 * time.Second)
	wantError(t, s.Commit(t.Context(), entities, sinktest.At(n)), false, nil, "no answer from NATS")
	conn.SetTimeout(time.Minute)
	log := s.Log()
	eventually(t, "the server has stored a part of the batch", func() bool { return spanOf(t, log).End > 1 })
	_, err := s.Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing, "'feedbridge checkpoint reset orders'")

	o.liftLimit(server, claims)
	must.Succeed(t, s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(0))))
	resume(t, s)
	held := 0
	for held < n && !s.IDs().Add(entities[held].ID) {
		held++
	}
	if held == 0 || held == n {
		t.Fatalf("%d entities are known: the batch was not torn, or nobody noticed", held)
	}
	must.Succeed(t, s.Commit(t.Context(), entities[held:], sinktest.At(n)))
	wantFeed(t, s, n)
}
