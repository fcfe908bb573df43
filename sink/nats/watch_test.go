package nats_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// seenCommits are the calls of a watch.
type seenCommits struct {
	commits chan [2]string
	missed  chan struct{}
}

func watchCheckpoints(t *testing.T, c *nats.Conn) seenCommits {
	t.Helper()
	s := seenCommits{make(chan [2]string, 100), make(chan struct{}, 100)}
	c.WatchCheckpoints(t.Context(), func(topic, writer string) { s.commits <- [2]string{topic, writer} }, func() { s.missed <- struct{}{} })
	return s
}

// waitUntilWatched waits until the watch works, or does not.
func waitUntilWatched(t *testing.T, c *nats.Conn, want bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); c.WatchesCheckpoints() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the watch works: %v, want %v", !want, want)
		}
	}
}

func commitAs(t *testing.T, c *nats.Conn, topic, writer string) {
	t.Helper()
	snk := c.Sink(nats.Topic{Feed: topic, Subject: topic, Stream: nats.Stream{Create: true}})
	defer snk.Close()
	cp, err := snk.Resume(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cp = checkpoint.Checkpoint{Feed: topic, Source: "test", Cursor: feed.Cursor("1"), Count: cp.Count, At: time.Now(), Writer: writer}
	if err := snk.Commit(t.Context(), nil, cp, nil); err != nil {
		t.Fatal(err)
	}
}

func TestTheWatchSeesCommitsOfAllTopics(t *testing.T) {
	srv := runServer(t, &server.Options{JetStream: true})
	idle := connect(t, nats.Config{URL: srv.ClientURL()})
	seen := watchCheckpoints(t, idle)
	waitUntilWatched(t, idle, true)
	for _, topic := range []string{"orders", "shop.customers"} {
		commitAs(t, connect(t, nats.Config{URL: srv.ClientURL()}), topic, "another copy")
		select {
		case got := <-seen.commits:
			if got != [2]string{topic, "another copy"} {
				t.Errorf("saw %v, want a commit to %s by another copy", got, topic)
			}
		case <-time.After(time.Minute):
			t.Fatal("the commit was not seen")
		}
	}
}

func TestTheWatchIsNotTrustedWithoutPermission(t *testing.T) {
	srv := runServer(t, &server.Options{JetStream: true, Users: []*server.User{{
		Username: "bridge", Password: "secret",
		Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}},
	}}})
	refused := &loggedLine{text: "cannot watch the checkpoints", logged: make(chan struct{})}
	c := connectLogging(t, nats.Config{URL: srv.ClientURL(), Username: "bridge", Password: "secret"}, refused)
	seen := watchCheckpoints(t, c)
	refused.await(t)
	waitUntilWatched(t, c, false)
	for range 5 { // each takes round trips on the connection of the watch
		commitAs(t, c, "orders", "this copy")
		if c.WatchesCheckpoints() {
			t.Fatal("a watch that the server has refused counts as working")
		}
	}
	if len(seen.commits) > 0 {
		t.Error("a commit was seen")
	}
}

// loggedLine waits for a line of the log. It is the writer of the log.
type loggedLine struct {
	text   string
	once   sync.Once
	logged chan struct{} // closed when the line was logged
}

func (l *loggedLine) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.text)) {
		l.once.Do(func() { close(l.logged) })
	}
	return len(line), nil
}

// refusalOf waits until the log has the refusal of a message or a request. Only the log of the
// connection has it: there is no answer.
func refusalOf(subject string) *loggedLine {
	return &loggedLine{text: `Publish to \"` + subject, logged: make(chan struct{})}
}

// bindContext returns a context that ends when the line was logged.
func (l *loggedLine) bindContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-l.logged:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (l *loggedLine) await(t *testing.T) {
	t.Helper()
	select {
	case <-l.logged:
	case <-time.After(time.Minute):
		t.Fatalf("%q was not logged", l.text)
	}
}

func TestTheWatchReportsThatCommitsWereMissed(t *testing.T) {
	dir := t.TempDir()
	port := freePort(t)
	srv := runServer(t, &server.Options{JetStream: true, StoreDir: dir, Port: port})
	c := connect(t, nats.Config{URL: srv.ClientURL()})
	seen := watchCheckpoints(t, c)
	waitUntilWatched(t, c, true)
	srv.Shutdown()
	srv.WaitForShutdown()
	waitUntilWatched(t, c, false)
	runServer(t, &server.Options{JetStream: true, StoreDir: dir, Port: port})
	select {
	case <-seen.missed:
	case <-time.After(time.Minute):
		t.Fatal("nothing was reported after the reconnect")
	}
	waitUntilWatched(t, c, true)
	commitAs(t, c, "orders", "this copy")
	select {
	case <-seen.commits:
	case <-time.After(time.Minute):
		t.Fatal("the commit after the reconnect was not seen")
	}
}

// The streams of another domain or account are not visible to an ordinary subscriber.
func TestStreamsElsewhereAreNotWatched(t *testing.T) {
	srv := runServer(t, &server.Options{JetStream: true, JetStreamDomain: "hub"})
	for _, cfg := range []nats.Config{{URL: srv.ClientURL(), Domain: "hub"}, {URL: srv.ClientURL(), APIPrefix: "$JS.hub.API"}} {
		c := connect(t, cfg)
		watchCheckpoints(t, c)
		commitAs(t, c, "orders", "this copy")
		if c.WatchesCheckpoints() {
			t.Errorf("%+v: a watch counts as working", cfg)
		}
	}
}
