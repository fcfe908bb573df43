package samplefeed_test

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

// ask sends a request to h and returns the answer and its body.
func ask(t *testing.T, h http.Handler, method, url string, headers ...string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, w.Body.String()
}

// part is an entity as [multipart.Reader] sees it.
type part struct {
	Header map[string][]string
	Body   string
}

func parts(t *testing.T, res *httptest.ResponseRecorder, body string) []part {
	t.Helper()
	kind, params, err := mime.ParseMediaType(res.Header().Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		t.Fatalf("Content-Type %q: %v", res.Header().Get("Content-Type"), err)
	}
	var parts []part
	r := multipart.NewReader(strings.NewReader(body), params["boundary"])
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts
		}
		must.Succeed(t, err)
		body, err := io.ReadAll(p)
		must.Succeed(t, err)
		parts = append(parts, part{p.Header, string(body)})
	}
}

// links returns the links of a page by their relation.
func links(res *httptest.ResponseRecorder) map[string]string {
	links := make(map[string]string)
	for _, line := range res.Header()["Link"] {
		url, rel, _ := strings.Cut(line, ">; rel=")
		links[rel] = strings.TrimPrefix(url, "<")
	}
	return links
}

func minutes(i int) time.Time { return time.Date(2026, 1, 1, 0, i, 0, 500, time.UTC) }

func TestPages(t *testing.T) {
	t.Parallel()
	orders := sample.Orders(minutes)
	f := samplefeed.New(samplefeed.Options{Entity: orders, PageSize: 7})
	for _, n := range []int{1, 6, 7, 8, 14, 15, 50} {
		f.SetLen(n)
		if f.Len() != n {
			t.Errorf("Len = %d, want %d", f.Len(), n)
		}
		// Back from the entry point to the first page, and forth again.
		latest, latestBody := ask(t, f, "GET", "http://shop.example.com/feed/latest")
		url, next := links(latest)["self"], ""
		for {
			res, body := ask(t, f, "GET", url)
			at := links(res)
			if next == "" && body != latestBody {
				t.Errorf("%d entities: the entry point is not the page that it names, %s", n, url)
			}
			if at["self"] != url || at["next"] != next {
				t.Errorf("%d entities: %s links to %v, want next %q", n, url, at, next)
			}
			if at["prev"] == "" {
				break
			}
			url, next = at["prev"], url
		}
		i := 0
		for ; url != ""; url = next {
			res, body := ask(t, f, "GET", url)
			entities := parts(t, res, body)
			for _, got := range entities {
				e := orders(i)
				want := part{map[string][]string{
					"Content-Type":   {"application/json"},
					"Last-Modified":  {fmt.Sprintf("Thu, 01 Jan 2026 00:%02d:00 GMT", i)},
					"Content-Id":     {e.ID},
					"Operation-Type": {"http-equiv=" + string(e.Op)},
					"Content-Length": {fmt.Sprint(len(e.Body))},
				}, string(e.Body)}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("entity %d on %s (-want +got):\n%s", i, url, diff)
				}
				i++
			}
			if got, want := res.Header().Get("Last-Modified"), entities[len(entities)-1].Header["Last-Modified"][0]; got != want {
				t.Errorf("%s: Last-Modified %q, want that of the last entity, %q", url, got, want)
			}
			next = links(res)["next"]
		}
		if i != n {
			t.Errorf("%d entities on the pages, want %d", i, n)
		}
	}
}

