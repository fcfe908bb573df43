package statuspage_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
)

// feeds is a source of n feeds.
type feeds struct {
	n     atomic.Int64
	asked atomic.Int64
	last  atomic.Pointer[statuspage.Query]
	took  time.Duration
	busy  atomic.Int64 // calls at this moment
	most  atomic.Int64 // of busy

	summary status.Summary
}

func (f *feeds) Feeds(_ context.Context, q statuspage.Query) statuspage.Feeds {
	f.asked.Add(1)
	f.last.Store(&q)
	f.most.Store(max(f.most.Load(), f.busy.Add(1)))
	defer f.busy.Add(-1)
	time.Sleep(f.took)
	n := int(f.n.Load())
	answer := statuspage.Feeds{Summary: f.summary, All: n, Found: n, States: map[string]int{"idle": n}}
	from, to := q.Slice(n)
	for i := from; i < to; i++ {
		answer.Rows = append(answer.Rows, &status.Feed{Feed: fmt.Sprintf("feed-%d", i), State: "idle"})
	}
	return answer
}

func (f *feeds) Feed(_ context.Context, name string) (status.Feed, bool) {
	return status.Feed{Feed: name, State: "idle"}, name == "feed-1"
}

func (f *feeds) Served(context.Context, statuspage.Query) statuspage.Served {
	return statuspage.Served{}
}

func newFeeds(n int64) *feeds {
	f := &feeds{}
	f.n.Store(n)
	return f
}

