package serve

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestHTTP(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "case 112: headers of a page", func(t *testing.T) {
		topic := numberedTopic(7)
		s := serveTopic(t, topic, func(c *Config) { c.PublicURL = "https://shop.example/f/" })
		g := s.get(t, "/pages/e0-3-1").want(t, 200)
		g.header.Del("Etag")
		want := http.Header{
			"Content-Type":  {`multipart/mixed; boundary="` + pageBoundary(pageID{"e0", 3, 1}, nil) + `"`},
			"Last-Modified": {"Sun, 01 Mar 2026 12:00:05 GMT"},
			"Link": {
				"<https://shop.example/f/pages/e0-3-1>; rel=self", "<https://shop.example/f/pages/e0-3-0>; rel=prev",
				"<https://shop.example/f/pages/e0-3-2>; rel=next",
			},
			"Cache-Control": {"public, max-age=86400"}, "Vary": {"Accept, Accept-Encoding"}, "Accept-Ranges": {"bytes"},
			"Content-Length": {fmt.Sprint(len(g.body))},
		}
		if fmt.Sprint(g.header) != fmt.Sprint(want) {
			t.Errorf("got %v\nwant %v", g.header, want)
		}
	})
	parallel.Run(t, "case 117: a page with a next one is the same for ever", func(t *testing.T) {
		topic := numberedTopic(7)
		s := serveTopic(t, topic)
		was := s.pages(t)[:2]
		topic.numbered(1000)
		for _, other := range []*served{s, serveTopic(t, topic), serveTopic(t, topic, sized(5))} {
			for _, g := range was {
				if now := other.get(t, g.links(t)["self"]); fmt.Sprint(now) != fmt.Sprint(g) {
					t.Errorf("got %v, was %v", now, g)
				}
			}
		}
	})
	parallel.Run(t, "case 118: a page grows at its end", func(t *testing.T) {
		topic := newTopic()
		s := serveTopic(t, topic, sized(10))
		for last := ""; topic.span.End < 10; {
			topic.numbered(1)
			g := s.get(t, "/latest")
			end := "--" + pageBoundary(pageID{"e0", 10, 0}, nil) + "--\r\n"
			if !strings.HasPrefix(g.body, strings.TrimSuffix(last, end)) || !strings.HasSuffix(g.body, end) {
				t.Errorf("got %q, was %q", g.body, last)
			}
			last = g.body
		}
	})
	parallel.Run(t, "case 119: HEAD", func(t *testing.T) {
		topic := numberedTopic(7)
		for _, s := range []*served{serveTopic(t, topic), serveTopic(t, topic, func(c *Config) { c.Memory = tiny() })} {
			for _, path := range []string{"/latest", "/pages/e0-3-0", "/pages/e0-3-1", "/pages/e0-3-2", "/pages/e0-3-3"} {
				for _, fields := range [][]string{nil, {"Accept-Encoding", "gzip"}, {"If-None-Match", s.get(t, path).header.Get("ETag")}} {
					head, get := s.ask(t, "HEAD", path, fields...), s.get(t, path, fields...)
					if head.status != get.status || fmt.Sprint(head.header) != fmt.Sprint(get.header) {
						t.Errorf("%s: got %v, and for GET %v", path, head, get)
					}
				}
			}
		}
	})
	parallel.Run(t, "case 124: the ETag changes with entities and links", func(t *testing.T) {
		topic := newTopic()
		s := serveTopic(t, topic)
		seen := map[string]bool{}
		look := func(path string, what string) {
			t.Helper()
			g := s.get(t, path).want(t, 200)
			tag := g.header.Get("ETag")
			if seen[tag] || !strings.HasPrefix(tag, `"`) {
				t.Errorf("%s: the ETag is %s again", what, tag)
			}
			seen[tag] = true
			for _, value := range []string{tag, `"x", W/` + tag, "*"} {
				again := s.get(t, path, "If-None-Match", value, "If-Modified-Since", "Sun, 01 Mar 2020 12:00:05 GMT").want(t, 304)
				if fmt.Sprint(again.header["Link"]) != fmt.Sprint(g.header["Link"]) || again.header.Get("ETag") != tag || again.body != "" {
					t.Errorf("%s: got %v, want the links of %v", what, again, g)
				}
			}
			s.get(t, path, "If-None-Match", `"x"`, "If-Modified-Since", "Sun, 01 Mar 2099 12:00:05 GMT").want(t, 200)
		}
		topic.numbered(5)
		look("/pages/e0-3-1", "two entities")
		topic.numbered(1)
		look("/pages/e0-3-1", "three")
		topic.numbered(4)
		look("/pages/e0-3-1", "a next page")
		look("/pages/e0-3-2", "all links")
		topic.trim(3)
		look("/pages/e0-3-2", "no prev link")
	})
	parallel.Run(t, "If-Modified-Since proves nothing for a page that may change within its second", func(t *testing.T) {
		topic := numberedTopic(4)
		s := serveTopic(t, topic)
		since := "Sun, 01 Mar 2099 12:00:05 GMT"
		s.get(t, "/pages/e0-3-0", "If-Modified-Since", since).want(t, 304)
		s.get(t, "/pages/e0-3-1", "If-Modified-Since", since).want(t, 200)
		s.get(t, "/latest", "If-Modified-Since", since).want(t, 200)
	})
	parallel.Run(t, "gzip", func(t *testing.T) {
		topic := newTopic()
		topic.add(messageOf("small", feed.Put, noon, "x"))
		topic.skip(2)
		topic.add(messageOf("large", feed.Put, noon, strings.Repeat("x", 5000)))
		topic.skip(2)
		random := make([]byte, 5000)
		_, _ = rand.NewChaCha8([32]byte{}).Read(random) // which never fails
		topic.add(messageOf("random", feed.Put, noon, string(random)))
		s := serveTopic(t, topic)
		for path, want := range map[string]bool{"/pages/e0-3-0": false, "/pages/e0-3-1": true, "/pages/e0-3-2": false} {
			plain := s.get(t, path)
			for range 2 {
				g := s.get(t, path, "Accept-Encoding", "br, gzip;q=0.5").want(t, 200)
				if packed := g.header.Get("Content-Encoding") == "gzip"; packed != want {
					t.Fatalf("%s: compressed is %v", path, packed)
				} else if !packed {
					continue
				}
				if g.header.Get("ETag") == plain.header.Get("ETag") || g.header.Get("Content-Length") != fmt.Sprint(len(g.body)) {
					t.Errorf("got %v, plain %v", g.header, plain.header)
				}
				r, err := gzip.NewReader(strings.NewReader(g.body))
				must.Succeed(t, err)
				if b, err := io.ReadAll(r); err != nil || string(b) != plain.body {
					t.Errorf("got %q, %v", b, err)
				}
				s.get(t, path, "Accept-Encoding", "gzip", "If-None-Match", g.header.Get("ETag")).want(t, 304)
			}
		}
		for fields, want := range map[string]bool{
			"gzip": true, "": false, "gzip;q=0": false, "*": true, "*;q=0": false, "identity": false, "deflate, GZIP": true, "gzip;q=x": false, "gzip;q=0, *": false,
		} {
			if got := acceptsGzip([]string{fields}); got != want {
				t.Errorf("%q: got %v", fields, got)
			}
		}
	})
	parallel.Run(t, "methods", func(t *testing.T) {
		topic := numberedTopic(1)
		s := serveTopic(t, topic)
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"} {
			if g := s.ask(t, method, "/latest").want(t, 405); g.header.Get("Allow") != "GET, HEAD" || g.body != "A feed is read with GET and HEAD.\n" {
				t.Errorf("got %v", g)
			}
		}
	})
	parallel.Run(t, "hosts that no link can have", func(t *testing.T) {
		topic := numberedTopic(1)
		s := serveTopic(t, topic)
		for _, host := range []string{"a;b", "a,b", "a>b", ""} {
			s.memoryless(t, host)
		}
	})
	parallel.Run(t, "credentials", func(t *testing.T) {
		topic := numberedTopic(4)
		bearer := serveTopic(t, topic, protected(Auth{Bearer: "s3cret"}))
		basic := serveTopic(t, topic, protected(Auth{Username: "ann", Password: "s3:cret"}))
		for _, test := range []struct {
			s     *served
			value string
			want  int
		}{
			{bearer, "", 401},
			{bearer, "Bearer s3cret", 200},
			{bearer, "bearer  s3cret ", 200},
			{bearer, "Bearer s3cre", 401},
			{bearer, "Basic s3cret", 401},
			{bearer, "Bearer", 401},
			{basic, "", 401},
			{basic, "Basic YW5uOnMzOmNyZXQ=", 200},
			{basic, "Basic YW5uOnMzOmNyZXR0", 401},
			{basic, "Basic Ym9iOnMzOmNyZXQ=", 401},
			{basic, "Bearer s3:cret", 401},
			{basic, "Basic !", 401},
		} {
			for _, path := range []string{"/latest", "/pages/e0-3-0", "/no"} {
				want := test.want
				if path == "/no" && want == 200 {
					want = 404
				}
				g := test.s.get(t, path, "Authorization", test.value).want(t, want)
				if want == 401 && (g.header.Get("WWW-Authenticate") == "" || strings.Contains(g.body, "m0")) {
					t.Errorf("got %v", g)
				}
				if want == 200 && !strings.HasPrefix(g.header.Get("Cache-Control"), "private") {
					t.Errorf("others may keep it: %v", g.header)
				}
			}
		}
	})
}

