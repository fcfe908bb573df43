package datareplication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

// site is a feed of pages that a test writes down and changes, with its own
// network to it. Its entry point is /latest, which serves a page in place.
type site struct {
	// Faults spoil chosen answers.
	httpfault.Faults

	mu      sync.Mutex
	base    string // what links start with
	pages   map[string]*sheet
	latest  string // path of the page that the entry point serves; "" for none
	log     []string
	header  func(http.Header) // edits every answer's
	padding int               // bytes that each body has more
	// The fields that answers lack.
	noETag, noLength bool
	// stills are the snapshots, by ID. The index of the one called still is at
	// /snapshot; if named, that redirects to its own URL.
	stills map[string]*still
	still  string
	named  bool

	pageBudget *readahead.Budget // of pages requested ahead
	asSent     bool              // pages have no long preamble; see longPreambles

	conns chan net.Conn
	done  chan struct{}
	close sync.Once
}

// sheet is a page of a site. Links are paths, or whole URLs.
type sheet struct {
	self, prev, next string
	at               int      // Last-Modified, in seconds since dawn
	entities         []string // "id@seconds"
}

// dawn is the time of the first entity of these tests.
var dawn = time.Date(2023, 10, 5, 3, 0, 0, 0, time.UTC)

func second(n int) time.Time { return dawn.Add(time.Duration(n) * time.Second) }

// startAt returns a start position in seconds since dawn.
func startAt(n int) string                { return second(n).Format(time.RFC3339) }
func startBehind(id string, n int) string { return "id:" + id + "@" + startAt(n) }

// newSite returns a site of pages /0, /1 and so on, linked to each other, each
// given by its entities: "a1@1 a2@2".
func newSite(pages ...string) *site {
	s := &site{
		base: "http://feed.example", pages: map[string]*sheet{},
		conns: make(chan net.Conn), done: make(chan struct{}),
	}
	s.Handler = http.HandlerFunc(s.answer)
	for _, entities := range pages {
		s.publish(entities)
	}
	return s
}

// publish adds a page behind the newest one.
func (s *site) publish(entities string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &sheet{self: "/" + strconv.Itoa(len(s.pages)), prev: s.latest}
	p.write(entities)
	if before := s.pages[s.latest]; before != nil {
		before.next = p.self
	}
	s.pages[p.self] = p
	s.latest = p.self
}

// write adds entities to a page.
func (s *site) write(path, entities string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path].write(entities)
}

func (p *sheet) write(entities string) {
	p.entities = append(p.entities, strings.Fields(entities)...)
	if n := len(p.entities); n > 0 {
		_, p.at = splitEntity(p.entities[n-1])
	}
}

func splitEntity(e string) (id string, at int) {
	id, seconds, _ := strings.Cut(e, "@")
	at, err := strconv.Atoi(seconds)
	if err != nil {
		panic(err)
	}
	return id, at
}

// remove takes a page away. The page after it becomes the oldest page. Use it in edit, or
// before the site is read.
func (s *site) remove(path string) {
	if p := s.pages[s.pages[path].next]; p != nil {
		p.prev = ""
	}
	delete(s.pages, path)
}

// edit changes the site while it serves no request.
func (s *site) edit(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// requests returns the requests since the last call: "GET /2", with " if" for
// conditional ones.
func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line := r.Method + " " + r.URL.RequestURI()
	if r.Header.Get("If-None-Match") != "" {
		line += " if"
	}
	s.edit(func() { s.log = append(s.log, line) })
	s.Faults.ServeHTTP(w, r)
}

func (s *site) answer(w http.ResponseWriter, r *http.Request) {
	if body := s.answerHeader(w, r); r.Method == http.MethodGet {
		_, _ = w.Write(body) // a client that does not read it keeps no other waiting
	}
}

