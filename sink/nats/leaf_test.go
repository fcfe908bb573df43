package nats_test

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// hub has the streams of a leaf node that has no JetStream.
type hub struct {
	*server.Server
	dir          string
	client, leaf int // ports
}

// runHub runs both, and returns the hub and the URL of the leaf node.
func runHub(t *testing.T) (h *hub, leaf string) {
	t.Helper()
	return runHubAnd(t, &server.Options{ServerName: "leaf"})
}

// runHubAnd is runHub with options of the leaf node.
func runHubAnd(t *testing.T, node *server.Options) (h *hub, leaf string) {
	t.Helper()
	h = &hub{dir: t.TempDir(), client: freePort(t), leaf: freePort(t)}
	h.run(t)
	remote, err := url.Parse("nats-leaf://127.0.0.1:" + strconv.Itoa(h.leaf))
	must.Succeed(t, err)
	node.LeafNode = server.LeafNodeOpts{
		ReconnectInterval: 50 * time.Millisecond,
		Remotes:           []*server.RemoteLeafOpts{{URLs: []*url.URL{remote}}},
	}
	s := runServer(t, node)
	eventually(t, "the leaf node is connected", func() bool { return s.NumLeafNodes() == 1 })
	return h, s.ClientURL()
}

func (h *hub) run(t *testing.T) {
	t.Helper()
	h.Server = runServer(t, &server.Options{
		ServerName: "hub", Port: h.client, JetStream: true, StoreDir: h.dir, JetStreamDomain: "hub",
		LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: h.leaf},
	})
}

func TestDomainOverALeafNode(t *testing.T) {
	t.Parallel()
	h, leaf := runHub(t)
	for name, config := range map[string]nats.Config{
		"domain":         {URL: leaf, APIPrefix: "$JS.hub.API"},
		"domain_and_dot": {URL: leaf, APIPrefix: "$JS.hub.API."},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := nats.Topic{Feed: "orders", Subject: "shop." + name, Stream: nats.Stream{Create: true}}
			conn := connect(t, config)
			must.Succeed(t, conn.Check(t.Context()))
			s := conn.Sink(topic)
			must.Succeed(t, s.Check(t.Context()))
			resumeAndCommit(t, s, 0, 3)
			commit(t, s, 3, 3)
			other := connect(t, config).Sink(topic)
			wantCount(t, other, 3)
			wantIDs(t, other, 3)
			commit(t, other, 3, 1000)
			wantFeed(t, s, 1000)
			// Without a stream it has to be found.
			log := conn.Log(topic.Subject, "")
			if n := len(records(t, log, 0, spanOf(t, log).End)); n != 1000 {
				t.Errorf("%d messages are read, want 1000", n)
			}
			wantNoReaders(t, admin(t, h.ClientURL()), "shop_"+name)
		})
	}
}

func TestLeafNodeWithoutADomain(t *testing.T) {
	t.Parallel()
	_, leaf := runHub(t)
	for name, prefix := range map[string]string{"none": "", "another": "$JS.elsewhere.API", "a bad prefix": "JS.hub"} {
		parallel.Run(t, name, func(t *testing.T) {
			conn := connect(t, nats.Config{URL: leaf, APIPrefix: prefix})
			wantError(t, conn.Check(t.Context()), false, nil, "JetStream does not answer", "correct api_prefix")
			_, err := conn.Sink(orders()).Resume(t.Context())
			wantError(t, err, false, nil, "JetStream does not answer", "correct api_prefix")
		})
	}
}

// The leaf node has a stream of its own with the same subjects, as after a run without the
// domain. It answers sooner than the hub.
func TestLeafNodeHasTheStreamToo(t *testing.T) {
	t.Parallel()
	h, leaf := runHubAnd(t, &server.Options{ServerName: "leaf", JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "leaf"})
	resume(t, connect(t, nats.Config{URL: leaf}).Sink(orders()))
	s := connect(t, nats.Config{URL: leaf, APIPrefix: "$JS.hub.API"}).Sink(orders())
	resume(t, s)
	h.Shutdown()
	h.WaitForShutdown()
	s.Hurry() // after a pause it would ask the hub first
	err := s.Commit(t.Context(), sinktest.Entities(0, 3), sinktest.At(3))
	wantError(t, err, true, nil, `JetStream domain "leaf" acknowledged a commit for domain hub`)
}