func TestBytesOfAPage(t *testing.T) {
	t.Parallel()
	f := samplefeed.New(samplefeed.Options{Base: "/x", Entity: func(i int) feed.Entity {
		return feed.Entity{
			ID: fmt.Sprintf("<%d>", i), Op: feed.Delete, Modified: minutes(i),
			// As an entity has it that was read from a feed.
			Header: feed.Header{{Name: "content-id", Value: "<0>"}, {Name: "X-Two", Value: "a"}, {Name: "X-Two", Value: "b"}, {Name: "Content-Type", Value: "text/plain"}},
			Body:   []byte("body\r\n"),
		}
	}})
	f.SetLen(1)
	res, body := ask(t, f, "GET", "https://shop.example.com/x/latest")
	want := strings.ReplaceAll(`--a-sample-of-a-feed-7d1f0c52
Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT
Content-ID: <0>
Operation-Type: http-equiv=DELETE
Content-Length: 6
X-Two: a
X-Two: b
Content-Type: text/plain

body

--a-sample-of-a-feed-7d1f0c52--
`, "\n", "\r\n")
	must.Match(t, "body", want, body)
	must.Match(t, "Link", []string{"<https://shop.example.com/x/pages/0>; rel=self"}, res.Header()["Link"])
	if got, want := res.Header().Get("Content-Type"), `multipart/mixed; boundary="a-sample-of-a-feed-7d1f0c52"`; got != want {
		t.Errorf("Content-Type = %s, want %s", got, want)
	}

	f.SetLen(2)
	_, grown := ask(t, f, "GET", "https://shop.example.com/x/latest")
	if !strings.HasPrefix(grown, strings.TrimSuffix(body, "--\r\n")) {
		t.Error("the page has not kept its bytes")
	}
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	t.Parallel()
	f := samplefeed.New(samplefeed.Options{Entity: samplefeed.Sized(2000), PageSize: 3})
	f.SetLen(8)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	for _, path := range []string{"/feed/latest", "/feed/pages/0", "/feed/pages/1", "/feed/pages/3", "/elsewhere"} {
		var headers [2]http.Header
		for i, method := range []string{"GET", "HEAD"} {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
			must.Succeed(t, err)
			res, err := server.Client().Do(r)
			must.Succeed(t, err)
			n, err := io.Copy(io.Discard, res.Body)
			must.Succeed(t, err)
			res.Body.Close()
			if method == "GET" && res.Header.Get("Content-Length") != fmt.Sprint(n) {
				t.Errorf("%s: %d bytes, Content-Length %q", path, n, res.Header.Get("Content-Length"))
			}
			headers[i] = res.Header
			headers[i].Del("Date")
		}
		if diff := cmp.Diff(headers[0], headers[1]); diff != "" {
			t.Errorf("%s (-GET +HEAD):\n%s", path, diff)
		}
	}
}

