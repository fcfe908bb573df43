package serve

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// site is a server of one feed, for our own source.
type site struct {
	*httptest.Server
	feed atomic.Pointer[Feed]
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := new(site)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := s.feed.Load()
		f.builder.spans.mu.Lock()
		f.builder.spans.at = time.Time{}
		f.builder.spans.mu.Unlock()
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// crawler reads a served feed with our own source.
type crawler struct {
	client     *source.Client
	cfg        datareplication.Config
	src        *datareplication.Source
	batch      feed.Limits
	cursor     feed.Cursor
	got        []feed.Entity
	violations []feed.Violation
}

func (s *site) crawl(t tester) *crawler {
	t.Helper()
	return crawlAt(t, s.URL+"/feeds/orders/latest")
}

// crawlAt returns a crawler of the feed at a URL.
func crawlAt(t tester, url string) *crawler {
	t.Helper()
	cfg := datareplication.Config{Config: source.Defaults()}
	cfg.URL = url
	cfg.Limits.Rate = 1e6
	client, err := source.NewClient(cfg.Config, source.Options{})
	must.Succeed(t, err)
	c := &crawler{client: client, cfg: cfg}
	c.restart()
	return c
}

func (c *crawler) restart() {
	c.src = datareplication.New(c.cfg, c.client, slog.New(slog.DiscardHandler))
}

// step reads one batch.
func (c *crawler) step(ctx context.Context) (more bool, err error) {
	batch, err := c.src.Next(ctx, c.cursor, c.batch)
	if err != nil {
		return false, err
	}
	c.cursor = batch.Cursor
	for _, e := range batch.Entities {
		e.Body = bytes.Clone(e.Body)
		c.got = append(c.got, e)
	}
	c.violations = append(c.violations, batch.Violations...)
	return batch.More, nil
}

// all reads to the end of the feed.
func (c *crawler) all(t tester) {
	t.Helper()
	for n, more := 0, true; more || len(c.got) > n; {
		n = len(c.got)
		var err error
		if more, err = c.step(context.Background()); err != nil {
			t.Fatalf("after %s: %v", c.ids(), err)
		}
	}
}

func (c *crawler) ids() string {
	var ids []string
	for _, e := range c.got {
		ids = append(ids, strings.TrimSuffix(e.ID, "@x"))
	}
	return strings.Join(ids, " ")
}

// TestFeedKeepsItsRules draws topics, page sizes, restarts and retention, and
// checks the specification's rules for pages, and that a reader that starts anywhere in
// between gets every entity once, in order.
func TestFeedKeepsItsRules(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	rapid.Check(t, func(t *rapid.T) { checkRules(t, s) })
}

func checkRules(t *rapid.T, site *site) {
	sizes := rapid.SampledFrom([]int{1, 2, 3, 7})
	size := sizes.Draw(t, "size")
	largest := size
	disorder := size // in positions, at most one page of the smallest size
	topic := newTopic()
	serve := func() *served {
		s := serveTopic(t, topic, sized(size), func(c *Config) {
			if rapid.Bool().Draw(t, "memory is small") {
				c.Memory = NewPageCache(1 << 13)
			}
		})
		site.feed.Store(s.Feed)
		return s
	}
	s := serve()
	crawl := site.crawl(t)
	var want []string             // the IDs that are to be read
	var positions []uint64        // of the messages of want
	bodies := map[string]string{} // of pages that have a next one, by their self link
	gone := map[string]bool{}

	read := func() {
		if _, err := crawl.step(t.Context()); err != nil {
			t.Fatalf("after %s: %v", crawl.ids(), err)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(t, "messages") {
				i := topic.span.End
				r := feed.Record{Time: later(int(i) * 2), Body: fmt.Appendf(nil, "body %d", i)}
				id := fmt.Sprintf("%d.e0@orders", i)
				if rapid.Bool().Draw(t, "ours") {
					id = fmt.Sprintf("m%d@x", i)
					// No more than a page late.
					late := rapid.IntRange(0, 2*disorder-1).Draw(t, "late")
					r = messageOf(id, feed.Put, r.Time.Add(-time.Duration(late)*time.Second), string(r.Body))
					r.Time = later(int(i) * 2)
				}
				topic.add(r)
				want, positions = append(want, strings.TrimSuffix(id, "@x")), append(positions, i)
			}
		},
		"skip": func(t *rapid.T) { topic.skip(rapid.Uint64Range(1, 10).Draw(t, "positions")) },
		"trim": func(t *rapid.T) {
			if len(crawl.got) == 0 {
				return
			}
			// The reader's page stays, by whatever size it reads.
			at := positions[len(crawl.got)-1]
			n := uint64(largest)
			if k := at / n; k > 1 {
				topic.trim(rapid.Uint64Range(0, (k-1)*n).Draw(t, "first"))
			}
		},
		"restart": func(t *rapid.T) {
			if rapid.Bool().Draw(t, "another size") && disorder == size {
				size = max(size, sizes.Draw(t, "new size"))
				largest = max(largest, size)
			}
			s = serve()
		},
		"read": func(*rapid.T) { read() },
		"restart the reader": func(*rapid.T) {
			crawl.restart()
			read()
		},
		"": func(t *rapid.T) {
			if len(topic.records) == 0 {
				s.get(t, "/latest").want(t, 204)
				return
			}
			last := -1 << 62
			for _, g := range s.pages(t) {
				times := g.times(t)
				for _, at := range strings.Fields(times) {
					n, err := strconv.Atoi(at)
					if err != nil || n < last {
						t.Fatalf("time runs back from %d to %s", last, times)
					}
					last = n
				}
				l := g.links(t)
				if body, ok := bodies[l["self"]]; ok && body != g.body {
					t.Fatalf("%s was %q and is %q", l["self"], body, g.body)
				}
				if l["next"] != "" {
					bodies[l["self"]] = g.body
				}
				if g.ids() == "" || gone[l["self"]] {
					t.Fatalf("got %v", g)
				}
			}
			for self, body := range bodies {
				switch g := s.get(t, self); {
				case g.status == 410:
					gone[self] = true
				case gone[self] || g.status != 200 || g.body != body:
					t.Fatalf("%s was %q and is %v", self, body, g)
				}
			}
		},
	})
	crawl.all(t)
	crawl.client.CloseIdle()
	if got := crawl.ids(); got != strings.Join(want, " ") {
		t.Fatalf("read %s, want %s", got, strings.Join(want, " "))
	}
	if len(crawl.violations) > 0 {
		t.Fatalf("the reader sees %v", crawl.violations)
	}
}

