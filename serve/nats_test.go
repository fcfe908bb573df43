package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

var (
	_ Log = (*nats.Log)(nil)
	_ Log = (*memoryTopic)(nil)
)

// startNATS starts a server, and a connection to it.
func startNATS(t testing.TB) (url string, conn *nats.Conn) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: log})
	must.Succeed(t, err)
	t.Cleanup(server.Close)
	cfg := nats.Config{URL: server.URL(), Timeout: time.Minute}
	conn, err = nats.Connect(t.Context(), cfg, log)
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return server.URL(), conn
}

// A topic that the sink has written is served as the original feed.
func TestTopicOfNATS(t *testing.T) {
	t.Parallel()
	url, conn := startNATS(t)
	entities := func(from, to int) []feed.Entity {
		var list []feed.Entity
		for i := from; i < to; i++ {
			list = append(list, feed.Entity{
				ID: fmt.Sprintf("m%d@x", i), Op: feed.Put, Modified: later(i), Body: fmt.Appendf(nil, "body %d", i),
				Header: feed.Header{{Name: "Content-ID", Value: fmt.Sprintf("m%d@x", i)}, {Name: "Content-Type", Value: "text/plain"}},
			})
		}
		return list
	}
	sink := conn.Sink(nats.Topic{Feed: "orders", Subject: "shop.orders", Stream: nats.Stream{Create: true}})
	if _, err := sink.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := New(Config{Name: "orders", PageSize: 25}, conn.Log("shop.orders", ""))
	must.Succeed(t, err)
	site := newSite(t)
	site.feed.Store(f)
	c := site.crawl(t)
	defer c.client.CloseIdle()
	want := ""
	for n := range 6 {
		cp := checkpoint.Checkpoint{Feed: "orders", Source: "datareplication", Cursor: feed.Cursor(fmt.Sprint(n))}
		must.Succeed(t, sink.Commit(t.Context(), entities(n*20, n*20+20), cp))
		for i := range 20 {
			want += fmt.Sprintf("m%d ", n*20+i)
		}
		c.all(t)
		if got := c.ids() + " "; got != want {
			t.Fatalf("read %s, want %s", got, want)
		}
	}
	if len(c.violations) > 0 {
		t.Errorf("the reader sees %v", c.violations)
	}

	// A stream of another program, which is deleted and created again.
	js := jetStream(t, url)
	for epoch := range 2 {
		// In memory, because a server may still be removing the files of a
		// stream when another one of its name is deleted, which then fails.
		stream := jetstream.StreamConfig{Name: "theirs", Subjects: []string{"theirs.>"}, Storage: jetstream.MemoryStorage}
		if _, err := js.CreateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
		for i := range 7 {
			subject := []string{"theirs.a", "theirs.b"}[i%2]
			if _, err := js.Publish(t.Context(), subject, fmt.Appendf(nil, "%d of %d", i, epoch)); err != nil {
				t.Fatal(err)
			}
		}
		theirs, err := New(Config{Name: "orders", PageSize: 2}, conn.Log("theirs.a", "theirs"))
		must.Succeed(t, err)
		s := &served{Feed: theirs}
		pages := s.pages(t)
		var bodies [][]byte
		for _, g := range pages {
			for _, part := range bytes.Split([]byte(g.body), []byte("\r\n")) {
				if bytes.Contains(part, []byte(" of ")) {
					bodies = append(bodies, part)
				}
			}
		}
		if got := string(bytes.Join(bodies, []byte(", "))); got != fmt.Sprintf("0 of %[1]d, 2 of %[1]d, 4 of %[1]d, 6 of %[1]d", epoch) {
			t.Errorf("got %s", got)
		}
		must.Succeed(t, js.DeleteStream(t.Context(), "theirs"))
		s.get(t, "/latest").want(t, 404)
		s.get(t, pages[0].links(t)["self"]).want(t, 410)
	}
}

