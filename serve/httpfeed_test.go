package serve

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/httpfeed"
)

// eventIDs returns the IDs in a list of events.
func (g got) eventIDs(t tester) string {
	t.Helper()
	var events []struct{ ID string }
	if err := json.Unmarshal([]byte(g.body), &events); err != nil {
		t.Fatalf("%v in %q", err, g.body)
	}
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, " ")
}

func TestServedEvents(t *testing.T) {
	t.Parallel()
	const final, open = "public, max-age=31536000", "no-store"
	wantList := func(t *testing.T, s *served, query, ids, caching string) {
		t.Helper()
		g := s.get(t, query).want(t, 200)
		if got := g.eventIDs(t); got != ids || g.header.Get("Cache-Control") != caching || g.header.Get("Content-Type") != "application/cloudevents-batch+json" {
			t.Errorf("%s: got %q with %v, want %q that is %s", query, got, g.header, ids, caching)
		}
	}
	t.Run("case 15: lists end where pages end", func(t *testing.T) {
		topic := numberedTopic(7)
		s := serveTopic(t, topic, as(HTTPFeeds))
		wantList(t, s, "", "e0-0 e0-1 e0-2", open)
		wantList(t, s, "?lastEventId=", "e0-0 e0-1 e0-2", open)
		wantList(t, s, "?lastEventId=null&timeout=5000", "e0-0 e0-1 e0-2", open)
		wantList(t, s, "?lastEventId=e0-0", "e0-1 e0-2", final)
		wantList(t, s, "/?lastEventId=e0-2", "e0-3 e0-4 e0-5", final)
		wantList(t, s, "?lastEventId=e0-5&timeout=0", "e0-6", open)
		wantList(t, s, "?lastEventId=e0-6", "", open)
		topic.numbered(2)
		wantList(t, s, "?lastEventId=e0-5", "e0-6 e0-7 e0-8", final)
		wantList(t, s, "?lastEventId=e0-8", "", open)
		read := topic.read
		wantList(t, s, "?lastEventId=e0-5", "e0-6 e0-7 e0-8", final)
		if topic.read != read {
			t.Errorf("a list that does not change is read again")
		}
	})
	t.Run("case 15: positions without messages", func(t *testing.T) {
		topic := newTopic()
		s := serveTopic(t, topic, as(HTTPFeeds))
		wantList(t, s, "", "", open)
		topic.skip(5)
		wantList(t, s, "", "", open)
		topic.numbered(2)
		topic.skip(10)
		wantList(t, s, "", "e0-5", open)
		wantList(t, s, "?lastEventId=e0-3", "e0-5", final)
		wantList(t, s, "?lastEventId=e0-5", "e0-6", final)
		wantList(t, s, "?lastEventId=e0-6", "", open)
	})
	t.Run("case 15: a purge moves the beginning", func(t *testing.T) {
		topic := numberedTopic(7)
		s := serveTopic(t, topic, as(HTTPFeeds))
		wantList(t, s, "", "e0-0 e0-1 e0-2", open)
		topic.trim(4)
		wantList(t, s, "", "e0-4 e0-5", open)
		wantList(t, s, "?lastEventId=e0-0", "e0-4 e0-5", final)
		topic.trim(7)
		wantList(t, s, "?lastEventId=e0-5", "", open)
	})
	t.Run("case 15: an unknown id", func(t *testing.T) {
		topic := numberedTopic(3)
		s := serveTopic(t, topic, as(HTTPFeeds))
		for _, id := range []string{"e0-3", "e1-0", "e0-01", "e0", "e0-", "0", "m0@x", "e0-18446744073709551615", "e0--1"} {
			g := s.get(t, "?lastEventId="+id).want(t, 410)
			var problem struct{ Title, Detail string }
			must.Succeed(t, json.Unmarshal([]byte(g.body), &problem))
			if problem.Title != "Gone" || !strings.Contains(problem.Detail, "/feeds/orders begins") || g.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %v %s", id, g.header, g.body)
			}
		}
		topic.renew()
		topic.numbered(1)
		s.get(t, "?lastEventId=e0-0").want(t, 410)
		wantList(t, s, "", "e1-0", open)
	})
	t.Run("case 15: HEAD, and other requests", func(t *testing.T) {
		s := serveTopic(t, numberedTopic(4), as(HTTPFeeds))
		g := s.ask(t, "HEAD", "?lastEventId=e0-0&timeout=60000").want(t, 200)
		if g.body != "" || g.header.Get("Cache-Control") != final {
			t.Errorf("got %v", g)
		}
		s.ask(t, "HEAD", "?lastEventId=e0-3&timeout=60000").want(t, 200)
		for _, query := range []string{"?timeout=soon", "?timeout=-1", "?timeout=1.5", "?lastEventId=%"} {
			s.get(t, query).want(t, 400)
		}
		s.ask(t, "POST", "").want(t, 405)
		for _, path := range []string{"/latest", "/pages/e0-3-0", "/snapshots/latest"} {
			s.get(t, path).want(t, 404)
		}
		topic := newTopic()
		topic.gone = true
		serveTopic(t, topic, as(HTTPFeeds)).get(t, "").want(t, 404)
	})
	t.Run("case 15: large events", func(t *testing.T) {
		topic := newTopic()
		for i := range 3 {
			topic.add(messageOf(fmt.Sprint(i), feed.Put, noon, strings.Repeat("x", 600)))
		}
		topic.add(messageOf("3", feed.Put, noon, strings.Repeat("x", 40_000)))
		topic.add(messageOf("4", feed.Put, noon, ""))
		s := serveTopic(t, topic, as(HTTPFeeds), sized(100), func(c *Config) { c.Memory = NewPageCache(16 * 1800) })
		wantList(t, s, "", "e0-0 e0-1", open)
		wantList(t, s, "?lastEventId=e0-0", "e0-1 e0-2", final)
		s.get(t, "?lastEventId=e0-2").want(t, 500)
	})
}

