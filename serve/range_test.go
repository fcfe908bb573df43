package serve

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// A range has the bytes of the page that is not compressed, whether the page is in memory or not.
func TestRanges(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(7)
	for _, s := range []*served{serveTopic(t, topic), serveTopic(t, topic, func(c *Config) { c.Memory = tiny() })} {
		whole := s.get(t, "/pages/e0-3-0")
		for _, r := range [][2]int{{0, 0}, {5, 100}, {300, len(whole.body) - 1}} {
			g := s.get(t, "/pages/e0-3-0", "Range", fmt.Sprintf("bytes=%d-%d", r[0], r[1])).want(t, 206)
			if want := fmt.Sprintf("bytes %d-%d/%d", r[0], r[1], len(whole.body)); g.body != whole.body[r[0]:r[1]+1] || g.header.Get("Content-Range") != want {
				t.Errorf("%v: got %q of %q, with %v", r, g.body, whole.body, g.header)
			}
			if g.header.Get("ETag") != whole.header.Get("ETag") || g.header.Get("Last-Modified") == "" || fmt.Sprint(g.links(t)) != fmt.Sprint(whole.links(t)) {
				t.Errorf("%v: got %v, the whole page has %v", r, g.header, whole.header)
			}
		}
		s.get(t, "/pages/e0-3-0", "Range", "bytes=0-3", "If-Range", `"x"`).want(t, 200)
		s.get(t, "/pages/e0-3-0", "Range", "bytes=0-3", "If-Range", whole.header.Get("ETag")).want(t, 206)
		s.get(t, "/pages/e0-3-0", "Range", "bytes=0-3", "If-None-Match", whole.header.Get("ETag")).want(t, 304)
		s.get(t, "/pages/e0-3-0", "Range", "bytes=0-3", "If-None-Match", `"x"`).want(t, 206)
		s.ask(t, "HEAD", "/pages/e0-3-0", "Range", "bytes=0-3").want(t, 200)
		if g := s.get(t, "/pages/e0-3-0", "Range", "bytes=99999-").want(t, 416); g.header.Get("Link") == "" && g.body == "" {
			t.Errorf("got %v", g)
		}
		s.get(t, "/pages/e0-3-0", "Range", "bytes=0-3,7-9")
	}
}

// Each form of a page has an ETag of its own, and a client never joins bytes of both.
func TestRangesAndGzip(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for i := range 2 {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i), strings.Repeat("x", 5000)))
	}
	topic.skip(2)
	topic.numbered(1)
	s := serveTopic(t, topic)
	const path = "/pages/e0-3-0" // has a next one, so its Last-Modified counts
	plain := s.get(t, path).want(t, 200)
	packed := s.get(t, path, "Accept-Encoding", "gzip").want(t, 200)
	plainTag, packedTag := plain.header.Get("ETag"), packed.header.Get("ETag")
	if packed.header.Get("Content-Encoding") != "gzip" || plainTag == packedTag || strings.HasPrefix(packedTag, "W/") {
		t.Fatalf("got %v, plain %v", packed.header, plain.header)
	}
	const whole, part, same = 200, 206, 304
	for name, test := range map[string]struct {
		accepted, condition, value string
		status                     int
		packed                     bool
	}{
		"plain":                                     {"identity", "", "", part, false},
		"no Accept-Encoding":                        {"", "", "", part, false},
		"either":                                    {"gzip, deflate", "", "", part, false},
		"gzip alone":                                {"gzip, identity;q=0", "", "", whole, true},
		"gzip alone, by *":                          {"gzip, *;q=0", "", "", whole, true},
		"either, of the plain page":                 {"gzip", "If-Range", plainTag, part, false},
		"either, of the compressed page":            {"gzip", "If-Range", packedTag, whole, false},
		"plain, of the compressed page":             {"identity", "If-Range", packedTag, whole, false},
		"either, of a time":                         {"gzip", "If-Range", plain.header.Get("Last-Modified"), whole, false},
		"plain, of a time":                          {"identity", "If-Range", plain.header.Get("Last-Modified"), whole, false},
		"either, unless it is the compressed page":  {"gzip", "If-None-Match", packedTag, same, true},
		"either, unless it is one of several pages": {"gzip", "If-None-Match", `"x", W/` + packedTag, same, true},
		"either, unless it is the plain page":       {"gzip", "If-None-Match", plainTag, same, false},
		"plain, unless it is the compressed page":   {"identity", "If-None-Match", packedTag, part, false},
		"plain, unless it is the plain page":        {"identity", "If-None-Match", plainTag, same, false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			fields := []string{"Range", "bytes=100-"}
			if test.accepted != "" {
				fields = append(fields, "Accept-Encoding", test.accepted)
			}
			if test.condition != "" {
				fields = append(fields, test.condition, test.value)
			}
			g := s.get(t, path, fields...).want(t, test.status)
			tag, body := plainTag, plain.body
			if test.packed {
				tag, body = packedTag, packed.body
			}
			switch test.status {
			case part:
				body = body[100:]
			case same:
				body = ""
			}
			if g.header.Get("ETag") != tag || g.body != body || g.header.Get("Vary") != "Accept, Accept-Encoding" {
				t.Errorf("got %v and %d bytes, want the ETag %s and %d bytes", g.header, len(g.body), tag, len(body))
			}
			if encoding := g.header.Get("Content-Encoding"); test.status == part && encoding != "" {
				t.Errorf("the range is in %s", encoding)
			}
		})
	}
	for fields, want := range map[string]bool{
		"gzip": true, "": true, "identity;q=0": false, "*;q=0": false, "*;q=0, identity;q=0.1": true, "identity": true, "IDENTITY;q=0": false, "*": true,
	} {
		if got := acceptsIdentity([]string{fields}); got != want {
			t.Errorf("%q: identity is accepted: %v", fields, got)
		}
	}
}