// Messages that were deleted from the front of a stream are gone on every copy, whatever
// the stream and its limits are afterwards. A page is never served again with fewer
// messages.
func TestPagesThatNATSHasLostStayGone(t *testing.T) {
	t.Parallel()
	type topic struct {
		stream jetstream.Stream
		edit   func(func(*jetstream.StreamConfig))
		commit func(sizes ...int)
		look   func() // at the page, as it is now
	}
	small := slices.Repeat([]int{10}, 60)
	for name, take := range map[string]func(*testing.T, topic){
		"with a large message": func(_ *testing.T, b topic) {
			b.edit(func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
			b.commit(small...)
			b.look()
			b.commit(700 << 10)
			for range 60 { // it takes the small ones, the large one, and is less than half full
				b.commit(10 << 10)
				b.look()
			}
		},
		"by a limit that was raised": func(_ *testing.T, b topic) {
			b.commit(small...)
			b.look()
			b.edit(func(c *jetstream.StreamConfig) { c.MaxMsgs = 25 })
			b.look()
			b.edit(func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 })
		},
		"by a limit that was lifted": func(_ *testing.T, b topic) {
			b.commit(small...)
			b.look()
			b.edit(func(c *jetstream.StreamConfig) { c.MaxBytes = 5000 })
			b.look()
			b.edit(func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
		},
		"by hand": func(t *testing.T, b topic) {
			b.commit(small...)
			b.look()
			must.Succeed(t, b.stream.Purge(t.Context(), jetstream.WithPurgeSequence(36)))
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			url, conn := startNATS(t)
			sink := conn.Sink(nats.Topic{Feed: "orders", Subject: "orders", Stream: nats.Stream{Create: true}})
			if _, err := sink.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			js := jetStream(t, url)
			stream, err := js.Stream(t.Context(), "orders")
			must.Succeed(t, err)
			n := 0
			commit := func(sizes ...int) {
				var list []feed.Entity
				for _, size := range sizes {
					id := fmt.Sprintf("m%d@x", n)
					list = append(list, feed.Entity{ID: id, Op: feed.Put, Modified: later(n), Body: bytes.Repeat([]byte("x"), size)})
					n++
				}
				cp := checkpoint.Checkpoint{Feed: "orders", Source: "datareplication", Cursor: feed.Cursor(fmt.Sprint(n))}
				must.Succeed(t, sink.Commit(t.Context(), list, cp))
			}
			var first *served
			var states []string
			// The page with the positions 30 to 39. It is requested from copies that know
			// the deleted messages, and from copies that do not.
			look := func() {
				f, err := New(Config{Name: "orders", PageSize: 10}, conn.Log("orders", ""))
				must.Succeed(t, err)
				copies := []*served{{Feed: f}}
				if first == nil {
					first = copies[0]
				} else {
					copies = append(copies, first)
				}
				for i, s := range copies {
					span, err := s.builder.spans.spanNow(t.Context())
					must.Succeed(t, err)
					g := s.get(t, "/pages/"+pageID{span.Epoch, 10, 3}.String())
					state := fmt.Sprintf("%d with %d entities", g.status, strings.Count(g.body, "Content-ID:"))
					if i > 0 && state != states[len(states)-1] {
						t.Errorf("one copy has %s, another %s", states[len(states)-1], state)
					}
					if len(states) == 0 || state != states[len(states)-1] {
						states = append(states, state)
					}
				}
			}
			edit := func(change func(*jetstream.StreamConfig)) {
				c := stream.CachedInfo().Config
				change(&c)
				if _, err := js.UpdateStream(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			commit() // so that the stream begins with a checkpoint
			take(t, topic{stream, edit, commit, look})
			look()
			commit(small...)
			look()
			if want := []string{"200 with 10 entities", "410 with 0 entities"}; !slices.Equal(states, want) {
				t.Errorf("the page was %q, want %q", states, want)
			}
		})
	}
}

func jetStream(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must.Succeed(t, err)
	return js
}

// Checkpoints take positions of the stream. After 200 commits without an entity the
// newest page of every format has the newest entities, and the view that the status
// server shows has the date of the newest.
func TestLatestBehindCommitsWithoutEntities(t *testing.T) {
	t.Parallel()
	_, conn := startNATS(t)
	sink := conn.Sink(nats.Topic{Feed: "orders", Subject: "orders", Stream: nats.Stream{Create: true}})
	if _, err := sink.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	const entities = 8
	var list []feed.Entity
	for i := range entities {
		id := fmt.Sprintf("urn:x:%d", i)
		list = append(list, feed.Entity{ID: id, Op: feed.Put, Modified: later(i), Body: []byte("body"), Header: feed.Header{{Name: "Content-ID", Value: id}, {Name: "Content-Type", Value: "text/plain"}}})
	}
	cp := checkpoint.Checkpoint{Feed: "orders", Source: "datareplication"}
	for n := range 201 {
		cp.Cursor = feed.Cursor(fmt.Sprint(n))
		must.Succeed(t, sink.Commit(t.Context(), list, cp))
		cp.Count, list = entities, nil
	}
	for _, format := range []Format{DataReplication, Atom, RSS} {
		f, err := New(Config{Name: "orders", Format: format, PageSize: 5}, conn.Log("orders", ""))
		must.Succeed(t, err)
		s := &served{Feed: f}
		body := s.get(t, "/latest").want(t, 200).body
		for i := entities - 3; i < entities; i++ {
			if id := fmt.Sprintf("urn:x:%d", i); !strings.Contains(body, id) {
				t.Errorf("%s: /latest has no %s: %s", format, id, body)
			}
		}
		if strings.Contains(body, "1970") {
			t.Errorf("%s: /latest is dated 1970: %s", format, body)
		}
		view, err := f.View(t.Context())
		if err != nil || time.Since(view.Newest) > time.Hour || view.Span.End < 200 {
			t.Errorf("%s: got %+v, %v", format, view, err)
		}
	}
}
