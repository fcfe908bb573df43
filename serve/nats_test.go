package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	cfg := nats.Config{URL: server.URL()}
	conn, err = nats.Connect(t.Context(), cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return server.URL(), conn
}

// What the sink has written is served as the feed that it was.
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
	if err != nil {
		t.Fatal(err)
	}
	site := newSite(t)
	site.feed.Store(f)
	c := site.crawl(t)
	defer c.client.CloseIdle()
	want := ""
	for n := range 6 {
		cp := checkpoint.Checkpoint{Feed: "orders", Source: "datareplication", Cursor: feed.Cursor(fmt.Sprint(n))}
		if err := sink.Commit(t.Context(), entities(n*20, n*20+20), cp); err != nil {
			t.Fatal(err)
		}
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

	// A stream of somebody else, which is deleted and made anew.
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err := js.DeleteStream(t.Context(), "theirs"); err != nil {
			t.Fatal(err)
		}
		s.get(t, "/latest").want(t, 404)
		s.get(t, pages[0].links(t)["self"]).want(t, 410)
	}
}

func jetStream(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}