// A feed that is copied and served again is the same feed.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.OneOf(rapid.SampledFrom([]string{"X-A", "x-a", "Link", "ETag", "Nats-Rollup", "Status", "Feedbridge-Page", "Operation-Types"}),
			rapid.StringMatching(`[A-Za-z!#$%&'*+.^_|~-]{1,12}`))
		values := rapid.StringMatching(`([!-~é]([ -~é\t]{0,20}[!-~])?)?`)
		topic := newTopic()
		var want []feed.Entity
		at := noon
		for i := range rapid.IntRange(1, 12).Draw(t, "entities") {
			at = at.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "later")) * time.Second)
			e := feed.Entity{
				ID:       rapid.StringMatching(`<?[a-z~é;,"]{1,5}`).Draw(t, "id") + fmt.Sprint(i),
				Op:       rapid.SampledFrom([]feed.Operation{feed.Put, feed.Patch, feed.Delete}).Draw(t, "op"),
				Modified: at,
				Body:     rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("\r\n-")))).Draw(t, "body"),
			}
			for range rapid.IntRange(0, 4).Draw(t, "fields") {
				if name := names.Draw(t, "name"); standard(name) < 0 {
					e.Header = append(e.Header, feed.Field{Name: name, Value: values.Draw(t, "value")})
				}
			}
			e.Header = append(e.Header,
				feed.Field{Name: "Content-Type", Value: "text/x"}, feed.Field{Name: "Content-ID", Value: e.ID},
				feed.Field{Name: "last-modified", Value: at.Format(http.TimeFormat)}, feed.Field{Name: "Operation-Type", Value: "http-equiv=" + string(e.Op)},
				feed.Field{Name: "Content-Length", Value: fmt.Sprint(len(e.Body))})
			e.Header = rapid.Permutation(e.Header).Draw(t, "header")
			want = append(want, e)
			topic.add(feed.Record{Time: at.Add(time.Hour), Header: message.Header("orders", e), Body: e.Body})
		}
		site.feed.Store(serveTopic(t, topic, sized(rapid.IntRange(1, 5).Draw(t, "size"))).Feed)
		c := site.crawl(t)
		defer c.client.CloseIdle()
		c.all(t)
		for i := range c.got {
			c.got[i].Page = ""
		}
		if diff := cmp.Diff(want, c.got, cmp.Transformer("empty", func(b []byte) string { return string(b) })); diff != "" {
			t.Fatal(diff)
		}
		for _, v := range c.violations {
			if v.Kind != "content_transfer_encoding" {
				t.Fatalf("the reader sees %v", v)
			}
		}
	})
}