// The stream is deleted on the leaf node, and the hub has one with the same name and subjects.
func TestHubHasTheStreamToo(t *testing.T) {
	t.Parallel()
	for name, domain := range map[string]string{"a domain": "leaf", "no domain": ""} {
		parallel.Run(t, name, func(t *testing.T) {
			_, leaf := runHubAnd(t, &server.Options{ServerName: "leaf", JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: domain})
			resume(t, connect(t, nats.Config{URL: leaf, APIPrefix: "$JS.hub.API"}).Sink(orders()))
			s := connect(t, nats.Config{URL: leaf}).Sink(orders())
			resume(t, s)
			must.Succeed(t, admin(t, leaf).DeleteStream(t.Context(), "shop_orders"))
			s.Hurry() // after a pause it would read the deleted stream first
			err := s.Commit(t.Context(), sinktest.Entities(0, 3), sinktest.At(3))
			wantError(t, err, true, nil, `JetStream domain "hub" acknowledged a commit for`, "delete the subject there")
		})
	}
}

// The hub restarts without its tail while the connection to the leaf node lasts. Another
// copy fills the stream again, up to the very sequence that an idle copy knows.
func TestHubLosesItsTailBehindALeafNode(t *testing.T) {
	t.Parallel()
	h, leaf := runHub(t)
	open := func() *nats.Sink { return connect(t, nats.Config{URL: leaf, APIPrefix: "$JS.hub.API"}).Sink(orders()) }
	stop := func() {
		h.Shutdown()
		h.WaitForShutdown()
	}
	s := open()
	resume(t, s)
	commit(t, s, 0, 2) // 1 to 2, and the checkpoint
	stop()
	backup := copyOf(t, h.dir)
	h.run(t)
	resumeAgain(t, s)
	commit(t, s, 2, 5) // 4 to 6, and the checkpoint
	stop()
	h.dir = backup
	h.run(t)

	other := open()
	if cp := resumeAgain(t, other); cp.Count != 2 {
		t.Fatalf("checkpoint %+v, want that of before", cp)
	}
	commit(t, other, 2, 3)
	commit(t, other, 3, 4) // the checkpoint is 7 again
	s.Rest()
	err := s.Commit(t.Context(), sinktest.Entities(5, 2), sinktest.At(7))
	wantError(t, err, false, checkpoint.ErrConflict)
	wantCount(t, s, 4)
	commitAndCheck(t, s, 4, 7)
}

// The hub restarts without its tail after a copy has seen that the newest entity that it
// knows is still there, and before it loads the IDs behind that. Another copy fills the
// stream again in smaller commits and stops half-way.
func TestHubLosesItsTailWhileIDsAreLoaded(t *testing.T) {
	t.Parallel()
	h, leaf := runHub(t)
	p := runProxy(t, strings.TrimPrefix(leaf, "nats://"))
	open := func(url string) *nats.Sink {
		return connect(t, nats.Config{URL: url, APIPrefix: "$JS.hub.API"}).Sink(orders())
	}
	stop := func() {
		h.Shutdown()
		h.WaitForShutdown()
	}
	writer, s := open(leaf), open(p.url())
	resume(t, writer)
	commit(t, writer, 0, 10) // 1 to 10, and the checkpoint
	stop()
	backup := copyOf(t, h.dir)
	h.run(t)
	resumeAgain(t, writer)
	commit(t, writer, 10, 40) // 12 to 41, and the checkpoint
	resume(t, s)
	commit(t, writer, 40, 41) // 43, and the checkpoint

	// The proxy holds the request back until the hub has restarted.
	begun, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	var once sync.Once
	p.setWatch(func(data []byte) {
		if bytes.Contains(data, []byte("API.CONSUMER.CREATE.")) {
			once.Do(func() {
				close(begun)
				<-goOn
			})
		}
	})
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		_, _ = s.Resume(t.Context()) // as far as it gets
	}()
	select {
	case <-begun:
	case <-resumed:
		t.Fatal("the IDs are not loaded")
	}
	stop()
	h.dir = backup
	h.run(t)
	other := open(leaf)
	resumeAgain(t, other)
	for n := 10; n < 27; n++ {
		commit(t, other, n, n+1) // up to the checkpoint 45
	}
	release()
	<-resumed
	if cp := resumeAgain(t, s); cp.Count != 27 {
		t.Fatalf("checkpoint %+v, want count 27", cp)
	}
	wantHeld(t, s, 41, 27)
}