// answerHeader returns the body of the answer, if it has one.
func (s *site) answerHeader(w http.ResponseWriter, r *http.Request) (body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	if path == "/latest" {
		if path = s.latest; path == "" {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	if rest, ok := strings.CutPrefix(path, "/snapshot"); ok {
		s.answerStill(w, r, rest)
		return nil
	}
	p := s.pages[path]
	if p == nil {
		http.NotFound(w, r)
		return nil
	}
	h := w.Header()
	for _, link := range []struct{ rel, to string }{{"self", p.self}, {"prev", p.prev}, {"next", p.next}} {
		if strings.HasPrefix(link.to, "/") {
			link.to = s.base + link.to
		}
		if link.to != "" {
			h.Add("Link", fmt.Sprintf("<%s>; rel=%s", link.to, link.rel))
		}
	}
	h.Set("Last-Modified", second(p.at).Format(http.TimeFormat))
	h.Set("Content-Type", `multipart/mixed; boundary="b"`)
	body = p.render(s.padding)
	if !s.noETag {
		h.Set("ETag", fmt.Sprintf(`"%x"`, crc32.ChecksumIEEE(fmt.Append(body, *p))))
	}
	if s.header != nil {
		s.header(h)
	}
	if etag := h.Get("ETag"); etag != "" && r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if s.noLength {
		_ = http.NewResponseController(w).Flush()
	} else {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return body
}

// still is a snapshot.
type still struct {
	created string
	pages   []sheet
}

// offer makes a snapshot the newest, created at a time, each page given by its
// entities.
func (s *site) offer(id, created string, pages ...string) {
	st := &still{created: created}
	for _, entities := range pages {
		var p sheet
		p.write(entities)
		st.pages = append(st.pages, p)
	}
	s.edit(func() {
		if s.stills == nil {
			s.stills = map[string]*still{}
		}
		s.stills[id], s.still = st, id
	})
}

func (s *site) answerStill(w http.ResponseWriter, r *http.Request, path string) {
	id, number, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if id == "" {
		id = s.still
		if s.named {
			http.Redirect(w, r, "/snapshot/"+id, http.StatusFound)
			return
		}
	}
	st := s.stills[id]
	switch n, err := strconv.Atoi(number); {
	case st == nil, err != nil && number != "", n >= len(st.pages) && number != "":
		http.NotFound(w, r)
	case number == "":
		urls := []string{}
		for i := range st.pages {
			urls = append(urls, fmt.Sprintf("%q", fmt.Sprintf("%s/snapshot/%s/%d", s.base, id, i)))
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", second(1e6).Format(http.TimeFormat)) // in virtual time, too
		fmt.Fprintf(w, `{"id": %q, "createdAt": %q, "pages": [%s], "more": {"properties": 1}}`, id, st.created, strings.Join(urls, ","))
	default:
		w.Header().Set("Content-Type", `multipart/mixed; boundary="b"`)
		_, _ = w.Write(st.pages[n].render(0))
	}
}

func (p *sheet) render(padding int) []byte {
	var b bytes.Buffer
	for _, e := range p.entities {
		id, at := splitEntity(e)
		fmt.Fprintf(&b, "--b\r\nContent-Type: text/plain\r\nContent-ID: %s\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n", id, second(at).Format(http.TimeFormat))
		if padding > 0 {
			fmt.Fprintf(&b, "Padding: %s\r\n", strings.Repeat(".", padding))
		}
		fmt.Fprintf(&b, "\r\nbody of %s\r\n", id)
	}
	b.WriteString("--b--\r\n")
	return b.Bytes()
}

// A site is a network with itself as the only host.

func (s *site) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case s.conns <- server:
		return client, nil
	case <-s.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *site) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *site) Close() error {
	s.close.Do(func() { close(s.done) })
	return nil
}

func (s *site) Addr() net.Addr { return &net.UnixAddr{Name: "site"} }

// longPreambles puts a preamble before the first part of each page. It fills the first buffers of
// the reader, which are garbage later, so that the parts are in memory that is used again.
type longPreambles struct{ http.RoundTripper }

var longPreamble = strings.Repeat("\n", 64<<10)

func (s *site) wrap(t http.RoundTripper) http.RoundTripper {
	if s.asSent {
		return t
	}
	return longPreambles{t}
}

func (t longPreambles) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "multipart/") {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(longPreamble), resp.Body), resp.Body}
	}
	return resp, err
}