// A client of net/http that accepts gzip, and one that continues an interrupted download, get
// the bytes of the page.
func TestRangesForNetHTTP(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	topic.add(messageOf("a", feed.Put, noon, strings.Repeat("x", 5000)))
	s := serveTopic(t, topic)
	server := httptest.NewServer(s)
	defer server.Close()
	ask := func(fields ...string) got {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/feeds/orders/latest", nil)
		must.Succeed(t, err)
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		must.Succeed(t, err)
		return got{resp.StatusCode, resp.Header, string(b)}
	}
	whole := ask()
	packedTag := whole.header.Get("ETag")
	if len(whole.body) < 5000 || !strings.HasSuffix(packedTag, `-gzip"`) {
		t.Fatalf("got %d bytes with the ETag %s", len(whole.body), packedTag)
	}
	for _, test := range []struct {
		fields       []string
		status, from int
	}{
		{[]string{"Range", "bytes=4000-"}, http.StatusPartialContent, 4000},
		{[]string{"Range", "bytes=4500-", "If-Range", ask("Range", "bytes=4000-").header.Get("ETag")}, http.StatusPartialContent, 4500},
		{[]string{"Range", "bytes=10-", "If-Range", packedTag}, http.StatusOK, 0},
		// Some clients accept gzip whatever they ask for.
		{[]string{"Range", "bytes=4000-", "Accept-Encoding", "gzip, deflate, br"}, http.StatusPartialContent, 4000},
	} {
		g := ask(test.fields...)
		if g.status != test.status || g.header.Get("Content-Encoding") != "" || g.body != whole.body[test.from:] {
			t.Errorf("%q: got %d, %v and %d bytes, want %d and the %d bytes of the page from %d on",
				test.fields, g.status, g.header, len(g.body), test.status, len(whole.body)-test.from, test.from)
		}
	}
}

// sizedWriter counts the bytes of a body as they are sent.
type sizedWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w sizedWriter) Write(b []byte) (int, error) {
	w.n.Add(int64(len(b)))
	return w.ResponseWriter.Write(b)
}

// Our own source reads a new entity on a long page of our own server with an answer of a few KiB,
// although it has got the page compressed. A poll without anything new gets no body.
func TestNewEntityOnALongPageOfOurOwn(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	random := func(n int) string { // does not get smaller
		var b strings.Builder
		for h := uint64(n + 1); b.Len() < 1000; {
			h = h*6364136223846793005 + 1442695040888963407
			b.WriteByte(byte(h >> 56))
		}
		return b.String()
	}
	add := func(n int) { topic.add(messageOf(fmt.Sprintf("%d@x", n), feed.Put, later(n), random(n))) }
	for n := range 400 {
		add(n)
	}
	s := serveTopic(t, topic, sized(500))
	var sent atomic.Int64
	var mu sync.Mutex // guards requests
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests = append(requests, r.Method+" "+r.Header.Get("Accept-Encoding"))
		mu.Unlock()
		s.builder.spans.mu.Lock()
		s.builder.spans.at = time.Time{}
		s.builder.spans.mu.Unlock()
		s.ServeHTTP(sizedWriter{w, &sent}, r)
	}))
	defer server.Close()
	c := crawlAt(t, server.URL+"/feeds/orders/latest")
	defer c.client.CloseIdle()
	c.all(t)
	whole := sent.Load()
	if len(c.got) != 400 || whole < 400_000 {
		t.Fatalf("got %d entities with %d bytes", len(c.got), whole)
	}
	for n := range 20 {
		if n%2 == 0 {
			add(400 + n/2)
		}
		sent.Store(0)
		mu.Lock()
		requests = nil
		mu.Unlock()
		before := len(c.got)
		c.all(t)
		added, most := 1-n%2, int64(4<<10)
		if added == 0 {
			most = 0
		}
		if bytes := sent.Load(); len(c.got)-before != added || bytes > most {
			mu.Lock()
			t.Errorf("poll %d: got %d new entities with %d bytes, of %d of the page: %q", n, len(c.got)-before, bytes, whole, requests)
			mu.Unlock()
		}
	}
	if len(c.violations) > 0 {
		t.Errorf("the reader sees %v", c.violations)
	}
	r, err := gzip.NewReader(strings.NewReader(s.get(t, "/latest", "Accept-Encoding", "gzip").body))
	must.Succeed(t, err)
	if b, err := io.ReadAll(r); err != nil || string(b) != s.get(t, "/latest").body {
		t.Errorf("the compressed page has %d bytes, %v", len(b), err)
	}
}