func newPages(f *feeds, opts statuspage.Options) (*statuspage.Pages, http.Handler) {
	opts.Log = slog.New(slog.DiscardHandler)
	opts.Feeds, opts.Feed, opts.Served = f.Feeds, f.Feed, f.Served
	p := statuspage.New(opts)
	mux := http.NewServeMux()
	p.Register(mux)
	return p, mux
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// Every page has the policy, all that it refers to exists here, and nothing else does.
func TestPagesReferToOwnFilesOnly(t *testing.T) {
	t.Parallel()
	_, h := newPages(newFeeds(120), statuspage.Options{})
	for path, code := range map[string]int{"/": 200, "/feed/feed-1": 200, "/feed/none": 404, "/served": 200} {
		w := get(t, h, path)
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
		for name, want := range map[string]string{
			"Content-Type":            "text/html; charset=utf-8",
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		body := w.Body.String()
		if strings.Contains(body, "style=") || strings.Contains(body, "<style") || strings.Contains(body, " on") && strings.Contains(body, "onclick") {
			t.Errorf("%s has a style or script of its own, which the policy forbids", path)
		}
		found := 0
		for _, part := range strings.Split(body, `="/assets/`)[1:] {
			file, _, _ := strings.Cut(part, `"`)
			asset := get(t, h, "/assets/"+file)
			if asset.Code != 200 || !strings.Contains(asset.Header().Get("Cache-Control"), "immutable") || asset.Body.Len() == 0 {
				t.Errorf("%s refers to %s: %d %v", path, file, asset.Code, asset.Header())
			}
			if text := asset.Body.String(); strings.HasSuffix(file, ".css") && strings.Count(text, "{") != strings.Count(text, "}") {
				t.Errorf("the braces of %s are not even", file)
			}
			found++
		}
		if found != 3 {
			t.Errorf("%s refers to %d files, want 3", path, found)
		}
	}
	for _, path := range []string{"/assets/0/page.css", "/assets/0/layout.html", "/feeds.html"} {
		if w := get(t, h, path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// What a URL says wrongly has its default, and every link of a page leads back to the same query.
func TestQueries(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]statuspage.Query{
		"":                                     {Sort: statuspage.ByState, Page: 1},
		"q=+Orders+&state=halted&sort=-lag":    {Search: "orders", State: "halted", Sort: statuspage.ByLag, Descending: true, Page: 1},
		"page=3&sort=name":                     {Sort: statuspage.ByName, Page: 3},
		"page=99":                              {Sort: statuspage.ByState, Page: 99}, // which shows the last one
		"page=-1&sort=constructor":             {Sort: statuspage.ByState, Page: 1},
		"page=99999999999999999999&sort=-":     {Sort: statuspage.ByState, Page: 1},
		"q=%ff%00":                             {Search: "\ufffd\x00", Sort: statuspage.ByState, Page: 1},
		"q=" + strings.Repeat("é", 150):        {Search: strings.Repeat("é", 100), Sort: statuspage.ByState, Page: 1},
		"q=" + "x" + strings.Repeat("é", 150):  {Search: "x" + strings.Repeat("é", 99), Sort: statuspage.ByState, Page: 1},
		"q=a%26b&state=%3Cscript%3E&sort=next": {Search: "a&b", State: "<script>", Sort: statuspage.ByNext, Page: 1},
	} {
		f := newFeeds(120)
		_, h := newPages(f, statuspage.Options{})
		body := get(t, h, "/?"+query).Body.String()
		if got := *f.last.Load(); got != want {
			t.Errorf("%.60q: %+v, want %+v", query, got, want)
		}
		if again, _ := url.ParseQuery(want.String()); want.Search != "" && again.Get("q") != want.Search {
			t.Errorf("%.60q: the link has %q", query, again.Get("q"))
		}
		if want.Page > 1 && !strings.Contains(body, `rel="prev"`) || want.Page < 3 != strings.Contains(body, `rel="next"`) || want.Page >= 3 && !strings.Contains(body, "101 to 120 of 120") {
			t.Errorf("%.60q: the links to other pages are wrong", query)
		}
	}
}

// pipes is a listener whose connections stay in the process, so that they can be used in
// virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// live serves pages in virtual time.
type live struct {
	t      *testing.T
	pipes  *pipes
	client *http.Client
}

func serve(t *testing.T, h http.Handler) *live {
	l := &live{t: t, pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
	server := &http.Server{Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l.pipes) }()
	l.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		l.pipes.conns <- theirs
		return ours, nil
	}}}
	t.Cleanup(func() {
		// The clients are gone by now, so their handlers end.
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return l
}

// answer is the answer to a request for a stream.
type answer struct {
	code   int
	header http.Header
	body   io.ReadCloser
}

// open opens a stream. Its body is not read until the caller does. It is closed with the test.
func (l *live) open() answer {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://feedbridge/", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { resp.Body.Close() })
	return answer{resp.StatusCode, resp.Header, resp.Body}
}

// events returns the events and heartbeats of a stream, as they come. The channel is closed at
// its end, after the error that ended it.
func events(body io.Reader) <-chan string {
	out := make(chan string, 100)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(body)
		event := ""
		for lines.Scan() {
			if lines.Text() != "" {
				event += lines.Text() + "\n"
				continue
			}
			out <- event
			event = ""
		}
		if err := lines.Err(); err != nil {
			out <- "error: " + err.Error()
		} else {
			out <- "end"
		}
	}()
	return out
}

// A stream sends the page at once, again when it has changed, and a heartbeat otherwise. The
// timeouts of the server, which are for requests, do not end it.
func TestStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFeeds(1)
		p, h := newPages(f, statuspage.Options{})
		resp := serve(t, h).open()
		if got := resp.header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" || resp.header.Get("Content-Security-Policy") == "" {
			t.Errorf("the header is %v", resp.header)
		}
		got := events(resp.body)
		begin := time.Now()
		want := func(at time.Duration, part string) {
			t.Helper()
			event := <-got
			if !strings.Contains(event, part) || time.Since(begin) != at {
				t.Fatalf("after %v: %.300q, want %q after %v", time.Since(begin), event, part, at)
			}
			for line := range strings.Lines(event) {
				if !strings.HasPrefix(line, "data: ") && line != "event: alive\n" && line != "data:\n" && line != "retry: 3000\n" {
					t.Errorf("the event has the line %q", line)
				}
			}
		}
		want(0, "1 to 1 of 1 feeds.")
		want(16*time.Second, "event: alive\ndata:\n")
		want(32*time.Second, "event: alive\ndata:\n")
		f.n.Store(2)
		want(34*time.Second, "1 to 2 of 2 feeds.")
		f.n.Store(3)
		want(36*time.Second, "1 to 3 of 3 feeds.")
		time.Sleep(10 * time.Second)
		p.Close()
		if event := <-got; event != "end" {
			t.Errorf("after Close: %q, want the end", event)
		}
		if _, err := io.ReadAll(serve(t, h).open().body); err != nil { // it ends
			t.Errorf("a stream after Close: %v", err)
		}
	})
}