// tester is the part of testing.TB that properties have, too.
type tester interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// client starts a server and returns a client of it.
func (s *site) client(t tester, cfg source.Config) *source.Client {
	t.Helper()
	hosts := &source.Hosts{Dial: s.dial, PageBudget: s.pageBudget}
	server := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(s)
	}()
	client, err := source.NewClient(cfg, source.Options{Hosts: hosts, Wrap: s.wrap})
	must.Succeed(t, err)
	t.Cleanup(func() {
		client.CloseIdle()
		_ = server.Close()
		<-stopped
	})
	return client
}

// source returns a source that reads the site from its beginning, one page after the other, unless
// edits say otherwise: most tests know the order of requests, or how many of them fail.
func (s *site) source(t tester, edits ...func(*options)) *limitedSource {
	t.Helper()
	cfg := options{Config: Config{Config: source.Defaults()}}
	cfg.URL = "http://feed.example/latest"
	cfg.Limits.Rate = 1e6
	cfg.PagesAhead = -1 // see ahead
	for _, edit := range edits {
		edit(&cfg)
	}
	src := &limitedSource{New(cfg.Config, s.client(t, cfg.Config.Config), slog.New(slog.DiscardHandler)), cfg.batch}
	t.Cleanup(src.Release)
	return src
}

// options are what a test sets of a source.
type options struct {
	Config
	batch feed.Limits
}

// limitedSource is a source with limits of its own.
type limitedSource struct {
	*Source
	batch feed.Limits
}

func (s *limitedSource) Next(ctx context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	return s.Source.Next(ctx, after, feed.Limits{Entities: cmp.Or(limits.Entities, s.batch.Entities), Bytes: cmp.Or(limits.Bytes, s.batch.Bytes)})
}

func from(t tester, position string) func(*options) {
	t.Helper()
	start, err := source.ParseStart(position)
	must.Succeed(t, err)
	return func(cfg *options) { cfg.Start = start }
}

// ahead requests n pages ahead at most.
func ahead(n int) func(*options) { return func(cfg *options) { cfg.PagesAhead = cmp.Or(n, -1) } }

func onGap(gap Gap) func(*options)   { return func(cfg *options) { cfg.Gap = gap } }
func batchesOf(n int) func(*options) { return func(cfg *options) { cfg.batch.Entities = n } }
func withHeader(l string) func(*options) {
	return func(cfg *options) { cfg.Headers = append(cfg.Headers, credential.Secret(l)) }
}

// reading is the result of a row of calls of Next.
type reading struct {
	ids        []string
	violations []string // kinds
	cursor     feed.Cursor
	cursors    []feed.Cursor // one for every batch, in front of it
	counts     []int         // how many IDs there were before every batch
	newest     time.Time
	err        error // what ended it; nil at the end of the feed
}

// maxIdleMoves limits how often in a row a source moves the cursor without an entity. Tests
// whose way is longer count for themselves.
const maxIdleMoves = 300

type nexter interface {
	Next(context.Context, feed.Cursor, feed.Limits) (feed.Batch, error)
}