func TestETag(t *testing.T) {
	t.Parallel()
	f := samplefeed.New(samplefeed.Options{Entity: samplefeed.Sized(10), PageSize: 2})
	const first = "http://shop.example.com/feed/pages/0"
	seen := make(map[string]bool)
	for n := 1; n <= 3; n++ { // one entity more, then a next page
		f.SetLen(n)
		res, _ := ask(t, f, "GET", first)
		tag := res.Header().Get("ETag")
		if seen[tag] || tag == "" {
			t.Errorf("%d entities: ETag %s was seen before", n, tag)
		}
		seen[tag] = true
		res, body := ask(t, f, "GET", first, "If-None-Match", `"other", `+tag)
		if res.Code != http.StatusNotModified || body != "" || res.Header().Get("ETag") != tag {
			t.Errorf("asked with its ETag: %d %q", res.Code, body)
		}
	}
	f.SetLen(4)
	a, _ := ask(t, f, "GET", first)
	f.SetLen(5)
	if b, _ := ask(t, f, "GET", first); a.Header().Get("ETag") != b.Header().Get("ETag") {
		t.Error("the ETag of a closed page has changed")
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	f := samplefeed.New(samplefeed.Options{Entity: samplefeed.Sized(1), PageSize: 2})
	status := func(method, path string, want int) {
		t.Helper()
		if res, _ := ask(t, f, method, "http://shop.example.com"+path); res.Code != want {
			t.Errorf("%d entities: %s %s = %d, want %d", f.Len(), method, path, res.Code, want)
		}
	}
	status("GET", "/feed/latest", 204)
	status("GET", "/feed/pages/0", 404)
	f.SetLen(4)
	status("GET", "/feed/pages/1", 200)
	for _, path := range []string{"/feed/pages/2", "/feed/pages/-1", "/feed/pages/00", "/feed/pages/x", "/feed/pages/", "/feed/1", "/latest", "/feed"} {
		status("GET", path, 404)
	}
	status("POST", "/feed/latest", 405)
}

func TestEntities(t *testing.T) {
	t.Parallel()
	for name, entity := range map[string]func(int) feed.Entity{"orders": sample.Orders(minutes), "sized": samplefeed.Sized(32)} {
		ids, operations := make(map[string]bool), make(map[feed.Operation]int)
		bodies, ties := make(map[string]bool), 0
		const n = 240
		for i := range n {
			e := entity(i)
			ids[e.ID], bodies[string(e.Body)] = true, true
			operations[e.Op]++
			if i > 0 {
				before := entity(i - 1).Modified
				if e.Modified.Before(before) {
					t.Errorf("%s: entity %d is older than the one before it", name, i)
				}
				if e.Modified.Equal(before) {
					ties++
				}
			}
			if diff := cmp.Diff(e, entity(i)); diff != "" {
				t.Errorf("%s: entity %d is not the same each time:\n%s", name, i, diff)
			}
		}
		if len(ids) != n || len(bodies) != n {
			t.Errorf("%s: %d entities have %d IDs and %d bodies", name, n, len(ids), len(bodies))
		}
		switch name {
		case "orders":
			must.Match(t, "operations", map[feed.Operation]int{feed.Put: 80, feed.Patch: 140, feed.Delete: 20}, operations)
		case "sized":
			if ties != 180 {
				t.Errorf("%d entities share the second of the one before, want 180", ties)
			}
		}
	}
	if got := len(samplefeed.Sized(1234)(99_999_999).Body); got != 1234 {
		t.Errorf("a body has %d bytes, want 1234", got)
	}
}

// A body that is the one before it, shifted, would compress to nothing on a bus that compresses batches.
func TestSizedBodiesCompressToHalf(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1 << 10, 10 << 10} {
		entity := samplefeed.Sized(n)
		var batch []byte
		for i := range 1_000_000 / n {
			e := entity(i)
			batch = append(batch, e.Body...)
			if alone := len(snappy.Encode(nil, e.Body)); alone < n*45/100 || alone > n*60/100 {
				t.Fatalf("body %d of %d bytes is compressed to %d", i, n, alone)
			}
		}
		if together := len(snappy.Encode(nil, batch)); together < len(batch)*45/100 || together > len(batch)*55/100 {
			t.Errorf("%d bytes in bodies of %d are compressed to %d", len(batch), n, together)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := samplefeed.New(samplefeed.Options{Entity: samplefeed.Sized(size), PageSize: 500})
			f.SetLen(1_000_000)
			r := httptest.NewRequestWithContext(b.Context(), "GET", "http://shop.example.com/feed/pages/7", nil)
			b.SetBytes(int64(500 * size))
			b.ReportAllocs()
			for b.Loop() {
				f.ServeHTTP(discard{make(http.Header)}, r)
			}
		})
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(p []byte) (int, error) { return len(p), nil }

func TestSnapshot(t *testing.T) {
	t.Parallel()
	f := samplefeed.New(samplefeed.Options{PageSize: 4, Entity: samplefeed.Sized(10)})
	f.SetLen(12)
	res, body := ask(t, f, http.MethodGet, "http://x.example/feed/snapshots/10")
	want := `{"id":"10","createdAt":"2020-01-01T00:00:02Z","pages":["http://x.example/feed/snapshots/10/0",` +
		`"http://x.example/feed/snapshots/10/1","http://x.example/feed/snapshots/10/2"]}`
	if got := strings.TrimSpace(body); got != want || res.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	n := 0
	for k, size := range []int{4, 4, 2} {
		res, body := ask(t, f, http.MethodGet, fmt.Sprintf("http://x.example/feed/snapshots/10/%d", k))
		all := parts(t, res, body)
		if len(all) != size {
			t.Errorf("page %d has %d entities", k, len(all))
		}
		for _, p := range all {
			if got, want := p.Header["Content-Id"][0], fmt.Sprintf("%d@sample", n); got != want {
				t.Errorf("entity %d is %s", n, got)
			}
			n++
		}
	}
	for _, path := range []string{"0", "13", "x", "10/3", "10/-1", "10/x"} {
		if res, _ := ask(t, f, http.MethodGet, "http://x.example/feed/snapshots/"+path); res.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.Code)
		}
	}
}
