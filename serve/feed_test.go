package serve

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// served is a feed that a test asks.
type served struct {
	*Feed
	topic *memoryTopic
	log   *logbuffer.Buffer
}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// serveTopic serves a topic as the feed orders. Spans are asked for every time.
func serveTopic(t tester, topic *memoryTopic, edit ...func(*Config)) *served {
	t.Helper()
	var log logbuffer.Buffer
	cfg := Config{Name: "orders", PageSize: 3, Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, edit := range edit {
		edit(&cfg)
	}
	f, err := New(cfg, topic)
	must.Succeed(t, err)
	f.builder.ahead = 0 // topics count the messages that are read
	return &served{f, topic, &log}
}

// protected requires credentials.
func protected(a Auth) func(*Config) {
	return func(c *Config) { c.ReadAuth = func() (Auth, error) { return a, nil } }
}

func sized(n int) func(*Config) { return func(c *Config) { c.PageSize = n } }

// got is an answer.
type got struct {
	status int
	header http.Header
	body   string
}

// ask asks for a path, or for a URL. The path may lack that of the feed. It does not wait until the cached
// span of the topic is renewed.
func (s *served) ask(t tester, method, path string, fields ...string) got {
	t.Helper()
	s.builder.spans.mu.Lock()
	s.builder.spans.at = time.Time{}
	s.builder.spans.mu.Unlock()
	if !strings.HasPrefix(path, "http") {
		path = "http://feed.example/feeds/" + s.cfg.Name + strings.TrimPrefix(path, s.cfg.feedPath())
	}
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	must.Succeed(t, err)
	return got{w.Code, w.Result().Header, string(body)}
}

// latest is where readers begin.
const latest = "http://feed.example/feeds/orders/latest"

func (s *served) get(t tester, path string, fields ...string) got {
	t.Helper()
	return s.ask(t, http.MethodGet, path, fields...)
}

var linkValue = regexp.MustCompile(`^<([^<>;, ]+)>; rel=(self|prev|next)$`)

// links are the links of a page, by relation. Each has a line of its own.
func (g got) links(t tester) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, line := range g.header["Link"] {
		m := linkValue.FindStringSubmatch(line)
		if m == nil || found[m[2]] != "" {
			t.Fatalf("link %q", line)
		}
		found[m[2]] = m[1]
	}
	return found
}

var idLine = regexp.MustCompile(`(?m)^Content-ID: (.*)\r$`)

// ids are the Content-IDs of a page.
func (g got) ids() string {
	var ids []string
	for _, m := range idLine.FindAllStringSubmatch(g.body, -1) {
		ids = append(ids, strings.TrimSuffix(m[1], "@x"))
	}
	return strings.Join(ids, " ")
}

func (g got) want(t tester, status int) got {
	t.Helper()
	if g.status != status {
		t.Fatalf("got %d %v %q, want %d", g.status, g.header, g.body, status)
	}
	return g
}

// pages walks from the newest page to the oldest, and returns them from there on.
func (s *served) pages(t tester) []got {
	t.Helper()
	var pages []got
	at, newer := "/latest", ""
	for n := 0; ; n++ {
		g := s.get(t, at).want(t, 200)
		l := g.links(t)
		if newer != "" && l["next"] != newer {
			t.Fatalf("%s leads on to %s, and %s leads back to it", l["self"], l["next"], newer)
		}
		pages = append([]got{g}, pages...)
		if l["prev"] == "" {
			return pages
		}
		if n > 1000 {
			t.Fatalf("there is no oldest page")
		}
		at, newer = l["prev"], l["self"]
	}
}

// walk returns the IDs of all pages, with a bar between pages.
func (s *served) walk(t tester) string {
	t.Helper()
	var all []string
	for _, g := range s.pages(t) {
		all = append(all, g.ids())
	}
	return strings.Join(all, " | ")
}