// readOn calls Next until the end of the feed or an error, and holds it to its
// contract.
func readOn(t tester, s nexter, from feed.Cursor) (r reading) {
	t.Helper()
	r.cursor = from
	for idle := 0; ; idle++ {
		b, err := s.Next(t.Context(), r.cursor, feed.Limits{})
		if err != nil {
			if b.Entities != nil || b.Cursor != nil {
				t.Errorf("there is a batch beside the error: %+v", b)
			}
			r.err = err
			return r
		}
		r.cursors = append(r.cursors, r.cursor)
		r.counts = append(r.counts, len(r.ids))
		for _, e := range b.Entities {
			r.ids = append(r.ids, strings.Clone(e.ID))
			idle = 0
			if body := "body of " + e.ID; string(e.Body) != body && !strings.HasPrefix(e.ID, "<") {
				t.Errorf("entity %s has the body %q", e.ID, e.Body)
			}
		}
		for _, v := range b.Violations {
			r.violations = append(r.violations, v.Kind)
		}
		r.newest = b.Newest
		moved := !bytes.Equal(b.Cursor, r.cursor)
		r.cursor = b.Cursor
		count := len(b.Entities)
		if b.Free != nil {
			// The batch is published. Its memory is cleared, so that this shows if the source
			// still uses it.
			b.Free()
		}
		if !moved && count > 0 {
			t.Fatalf("entities %v came without a new cursor", r.ids)
		}
		if !b.More || !moved {
			return r
		}
		if idle > maxIdleMoves {
			t.Fatalf("the source spins at %s", r.cursor)
		}
	}
}

// readSure is readOn for a feed that has lost something: it waits and reads on
// until the source is sure of that. It is for virtual time.
func readSure(t tester, s nexter, from feed.Cursor) reading {
	t.Helper()
	all := reading{cursor: from}
	for {
		r := readOn(t, s, all.cursor)
		all.ids = append(all.ids, r.ids...)
		all.violations = append(all.violations, r.violations...)
		all.cursor, all.newest, all.err = r.cursor, r.newest, r.err
		if !unsure(r.err) {
			return all
		}
		time.Sleep(confirmFor / (confirmLooks - 1))
	}
}

// unsure reports whether err means that the answer may be an old one.
func unsure(err error) bool {
	_, ok := errors.AsType[*UnconfirmedError](err)
	return ok
}

// want checks the IDs that were read, and that there was no error.
func (r reading) want(t tester, ids string) {
	t.Helper()
	if r.err != nil {
		t.Errorf("error: %v", r.err)
	}
	r.wantIDs(t, ids)
}

func (r reading) wantIDs(t tester, ids string) {
	t.Helper()
	if got := strings.Join(r.ids, " "); got != ids {
		t.Errorf("read  %q\nwant  %q", got, ids)
	}
}

// wantError checks what ended the reading, by the kind of violation or by
// words of the text.
func (r reading) wantError(t tester, permanent bool, kind string, words ...string) {
	t.Helper()
	if r.err == nil {
		t.Fatalf("there was no error; read %v", r.ids)
	}
	got, cause := "", r.err
	if u, ok := errors.AsType[*UnconfirmedError](r.err); ok {
		cause = u.Cause
		if _, counts := errors.AsType[*feed.Violation](r.err); counts || permanent {
			t.Errorf("error %v\nis not certain, and counts as a violation: %v", r.err, counts)
		}
	}
	if v, ok := errors.AsType[*feed.Violation](cause); ok {
		got = v.Kind
	}
	if got != kind {
		t.Errorf("error %v\nis of the kind %q, want %q", r.err, got, kind)
	}
	if got := errors.Is(r.err, feed.ErrPermanent); got != permanent {
		t.Errorf("error %v\nis permanent: %v, want %v", r.err, got, permanent)
	}
	for _, word := range words {
		if !strings.Contains(r.err.Error(), word) {
			t.Errorf("error %v\nlacks %q", r.err, word)
		}
	}
}

func (r reading) wantViolations(t tester, kinds ...string) {
	t.Helper()
	if !slices.Equal(r.violations, kinds) {
		t.Errorf("violations %v\nwant       %v", r.violations, kinds)
	}
}

func (s *site) wantRequests(t tester, want ...string) {
	t.Helper()
	if got := s.requests(); !slices.Equal(got, want) {
		t.Errorf("requests %q\nwant     %q", got, want)
	}
}

// describeCursor returns the readable form of a cursor.
func describeCursor(t tester, c feed.Cursor) CursorInfo {
	t.Helper()
	p, err := Describe(c)
	must.Succeed(t, err)
	return p
}

var _ net.Listener = (*site)(nil)