// memoryless asks with a Host.
func (s *served) memoryless(t tester, host string) {
	t.Helper()
	r, err := http.NewRequest("GET", "http://x/feeds/orders/latest", nil)
	must.Succeed(t, err)
	r.Host = host
	if _, err := s.cfg.linkBase(r); err == nil {
		t.Errorf("the host %q is fit for links", host)
	}
}

// tiny is a PageCache that holds no page.
func tiny() *PageCache { return NewPageCache(160) }

func TestTheBusIsAway(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(4)
	s := serveTopic(t, topic)
	s.get(t, "/pages/e0-3-0").want(t, 200)
	topic.set(func() { topic.away = true })
	for _, path := range []string{"/latest", "/pages/e0-3-0", "/pages/e0-3-1"} {
		for range 3 {
			g := s.get(t, path).want(t, 503)
			if g.header.Get("Retry-After") != "5" || !strings.Contains(g.body, "bus does not answer") || g.header.Get("Cache-Control") != "" {
				t.Errorf("got %v", g)
			}
		}
	}
	topic.set(func() { topic.away = false })
	s.get(t, "/latest").want(t, 200)
	s.get(t, "/pages/e0-3-1").want(t, 200)
	if got := s.log.String(); strings.Count(got, "cannot be read") != 1 || strings.Count(got, "can be read again") != 1 || !strings.Contains(got, "error=\"the bus is away\"") {
		t.Errorf("logged %s", got)
	}
	// In the middle of a page.
	topic.set(func() { topic.during = func() { topic.set(func() { topic.away = true }) } })
	topic.numbered(3)
	s.get(t, "/latest").want(t, 503)
	topic.set(func() { topic.away = false })
	s.wantPages(t, "m0 m1 m2 | m3 m4 m5 | m6")
}