// Positions in a feed that start at a time or behind an ID.
func TestStarts(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	topic := numberedTopic(10)
	site.feed.Store(serveTopic(t, topic).Feed)
	for start, want := range map[string]string{
		"beginning": "m0 m1 m2 m3 m4 m5 m6 m7 m8 m9", "2026-03-01T12:00:04Z": "m4 m5 m6 m7 m8 m9", "id:m4@x@2026-03-01T12:00:04Z": "m5 m6 m7 m8 m9",
		"id:m0@x@2026-03-01T12:00:00Z": "m1 m2 m3 m4 m5 m6 m7 m8 m9", "now": "",
	} {
		t.Run("from "+start, func(t *testing.T) {
			c := site.crawl(t)
			var err error
			if c.cfg.Start, err = source.ParseStart(start); err != nil {
				t.Fatal(err)
			}
			c.restart()
			c.all(t)
			if got := c.ids(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// The dates on pages change when a feed gets snapshots or loses them. Our own source
// compares more than dates: it detects that the page has changed, and continues.
func TestDatesChangeUnderAReader(t *testing.T) {
	t.Parallel()
	for name, snapshots := range map[string]bool{"to those of the bus": true, "and back": false} {
		parallel.Run(t, name, func(t *testing.T) {
			site := newSite(t)
			topic := newTopic()
			for i := range 10 {
				r := messageOf(fmt.Sprintf("m%d@x", i), feed.Put, later(i), "x")
				r.Time = later(i + 3600)
				topic.add(r)
			}
			start := func(with bool) {
				site.feed.Store(serveTopic(t, topic, func(c *Config) {
					if with {
						c.Snapshot.Every = time.Hour
					}
				}).Feed)
			}
			start(!snapshots)
			c := site.crawl(t)
			defer c.client.CloseIdle()
			c.batch.Entities = 1
			for len(c.got) < 5 {
				if _, err := c.step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			start(snapshots)
			c.restart()
			c.all(t)
			if got, want := c.ids(), "m0 m1 m2 m3 m4 m5 m6 m7 m8 m9"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if len(c.violations) == 0 || c.violations[0].Kind != "page_changed" {
				t.Errorf("the reader sees %v", c.violations)
			}
		})
	}
}

// FuzzPage builds a page of the fuzzer's input and reads it with our own source.
func FuzzPage(f *testing.F) {
	f.Add("id", "X", "value", []byte("body"), []byte("\r\n--feedbridge-\r\n\r\n--"), "http-equiv=PATCH", "Thu, 5 Oct 2023 03:00:13 GMT")
	f.Add("", "Content-Id", "a\r\nb", []byte(nil), []byte("--"+pageBoundary(pageID{"e0", 3, 0}, nil)+"--"), "x", "")
	f.Add("é\x00", "feedbridge-header-nats-x", " ", []byte("\n"), []byte("--"), `"put"`, "9999-12-31T23:59:60Z")
	site := newSite(f)
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, id, name, value string, one, two []byte, op, modified string) {
		topic := newTopic()
		for i, body := range [][]byte{one, two, one} {
			topic.add(feed.Record{Time: later(i), Body: body, Header: feed.Header{
				{Name: "Content-ID", Value: id}, {Name: name, Value: value}, {Name: "Operation-Type", Value: op}, {Name: "Last-Modified", Value: modified},
			}})
		}
		s := serveTopic(t, topic)
		want := []feed.Entity{}
		own := newNormalizer(0)
		for _, r := range topic.records {
			e := s.builder.decoder.decodeRecord("e0", r, nil)
			if own.normalizeNext(&e) {
				want = append(want, feed.Entity{ID: e.id, Op: e.op, Modified: e.modified, Body: e.body})
			}
		}
		site.feed.Store(s.Feed)
		c := site.crawl(t)
		defer c.client.CloseIdle()
		c.all(t)
		var got []feed.Entity
		for _, e := range c.got {
			got = append(got, feed.Entity{ID: e.ID, Op: e.Op, Modified: e.Modified, Body: e.Body})
		}
		if diff := cmp.Diff(want, got, cmp.Transformer("empty", func(b []byte) string { return string(b) })); diff != "" {
			t.Fatal(diff)
		}
	}))
}