// What a message has is in its event, in the form that the data has.
func TestServedEventOfMessage(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	const head = `"id":"e0-0","specversion":"1.0","type":"feedbridge.entity.put","source":"/feeds/orders","time":"2026-03-01T12:00:00Z","subject":"a@x","contentid":"a@x",`
	typed := func(contentType string) feed.Header {
		return feed.Header{{Name: "Content-Type", Value: contentType}}
	}
	in64 := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct {
		record feed.Record
		want   string
	}{
		"JSON":            {messageOf("a@x", feed.Put, noon, " {\"b\" : 1e309}\n", typed("application/x+json; v=1")...), head + `"datacontenttype":"application/x+json; v=1","data":{"b" : 1e309}`},
		"text":            {messageOf("a@x", feed.Put, noon, "<é>\n\"\x00", typed("text/html")...), head + `"datacontenttype":"text/html","data":"<é>\n\"\u0000"`},
		"no UTF-8":        {messageOf("a@x", feed.Put, noon, "\xff", typed("application/json")...), head + `"datacontenttype":"application/json","data_base64":"` + in64([]byte("\xff")) + `"`},
		"no JSON":         {messageOf("a@x", feed.Put, noon, "{", typed("application/json")...), head + `"datacontenttype":"application/json","data_base64":"` + in64([]byte("{")) + `"`},
		"null":            {messageOf("a@x", feed.Put, noon, "null", typed("application/json")...), head + `"datacontenttype":"application/json","data_base64":"` + in64([]byte("null")) + `"`},
		"deep JSON":       {messageOf("a@x", feed.Put, noon, deep, typed("application/json")...), head + `"datacontenttype":"application/json","data_base64":"` + in64([]byte(deep)) + `"`},
		"no body":         {messageOf("a@x", feed.Put, noon, ""), head + `"datacontenttype":"text/plain"`},
		"DELETE":          {messageOf("a@x", feed.Delete, noon, "", typed("text/plain")...), strings.Replace(head, "put", "delete", 1) + `"method":"DELETE","datacontenttype":"text/plain"`},
		"foreign":         {feed.Record{Time: noon, Key: []byte("k 1"), Body: []byte("{}")}, strings.Replace(head, `"subject":"a@x","contentid":"a@x"`, `"subject":"k%201"`, 1) + `"data":{}`},
		"foreign, no key": {feed.Record{Time: noon, Body: []byte("x")}, strings.Replace(head, `"subject":"a@x","contentid":"a@x",`, "", 1) + `"data_base64":"eA=="`},
		"a tombstone":     {feed.Record{Time: noon, Key: []byte("k"), Tombstone: true}, strings.Replace(strings.Replace(head, `"subject":"a@x","contentid":"a@x"`, `"subject":"k"`, 1), "put", "delete", 1) + `"method":"DELETE"`},
		"of an http-feed": {
			messageOf("a@x", feed.Put, noon, "1", feed.Header{
				{Name: "Content-Type", Value: "application/json"},
				{Name: "source", Value: "/s"},
				{Name: "type", Value: "t"},
				{Name: "subject", Value: "k"},
				{Name: "tenant", Value: "7"},
				{Name: "tenant", Value: "8"},
				{Name: "time", Value: "2026-01-01T00:00:00.50+01:00"},
				{Name: "specversion", Value: "2.0"},
				{Name: "contentid", Value: "first"},
				{Name: "data", Value: "x"},
				{Name: "id", Value: "y"},
				{Name: "method", Value: "DELETE"},
				{Name: "X-Y", Value: "z"},
			}...),
			`"id":"e0-0","specversion":"1.0","type":"t","source":"/s","time":"2026-01-01T00:00:00.50+01:00","subject":"k","contentid":"first","tenant":"7","datacontenttype":"application/json","data":1`,
		},
	} {
		t.Run("case 15: "+name, func(t *testing.T) {
			topic := newTopic()
			topic.add(c.record)
			g := serveTopic(t, topic, as(HTTPFeeds)).get(t, "").want(t, 200)
			if diff := cmp.Diff("[{"+strings.TrimSuffix(c.want, ",")+"}]", g.body); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// followEvents reads a served feed with our own source for http-feeds. readAll starts it again, so that it does not wait
// for events.
func (s *site) followEvents(t *testing.T) (f *follower, readAll func()) {
	t.Helper()
	cfg := httpfeed.Config{Config: source.Defaults()}
	cfg.URL, cfg.Limits.Rate = s.URL+"/feeds/orders", 1e6
	client, err := source.NewClient(cfg.Config, source.Options{})
	must.Succeed(t, err)
	f = &follower{ids: sink.NewIDs(0), client: client, batch: feed.LargestBatch}
	log := slog.New(slog.DiscardHandler)
	return f, func() {
		f.src = &sink.Gate{Source: httpfeed.New(cfg, client, f.ids.Committed, nil, log), IDs: f.ids, Log: log, Fits: func(e []feed.Entity) (int, error) { return len(e), nil }}
		f.all(t)
	}
}

func TestEventRoundTrip(t *testing.T) {
	t.Parallel()
	site, topic := newSite(t), newTopic()
	copied := newTopic()
	bodies := []string{"text", `{"a":[1, "x"]}`, "\xff\x00", "null", "", strings.Repeat("long ", 5000)}
	types := []string{"text/plain", "application/json", "image/png", "application/json; charset", "application/cloudevents+json"}
	var want []feed.Entity
	for hop := range 2 {
		served := serveTopic(t, topic, as(HTTPFeeds))
		site.feed.Store(served.Feed)
		f, readAll := site.followEvents(t)
		defer f.client.CloseIdle()
		for i := 0; hop == 0 && i < 60; i++ {
			op := []feed.Operation{feed.Put, feed.Put, feed.Delete, feed.Patch}[i%4]
			topic.add(messageOf(fmt.Sprint(i), op, later(i), bodies[i%len(bodies)], feed.Field{Name: "Content-Type", Value: types[i%len(types)]}, feed.Field{Name: "tenant", Value: "é"}))
			if i%7 == 0 {
				topic.skip(uint64(i % 5))
				readAll()
			}
		}
		topic.add(feed.Record{Time: noon, Body: []byte(`{"untyped":1}`)})
		readAll()
		entities, err := served.Entities(t.Context(), func() { t.Error("an event is left out") })
		must.Succeed(t, err)
		var expected []feed.Entity
		for e, err := range entities {
			must.Succeed(t, err)
			expected = append(expected, e)
		}
		for i := range f.got {
			f.got[i].Page = ""
			copied.add(feed.Record{Time: noon, Header: message.Header("copy", f.got[i]), Body: f.got[i].Body})
		}
		normal := cmp.Transformer("header", func(h feed.Header) map[string]string {
			m := map[string]string{}
			for _, f := range h {
				m[f.Name] = f.Value
			}
			return m
		})
		text := cmp.Transformer("body", func(b []byte) string { return string(b) })
		t.Run(fmt.Sprintf("case 16: a chain of %d", hop+1), func(t *testing.T) {
			if diff := cmp.Diff(expected, f.got, normal, text); diff != "" || len(expected) < 60 {
				t.Errorf("%d events: %s", len(expected), diff)
			}
			for i, e := range f.got[:len(want)] {
				id, _ := e.Header.Get("contentid")
				if first, _ := want[i].Header.Get("contentid"); id != first && first != "" || string(e.Body) != string(want[i].Body) || e.Op != want[i].Op || !e.Modified.Equal(want[i].Modified) {
					t.Errorf("the copy of a copy has %s %s at %v, want %s %s at %v", id, e.Op, e.Modified, first, want[i].Op, want[i].Modified)
				}
			}
		})
		topic, copied, want = copied, newTopic(), f.got
	}
}

func TestWaitForEvents(t *testing.T) {
	t.Parallel()
	// wait sends n requests that wait, and returns a function that waits for their answers.
	wait := func(t *testing.T, s *served, ctx context.Context, n int, timeout string) (answers func() []*httptest.ResponseRecorder) {
		var all sync.WaitGroup
		list := make([]*httptest.ResponseRecorder, n)
		for i := range n {
			list[i] = httptest.NewRecorder()
			all.Go(func() {
				s.ServeHTTP(list[i], httptest.NewRequestWithContext(ctx, "GET", "/feeds/orders?lastEventId=e0-2&timeout="+timeout, nil))
			})
		}
		return func() []*httptest.ResponseRecorder {
			all.Wait()
			return list
		}
	}
	run := func(name string, test func(t *testing.T, topic *memoryTopic, s *served)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				topic := numberedTopic(3)
				test(t, topic, serveTopic(t, topic, as(HTTPFeeds)))
			})
		})
	}
	for timeout, want := range map[string]time.Duration{"1500": 1500 * time.Millisecond, "90000": time.Minute, "99999999999999999": time.Minute} {
		run("case 15: nothing comes for "+timeout, func(t *testing.T, _ *memoryTopic, s *served) {
			begun, observed := time.Now(), time.Duration(-1)
			s.cfg.Observe = func(_ int, took time.Duration) { observed = took }
			w := wait(t, s, t.Context(), 1, timeout)()[0]
			if took := time.Since(begun); w.Code != 200 || w.Body.String() != "[]" || took != want || w.Header().Get("Cache-Control") != "no-store" || observed != 0 {
				t.Errorf("got %d %s after %v, observed as %v", w.Code, w.Body, took, observed)
			}
		})
	}
	run("case 15: many wait for one event", func(t *testing.T, topic *memoryTopic, s *served) {
		count := func(n *int) (value int) {
			topic.set(func() { value = *n })
			return value
		}
		answers := wait(t, s, t.Context(), 3000, "30000")
		time.Sleep(10 * time.Second)
		if n := count(&topic.spans); n > 300 {
			t.Errorf("the bus was asked %d times", n)
		}
		topic.skip(1) // no message
		time.Sleep(time.Second)
		read, added := count(&topic.reads), time.Now()
		topic.numbered(1)
		for _, w := range answers() {
			if w.Code != 200 || (got{body: w.Body.String()}).eventIDs(t) != "e0-4" {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
		}
		// Clients share a read. One that wakes up after its end makes another.
		if took := time.Since(added); took > 100*time.Millisecond || count(&topic.reads) > read+30 {
			t.Errorf("it took %v, with %d reads", took, count(&topic.reads)-read)
		}
		time.Sleep(time.Second)
		spans := count(&topic.spans)
		if time.Sleep(time.Second); count(&topic.spans) != spans {
			t.Error("the bus is asked although nobody waits")
		}
	})
	run("case 15: the bus does not answer", func(t *testing.T, topic *memoryTopic, s *served) {
		answers := wait(t, s, t.Context(), 2, "30000")
		time.Sleep(time.Second)
		topic.set(func() { topic.away = true })
		if w := answers()[1]; w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
	})
	run("case 15: the topic is created again", func(t *testing.T, topic *memoryTopic, s *served) {
		answers := wait(t, s, t.Context(), 1, "30000")
		time.Sleep(time.Second)
		topic.renew()
		if w := answers()[0]; w.Code != 410 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
	run("case 15: the client leaves", func(t *testing.T, _ *memoryTopic, s *served) {
		ctx, cancel := context.WithCancel(t.Context())
		s.cfg.Observe = func(int, time.Duration) { t.Error("it is observed") }
		answers := wait(t, s, ctx, 1, "30000")
		time.Sleep(time.Second)
		cancel()
		answers()
	})
}

// Clients that wait leave half of the connections to others, and do not delay a shutdown.
func TestWaitsOfServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		stop := serveOn(t, l, NewServer(ServerOptions{Connections: 4}, serveTopic(t, numberedTopic(3), as(HTTPFeeds)).Feed))
		ask := func() *bufio.Reader {
			conn := l.dial()
			t.Cleanup(func() { _ = conn.Close() })
			_, err := fmt.Fprint(conn, "GET /feeds/orders?lastEventId=e0-2&timeout=45000 HTTP/1.1\r\nHost: x\r\n\r\n")
			must.Succeed(t, err)
			return bufio.NewReader(conn)
		}
		wantStatus := func(r *bufio.Reader, status int) {
			t.Helper()
			resp, err := http.ReadResponse(r, nil)
			must.Succeed(t, err)
			if resp.StatusCode != status {
				t.Errorf("got %s, want %d", resp.Status, status)
			}
			_ = resp.Body.Close()
		}
		begun := time.Now()
		first, second := ask(), ask()
		synctest.Wait()
		wantStatus(ask(), http.StatusServiceUnavailable)
		wantStatus(first, http.StatusOK)
		wantStatus(second, http.StatusOK)
		if waited := time.Since(begun); waited != 45*time.Second {
			t.Errorf("waited %v", waited) // longer than the deadline of requests
		}
		third, ended := ask(), make(chan struct{})
		go func() {
			defer close(ended)
			wantStatus(third, http.StatusOK)
		}()
		synctest.Wait()
		begun = time.Now()
		stop()
		if took := time.Since(begun); took >= grace {
			t.Errorf("the shutdown took %v", took)
		}
		<-ended
	})
}