func TestTheTopicGoesAndComesBack(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(5)
	s := serveTopic(t, topic)
	s.walk(t)
	topic.set(func() { topic.gone = true })
	if g := s.get(t, "/latest").want(t, 404); g.body != "The topic of this feed does not exist.\n" {
		t.Errorf("got %v", g)
	}
	s.get(t, "/pages/e0-3-0").want(t, 410)
	topic.renew()
	s.get(t, "/latest").want(t, 204)
	topic.numbered(5)
	s.get(t, "/pages/e0-3-0").want(t, 410)
	if got, want := s.walk(t), "m0 m1 m2 | m3 m4"; got != want {
		t.Errorf("got %s", got)
	}
	if self := s.get(t, "/latest").links(t)["self"]; !strings.HasSuffix(self, "/pages/e1-3-1") {
		t.Errorf("the newest page is %s", self)
	}
	// While a page is read.
	topic.set(func() { topic.during = func() { topic.renew(); topic.numbered(2) } })
	topic.numbered(3)
	if g := s.get(t, "/latest").want(t, 200); g.ids() != "m0 m1" || !strings.HasSuffix(g.links(t)["self"], "/pages/e2-3-0") {
		t.Errorf("got %v", g)
	}
}

func TestRetentionStrikesWhileAPageIsRead(t *testing.T) {
	t.Parallel()
	for first := uint64(1); first <= 10; first++ {
		topic := numberedTopic(10)
		s := serveTopic(t, topic)
		topic.during = func() { topic.trim(first) }
		switch g := s.get(t, "/pages/e0-3-2"); {
		case first <= 3:
			g.want(t, 200)
			if g.ids() != "m6 m7 m8" {
				t.Errorf("from %d on: got %s", first, g.ids())
			}
		default:
			// A page that was read without its beginning is never served.
			if g.status == 200 && g.ids() != "m6 m7 m8" {
				t.Errorf("from %d on: got %s", first, g.ids())
			}
		}
		s.get(t, "/pages/e0-3-2").want(t, map[bool]int{true: 200, false: 410}[first <= 3])
	}
}