// No more streams than configured are open. One that has ended, or whose client reads nothing,
// makes room.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFeeds(50)
		_, h := newPages(f, statuspage.Options{Streams: 2, Patience: 10 * time.Second})
		l := serve(t, h)
		reads := events(l.open().body)
		<-reads
		slow := l.open() // its client reads the header and no more
		refused := l.open()
		if refused.code != http.StatusServiceUnavailable || refused.header.Get("Retry-After") != "15" {
			t.Errorf("the third stream has %d %v", refused.code, refused.header)
		}
		// The stream of the slow client is given up when the patience is over.
		begin := time.Now()
		for {
			resp := l.open()
			resp.body.Close()
			if resp.code == http.StatusOK {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatal("after a minute there is no room yet")
			}
			time.Sleep(time.Second)
		}
		if _, err := io.ReadAll(slow.body); err == nil {
			t.Error("the stream of the slow client is complete")
		}
		f.n.Store(51)
		if event := <-reads; !strings.Contains(event, "of 51 feeds") {
			t.Errorf("the other client got %q", event)
		}
	})
}

// Live pages are made one at a time, and seldom if they are costly.
func TestStreamsShareACore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFeeds(1)
		f.took = 300 * time.Millisecond
		p, h := newPages(f, statuspage.Options{})
		l := serve(t, h)
		for range 10 {
			go io.Copy(io.Discard, l.open().body) //nolint:errcheck // it ends with the test
		}
		time.Sleep(time.Minute)
		// Each is made again 6s (20 times 300ms) after it was made.
		if asked := f.asked.Load(); asked < 70 || asked > 110 {
			t.Errorf("10 pages were made %d times in a minute, want about 100", asked)
		}
		if f.most.Load() != 1 {
			t.Errorf("%d pages were made at a time", f.most.Load())
		}
		p.Close()
	})
}

// A carriage return ends a line of an event, so text that has one would become a field.
func TestCarriageReturnStaysInData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := newPages(newFeeds(1), statuspage.Options{})
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/feed/none%0Devent:%20other%0Ddata:%20x", nil)
		r.Header.Set("Accept", "text/event-stream")
		time.AfterFunc(time.Second, p.Close) // after the first event
		h.ServeHTTP(w, r)
		if body := w.Body.String(); strings.Contains(body, "\r") || !strings.Contains(body, "event: other") {
			t.Errorf("the event is %q", body)
		}
	})
}

// The page shows first what needs a person. Nothing in a name becomes a part of a command.
func TestPageShowsWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	f := newFeeds(3)
	at := time.Date(2026, 1, 1, 10, 30, 0, 0, time.UTC)
	f.summary = status.Summary{Sentence: "3 feeds: 1 needs you", Digest: status.Digest{Feeds: 3, NeedYou: 1, ByHour: status.NewHourly(), Troubles: []status.Trouble{
		{Feed: "it's; rm -rf ~", Title: "A <b>journal</b>", State: "halted", Since: &at, Cause: "the topic is gone; create it again"},
	}, MoreTroubles: 2}}
	f.summary.ByHour.Entities[status.Hours-1] = 1234
	program := statuspage.Program{Name: "go run ./cmd/feedbridge", Flags: []string{"-c", "my feeds.yaml"}, Daemon: []string{"--admin", "unix:x/admin.sock"}}
	_, h := newPages(f, statuspage.Options{Program: program})
	if page := html.UnescapeString(get(t, h, "/feed/feed-1").Body.String()); !strings.Contains(page, `<code>go run ./cmd/feedbridge tail -c 'my feeds.yaml' --from now --follow --bus `) {
		t.Errorf("the page of a feed has no command for its messages: %s", page)
	}
	body := html.UnescapeString(get(t, h, "/").Body.String())
	for _, want := range []string{
		"</span> 3 feeds: 1 needs you</h1>", "A <b>journal</b></a>", "create it again", `<code>go run ./cmd/feedbridge poll --admin unix:x/admin.sock 'it'\''s; rm -rf ~'</code>`,
		`<span>1.2k</span><svg class="hour" width="100%" height="64">`, " 0 0 1234\"", "And 2 more",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if body := get(t, h, "/?q=feed").Body.String(); strings.Contains(body, "create it again") {
		t.Error("the answer to a search starts with other feeds")
	}
	f = newFeeds(0)
	_, h = newPages(f, statuspage.Options{})
	if body := get(t, h, "/").Body.String(); !strings.Contains(body, "No feed is copied yet") || !strings.Contains(body, "<code>feedbridge add https://blog.example.com</code>") {
		t.Error("a page without feeds does not say what to do next")
	}
}