// wantPages compares the IDs of all pages, with a bar between pages.
func (s *served) wantPages(t tester, want string) {
	t.Helper()
	if got := s.walk(t); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "case 99: no messages", func(t *testing.T) {
		topic := newTopic()
		s := serveTopic(t, topic)
		g := s.get(t, "/latest").want(t, 204)
		if g.body != "" || len(g.links(t)) > 0 {
			t.Errorf("got %v", g)
		}
		topic.skip(7)
		s.get(t, "/latest").want(t, 204)
		s.get(t, "/pages/e0-3-0").want(t, 404)
	})
	for name, test := range map[string]struct {
		bodies []int // their sizes
		want   string
	}{
		"case 100: bytes do not cut pages, as a page is a range of positions": {[]int{4, 4, 4, 6, 15, 1}, "m0 m1 | m2 m3 | m4 m5"},
		"case 101: the number of messages does":                               {[]int{1, 1, 1, 1, 1}, "m0 m1 | m2 m3 | m4"},
		"case 102: a large message is neither refused nor cut":                {[]int{1, 5_000_000, 1}, "m0 m1 | m2"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := newTopic()
			for i, n := range test.bodies {
				topic.add(messageOf(fmt.Sprintf("m%d@x", i), feed.Put, noon, strings.Repeat("x", n)))
			}
			s := serveTopic(t, topic, sized(2), func(c *Config) { c.Memory = NewPageCache(1 << 20) })
			if got := s.walk(t); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			i := 0
			for _, g := range s.pages(t) {
				p, err := pageOf(g.header)
				must.Succeed(t, err)
				parts, err := partsOf([]byte(g.body), p.boundary)
				must.Succeed(t, err)
				for _, part := range parts {
					if want := strings.Repeat("x", test.bodies[i]); part.body != want {
						t.Errorf("message %d has %d bytes, want %d", i, len(part.body), len(want))
					}
					i++
				}
			}
		})
	}
	parallel.Run(t, "case 103: there is room on the newest page", func(t *testing.T) {
		topic := numberedTopic(1)
		s := serveTopic(t, topic)
		one := s.get(t, "/latest")
		topic.numbered(1)
		two := s.get(t, "/latest")
		if one.links(t)["self"] != two.links(t)["self"] || two.ids() != "m0 m1" {
			t.Errorf("got %v, then %v", one, two)
		}
	})
	parallel.Run(t, "case 104: the newest page is full", func(t *testing.T) {
		topic := numberedTopic(3)
		s := serveTopic(t, topic)
		full := s.get(t, "/latest")
		if full.links(t)["next"] != "" {
			t.Errorf("there is a next page already: %v", full)
		}
		topic.numbered(1)
		after := s.get(t, full.links(t)["self"])
		newest := s.get(t, "/latest")
		if after.body != full.body || after.header.Get("Last-Modified") != full.header.Get("Last-Modified") {
			t.Errorf("the page became %v from %v", after, full)
		}
		if after.links(t)["next"] != newest.links(t)["self"] || newest.links(t)["prev"] != after.links(t)["self"] {
			t.Errorf("got the links %v and %v", after.links(t), newest.links(t))
		}
	})
	parallel.Run(t, "case 105: several pages at once", func(t *testing.T) {
		topic := numberedTopic(2)
		s := serveTopic(t, topic)
		before := s.walk(t)
		// They are there for readers when the bus says so, all of them.
		topic.set(func() {
			for i := 2; i < 10; i++ {
				r := messageOf(fmt.Sprintf("m%d@x", i), feed.Put, noon.Add(time.Minute), "x")
				r.Position = uint64(i)
				topic.records = append(topic.records, r)
			}
		})
		if got := s.walk(t); got != before {
			t.Errorf("got %s of what is not final", got)
		}
		topic.set(func() { topic.span.End = 10 })
		s.wantPages(t, "m0 m1 m2 | m3 m4 m5 | m6 m7 m8 | m9")
	})
	parallel.Run(t, "case 106: a crash at any time", func(t *testing.T) {
		topic := numberedTopic(8)
		want := serveTopic(t, topic).walk(t)
		for range 3 { // there is nothing but the topic
			topic.set(func() { topic.away = true })
			s := serveTopic(t, topic)
			s.get(t, "/latest").want(t, 503)
			topic.set(func() { topic.away = false })
			s.wantPages(t, want)
		}
	})
	parallel.Run(t, "case 120: links around what has no messages", func(t *testing.T) {
		topic := newTopic()
		topic.skip(7)
		topic.numbered(2)
		topic.skip(100)
		topic.numbered(1)
		topic.skip(8)
		s := serveTopic(t, topic)
		s.wantPages(t, "m7 m8 | m109")
		pages := s.pages(t)
		if got, want := pages[0].links(t), map[string]string{
			"self": "http://feed.example/feeds/orders/pages/e0-3-2", "next": "http://feed.example/feeds/orders/pages/e0-3-36",
		}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.get(t, "/pages/e0-3-10").want(t, 404)
	})
	parallel.Run(t, "case 121: retention", func(t *testing.T) {
		topic := numberedTopic(13)
		s := serveTopic(t, topic)
		pages := s.pages(t)
		for first := uint64(3); first <= 13; first++ {
			topic.trim(first)
			// Page k is there as long as all of page k-1 is, and the newest one is
			// always there.
			oldest := min(int(first+2)/3+1, 4)
			if first == 13 {
				s.get(t, "/latest").want(t, 204)
				oldest = 5
			}
			for k, was := range pages {
				g := s.get(t, was.links(t)["self"])
				switch {
				case k < oldest:
					g.want(t, 410)
					if !strings.Contains(g.body, "/feeds/orders/latest") {
						t.Errorf("got %q", g.body)
					}
					continue
				case k == oldest && k > 0 && g.want(t, 200).links(t)["prev"] != "":
					t.Errorf("the oldest page is %d, and leads back to %s", k, g.links(t)["prev"])
				}
				if g.body != was.body {
					t.Errorf("from %d on, page %d is %q, and was %q", first, k, g.body, was.body)
				}
			}
		}
	})
	parallel.Run(t, "case 121: the first page goes with its first message, and the second with it", func(t *testing.T) {
		topic := numberedTopic(10)
		s := serveTopic(t, topic)
		s.walk(t)
		topic.trim(1)
		s.wantPages(t, "m6 m7 m8 | m9")
		s.get(t, "/pages/e0-3-0").want(t, 410)
		s.get(t, "/pages/e0-3-1").want(t, 410)
	})
	parallel.Run(t, "case 121: a message of the first page comes again on the second", func(t *testing.T) {
		topic := newTopic()
		for _, id := range strings.Fields("a b c d a e f") {
			topic.add(messageOf(id, feed.Put, noon, id))
		}
		s := serveTopic(t, topic)
		s.wantPages(t, "a b c | d e | f")
		topic.trim(1)
		s.get(t, "/pages/e0-3-1").want(t, 410)
	})
	parallel.Run(t, "a page for each position, the first page deleted", func(t *testing.T) {
		topic := numberedTopic(3)
		s := serveTopic(t, topic, sized(1))
		s.walk(t)
		topic.trim(1)
		s.wantPages(t, "m2")
		s.get(t, "/pages/e0-1-0").want(t, 410)
	})
	parallel.Run(t, "positions that count from 1, a page each", func(t *testing.T) {
		topic := newTopic()
		topic.skip(1)
		topic.numbered(3)
		serveTopic(t, topic, sized(1)).wantPages(t, "m1 | m2 | m3")
	})
	parallel.Run(t, "case 122: pages that there are not", func(t *testing.T) {
		topic := numberedTopic(4)
		s := serveTopic(t, topic)
		for _, path := range []string{
			"/pages/e0-3-2", "/pages/e0-3-99999999", "/pages/e0-3-18446744073709551616", "/pages/e0-3-00", "/pages/e0-0-0",
			"/pages/e0-10001-0", "/pages/e0-3", "/pages/", "/pages/x", "/pages/e0-3-0/", "/other", "/", "/snapshots/latest", "/pages/E0-3-0",
			"/pages/e0-3--1", "/pages/e0-+3-0",
		} {
			if g := s.get(t, path).want(t, 404); !strings.Contains(g.body, "/feeds/orders/latest.\n") {
				t.Errorf("%s: got %q", path, g.body)
			}
		}
		newest := s.get(t, "/latest").want(t, 200)
		if self := newest.links(t)["self"]; self != "http://feed.example/feeds/orders/pages/e0-3-1" || s.get(t, self).body != newest.body {
			t.Errorf("the newest page is at %s", self)
		}
	})
	parallel.Run(t, "case 125: two copies", func(t *testing.T) {
		topic := newTopic()
		one, two := serveTopic(t, topic), serveTopic(t, topic)
		for range 10 {
			topic.numbered(1)
			a, b := one.pages(t), two.pages(t)
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("got %v and %v", a, b)
			}
		}
	})
	parallel.Run(t, "case 126: what is wrong with a configuration", func(t *testing.T) {
		for _, test := range []struct {
			edit func(*Config)
			want string
		}{
			{sized(-1), "page_size: must be between 1 and 10000"},
			{sized(10_001), "page_size: must be between 1 and 10000"},
			{func(c *Config) { c.Name = "Orders" }, `name: "Orders" must be of lower case letters, digits and -`},
			{func(c *Config) { c.PublicURL = "shop.example" }, `public_url: "shop.example" must be an http or https URL`},
			{func(c *Config) { c.PublicURL = "http://x/a;b" }, `public_url: "http://x/a;b" must not contain any of`},
			{func(c *Config) { c.Snapshot.Every = -1 }, "snapshot.every: must not be negative"},
			{func(c *Config) { c.Snapshot.Every, c.Format = 1, Atom }, "snapshot: is only for feeds of the format datareplication"},
		} {
			cfg := Config{Name: "orders"}
			test.edit(&cfg)
			_, err := New(cfg, newTopic())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		}
	})
}