// A request meets a page as it was before an append, or after it.
func TestRequestsWhileTheTopicGrows(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "case 127: a request in the middle of an append", func(t *testing.T) {
		topic := newTopic()
		s := serveTopic(t, topic, sized(7))
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					g := s.get(t, "/latest")
					if g.status == 204 {
						continue
					}
					var want []string
					var k int
					if _, err := fmt.Sscanf(g.links(t)["self"], "http://feed.example/feeds/orders/pages/e0-7-%d", &k); err != nil {
						t.Error(err)
						return
					}
					for i := range len(strings.Fields(g.ids())) {
						want = append(want, fmt.Sprintf("m%d", k*7+i))
					}
					if g.status != 200 || g.ids() != strings.Join(want, " ") || g.header.Get("Content-Length") != fmt.Sprint(len(g.body)) {
						t.Errorf("got %v", g)
						return
					}
				}
			})
		}
		for range 300 {
			topic.numbered(1)
		}
		close(done)
		wg.Wait()
	})
}

func TestManyClientsAskTheBusOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(10)
		f := serveTopic(t, topic).Feed
		topic.slow = make(chan struct{})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				p, err := f.builder.findPage(t.Context(), pageKey{feed: f.cfg, id: pageID{"e0", 3, 0}})
				if err != nil || p.entities != 3 {
					t.Errorf("got %v, %v", p, err)
					return
				}
				f.builder.memory.releasePage(p)
			})
		}
		synctest.Wait() // all of them wait
		close(topic.slow)
		wg.Wait()
		// Of the page, with the message behind it for the link.
		if topic.reads != 1 || topic.read != 4 {
			t.Errorf("there were %d readings of %d messages", topic.reads, topic.read)
		}
		if f.builder.memory.used <= 0 || len(f.builder.memory.pages) != 1 {
			t.Errorf("%d bytes are used by %d pages", f.builder.memory.used, len(f.builder.memory.pages))
		}
		for _, at := range f.builder.memory.pages {
			if p := at.Value.(*page); p.refs != 0 {
				t.Errorf("%d still hold the page", p.refs)
			}
		}
	})
}

// The client that asked first may disconnect. The others get the page whose build it
// started.
func TestFirstClientDisconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(4)
		topic.slow = make(chan struct{})
		f := serveTopic(t, topic).Feed
		ctx, leave := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				p, err := f.builder.findPage(ctx, pageKey{feed: f.cfg, id: pageID{"e0", 3, 0}})
				if err == nil {
					f.builder.memory.releasePage(p)
				}
				errs <- err
			}()
			synctest.Wait()
		}
		leave()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		close(topic.slow)
		if err := <-errs; err != nil || topic.reads != 1 {
			t.Errorf("who stayed got %v, after %d readings", err, topic.reads)
		}
	})
}

// The time of a document at /latest is a validator if the document before it has another time. Times may
// repeat and run back. A page of datareplication has the time of its last entity, which may have been there
// before.
func TestIfModifiedSinceOfTheNewestPage(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{DataReplication, Atom, RSS} {
		for seed := range uint64(30) {
			random := rand.New(rand.NewPCG(seed, 0))
			topic := newTopic()
			s := serveTopic(t, topic, as(format), sized(10))
			type version struct{ modified, body string }
			var versions []version
			unchanged, second := 0, 0
			for i := range 40 {
				second += random.IntN(5) - 1
				topic.add(messageOf(fmt.Sprintf("urn:x:%d", i), feed.Put, later(second), fmt.Sprint(i)))
				g := s.get(t, "/latest").want(t, 200)
				versions = append(versions, version{g.header.Get("Last-Modified"), g.body})
				for _, v := range versions[max(0, i-1):] {
					if s.get(t, "/latest", "If-Modified-Since", v.modified).status == 200 {
						continue
					}
					if unchanged++; v.body != g.body {
						t.Fatalf("%s, seed %d: version %d is taken for another of %s", format, seed, i, v.modified)
					}
				}
				for _, other := range []string{"Sun, 01 Mar 2099 12:00:05 GMT", "Sun, 01 Mar 2020 12:00:05 GMT"} {
					s.get(t, "/latest", "If-Modified-Since", other).want(t, 200)
				}
			}
			if unchanged >= 5 != (format != DataReplication) {
				t.Errorf("%s, seed %d: 304 for %d of 40 versions", format, seed, unchanged)
			}
		}
	}
}

// A page is sent in full: a range of the compressed one could be joined with one that is not.
func TestNoRangeOfAPage(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for i := range 4 {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i), strings.Repeat("x", 5000)))
	}
	for _, s := range []*served{serveTopic(t, topic), serveTopic(t, topic, func(c *Config) { c.Memory = tiny() })} {
		for _, path := range []string{"/pages/e0-3-0", "/latest"} {
			for _, encoding := range []string{"identity", "gzip"} {
				whole := s.get(t, path, "Accept-Encoding", encoding).want(t, 200)
				for _, fields := range [][]string{{"bytes=2-9"}, {"bytes=0-1,4-9"}, {"bytes=99999-"}, {"bytes=2-", "If-Range", whole.header.Get("ETag")}} {
					if g := s.get(t, path, append([]string{"Accept-Encoding", encoding, "Range"}, fields...)...).want(t, 200); g.body != whole.body {
						t.Errorf("%s in %s: %d of %d bytes", path, encoding, len(g.body), len(whole.body))
					}
				}
			}
		}
	}
}

func TestTheTopicIsAskedNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(2)
		topic.during = func() { topic.numbered(1) }
		s := serveTopic(t, topic)
		r := httptest.NewRequest("GET", "/feeds/orders/latest", nil)
		look := func() string {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return got{body: w.Body.String()}.ids()
		}
		for range 1000 {
			look()
		}
		// At first, and once more when the page has been read.
		if topic.spans != 2 {
			t.Errorf("the topic was asked %d times", topic.spans)
		}
		for range 10 { // it grows while the page is made, and after that
			topic.set(func() { topic.during = func() { topic.numbered(1) } })
			if got := look(); got != "m0 m1" || topic.reads != 1 {
				t.Errorf("got %s, after %d readings", got, topic.reads)
			}
			topic.during()
		}
		time.Sleep(spanLifetime)
		if got := look(); got != "m12" {
			t.Errorf("got %s", got)
		}
	})
}

// A page that is read while it is sent is cut where it is no longer whole, for all
// to see.
func TestRetentionStrikesWhileAPageIsSent(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(10)
	s := serveTopic(t, topic, func(c *Config) { c.Memory = tiny() })
	url, stop := listen(t, NewServer(ServerOptions{}, s.Feed).Serve)
	defer stop()
	for _, strike := range []bool{false, true} {
		resp, err := http.Head(url + "/feeds/orders/pages/e0-3-2")
		must.Succeed(t, err)
		resp.Body.Close()
		if strike {
			topic.set(func() { topic.during = func() { topic.trim(9) } })
		}
		resp, err = http.Get(url + "/feeds/orders/pages/e0-3-2")
		must.Succeed(t, err)
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if whole := err == nil && resp.StatusCode == 200; whole == strike {
			t.Errorf("got %d, %v", resp.StatusCode, err)
		}
	}
}

// Whoever leaves before there is an answer has not got any, and is not counted.
func TestClientDisconnectsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(3)
		topic.slow = make(chan struct{})
		var statuses []int
		s := serveTopic(t, topic, func(c *Config) {
			c.Observe = func(status int, _ time.Duration) { statuses = append(statuses, status) }
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, path := range []string{"/latest", "/pages/e0-3-0"} {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/feeds/orders"+path, nil))
		}
		close(topic.slow)
		for _, path := range []string{"/latest", "/x"} {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/feeds/orders"+path, nil))
		}
		if got := fmt.Sprint(statuses); got != "[200 404]" {
			t.Errorf("counted %v", got)
		}
	})
}
