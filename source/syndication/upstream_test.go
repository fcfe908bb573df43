package syndication_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"html"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

var (
	_ feed.Source            = (*syndication.Source)(nil)
	_ syndication.TopicMarks = (*sink.IDs)(nil)
)

// upstream is a network with one host, feed.example, and the documents that a
// test puts there.
type upstream struct {
	mu   sync.Mutex
	docs map[string]string // by path
	// header has header fields of answers, by path. faults has faults to inject instead of
	// an answer, once each.
	header map[string]http.Header
	faults map[string][]http.HandlerFunc
	always map[string]http.HandlerFunc
	log    []string
	asked  []http.Header
	noETag bool
	// onRequest is called at each request, if it is set.
	onRequest func()

	conns chan net.Conn
	done  chan struct{}
	close sync.Once
}

const host = "http://feed.example"

// newUpstream takes paths and documents in turn.
func newUpstream(docs ...string) *upstream {
	u := &upstream{
		docs: map[string]string{}, header: map[string]http.Header{}, faults: map[string][]http.HandlerFunc{}, always: map[string]http.HandlerFunc{},
		conns: make(chan net.Conn), done: make(chan struct{}),
	}
	for i := 0; i < len(docs); i += 2 {
		u.docs[docs[i]] = docs[i+1]
	}
	return u
}

func (u *upstream) set(path, doc string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.docs[path] = doc
}

// serve answers all requests for a path; nil takes that back.
func (u *upstream) serve(path string, h http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.always[path] = h
}

// fault answers the next requests for a path.
func (u *upstream) fault(path string, faults ...http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.faults[path] = append(u.faults[path], faults...)
}

func (u *upstream) field(path, name, value string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.header[path] == nil {
		u.header[path] = http.Header{}
	}
	u.header[path].Set(name, value)
}

func status(code int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(code)
	}
}

func body(code int, contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}
}

var htmlPage = body(200, "text/html", "<!DOCTYPE html><html><body>Sorry</body></html>")

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if u.onRequest != nil {
		u.onRequest()
	}
	u.mu.Lock()
	path := r.URL.RequestURI()
	line := path
	if r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Modified-Since") != "" {
		line += "?if"
	}
	u.log = append(u.log, line)
	u.asked = append(u.asked, r.Header.Clone())
	fault := u.always[path]
	if list := u.faults[path]; len(list) > 0 {
		fault, u.faults[path] = list[0], list[1:]
	}
	doc, ok := u.docs[path]
	w.Header().Set("Content-Type", "application/xml")
	maps.Copy(w.Header(), u.header[path])
	noETag := u.noETag
	u.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	if !noETag {
		etag := fmt.Sprintf(`"%x"`, crc32.ChecksumIEEE([]byte(doc)))
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write([]byte(doc))
}

// requests returns the paths that were asked for since the last call, with "?if"
// for conditional requests.
func (u *upstream) requests() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	log := u.log
	u.log = nil
	return strings.Join(log, " ")
}

func (u *upstream) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case u.conns <- server:
		return client, nil
	case <-u.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (u *upstream) Accept() (net.Conn, error) {
	select {
	case conn := <-u.conns:
		return conn, nil
	case <-u.done:
		return nil, net.ErrClosed
	}
}

func (u *upstream) Close() error {
	u.close.Do(func() { close(u.done) })
	return nil
}

func (u *upstream) Addr() net.Addr { return &net.UnixAddr{Name: "upstream"} }

// tester is what tests and properties have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// client starts the server and returns a client of it.
func (u *upstream) client(t tester, cfg source.Config) *source.Client {
	t.Helper()
	server := &http.Server{Handler: u, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(u)
	}()
	client, err := source.NewClient(cfg, source.Options{Hosts: &source.Hosts{Dial: u.dial}})
	must.Succeed(t, err)
	t.Cleanup(func() {
		client.CloseIdle()
		_ = server.Close()
		<-stopped
	})
	return client
}

// reader is a source and the topic that it reads for.
type reader struct {
	t      tester
	u      *upstream
	cfg    syndication.Config
	client *source.Client
	ids    *sink.IDs
	log    *slog.Logger
	src    *sink.Gate
	cursor feed.Cursor
	// messages is the topic, and last has the messages of the last call of poll.
	messages, last []feed.Entity
	title          string
	violations     []string
	details        []feed.Violation
	fresh          time.Duration
	batches        int
	batch          feed.Limits
}

type edit = func(*syndication.Config)

// read makes a reader of /feed.
func (u *upstream) read(t tester, edits ...edit) *reader {
	t.Helper()
	cfg := syndication.Defaults()
	cfg.URL, cfg.Body = host+"/feed", "xml"
	cfg.Limits.Rate = 1e6
	for _, edit := range edits {
		edit(&cfg)
	}
	for _, err := range cfg.Validate() {
		t.Fatal(err)
	}
	r := &reader{t: t, u: u, cfg: cfg, client: u.client(t, cfg.Config), ids: sink.NewIDs(0), log: slog.New(slog.DiscardHandler), batch: feed.LargestBatch}
	r.restart()
	return r
}

// inBatches limits the batches.
func (r *reader) inBatches(limits feed.Limits) *reader {
	r.batch = limits
	return r
}

// restart forgets everything but the topic and the cursor.
func (r *reader) restart() {
	r.ids = sink.NewIDs(0)
	r.ids.Commit(r.messages)
	r.src = &sink.Gate{
		Source: syndication.New(r.cfg, r.client, r.ids, r.log), IDs: r.ids, Log: r.log,
		Fits: func(e []feed.Entity) (int, error) { return len(e), nil },
	}
}

// next calls Next once and commits the batch.
func (r *reader) next() (more bool, err error) {
	r.t.Helper()
	b, err := r.src.Next(r.t.Context(), r.cursor, r.batch)
	if err != nil {
		r.ids.Rollback()
		return false, err
	}
	r.batches++
	r.ids.Commit(b.Entities)
	r.messages = append(r.messages, b.Entities...)
	r.last = append(r.last, b.Entities...)
	r.title = b.Title
	for _, v := range b.Violations {
		r.violations = append(r.violations, v.Kind)
		r.details = append(r.details, v)
	}
	r.fresh = b.Fresh
	if len(b.Cursor) > 32<<10 {
		r.t.Fatalf("the cursor has %d bytes", len(b.Cursor))
	}
	for _, e := range b.Entities {
		if len(e.Mark) > 200 || e.Mark == "" || e.ID == "" {
			r.t.Errorf("entity %q has the mark %q", e.ID, e.Mark)
		}
	}
	moved := !bytes.Equal(b.Cursor, r.cursor)
	if !moved && b.More {
		r.t.Fatalf("there is more, and the cursor has not moved: %s", b.Cursor)
	}
	r.cursor = b.Cursor
	return b.More, nil
}

// step is next, and ends the test at an error.
func (r *reader) step() (more bool) {
	r.t.Helper()
	more, err := r.next()
	must.Succeed(r.t, err)
	return more
}

// poll calls Next until there is no more.
func (r *reader) poll() error {
	r.t.Helper()
	r.last, r.violations, r.details, r.batches = nil, nil, nil, 0
	for range 10_000 {
		if more, err := r.next(); err != nil || !more {
			return err
		}
	}
	r.t.Fatal("the source spins")
	return nil
}

// wantCount polls, and checks how many messages that publishes.
func (r *reader) wantCount(n int) {
	r.t.Helper()
	if err := r.poll(); err != nil || len(r.last) != n {
		r.t.Fatalf("%d messages were published, want %d: %s, %v, %v", len(r.last), n, texts(r.last), r.details, err)
	}
}

// want polls and compares the published messages.
func (r *reader) want(messages string, violations ...string) {
	r.t.Helper()
	if err := r.poll(); err != nil {
		r.t.Errorf("error: %v", err)
	}
	r.wantLast(messages)
	r.wantViolations(violations...)
}

// wantError polls until an error, and compares the messages that were published before it.
func (r *reader) wantError(permanent bool, messages string, words ...string) {
	r.t.Helper()
	err := r.poll()
	if err == nil {
		r.t.Fatalf("there was no error; read %s", texts(r.last))
	}
	if got := errors.Is(err, feed.ErrPermanent); got != permanent {
		r.t.Errorf("error %v is permanent: %v, want %v", err, got, permanent)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			r.t.Errorf("error %v lacks %q", err, word)
		}
	}
	r.wantLast(messages)
}

func (r *reader) wantLast(messages string) {
	r.t.Helper()
	if got := texts(r.last); got != messages {
		r.t.Errorf("published  %q\nwant       %q", got, messages)
	}
}

func (r *reader) wantViolations(kinds ...string) {
	r.t.Helper()
	if !slices.Equal(r.violations, kinds) {
		r.t.Errorf("violations %v\nwant       %v\n%v", r.violations, kinds, r.details)
	}
}

func (r *reader) wantRequests(paths string) {
	r.t.Helper()
	if got := r.u.requests(); got != paths {
		r.t.Errorf("requests %q\nwant     %q", got, paths)
	}
}

func (r *reader) place() syndication.CursorInfo {
	r.t.Helper()
	p, err := syndication.Describe(r.cursor)
	must.Succeed(r.t, err)
	return p
}

var content = regexp.MustCompile(`(?s)<(?:content|description)[^>]*>(.*?)</(?:content|description)>|"content_text":"([^"]*)"`)

// textOf returns the content of an entry; "" if it has none.
func textOf(entry []byte) string {
	m := content.FindSubmatch(entry)
	if m == nil {
		return ""
	}
	return string(m[1]) + string(m[2])
}

// texts writes entities as documents are written in tests: "id:text", and "-id"
// for a delete.
func texts(entities []feed.Entity) string {
	var list []string
	for _, e := range entities {
		text := e.ID
		if e.Op == feed.Delete {
			text = "-" + text
		} else if content := textOf(e.Body); content != "" {
			text += ":" + content
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// dawn is when the feeds of these tests begin, in the past of synctest too.
var dawn = time.Date(1999, 10, 5, 3, 0, 0, 0, time.UTC)

func second(s string) string {
	n, err := strconv.Atoi(s)
	if err != nil {
		return s
	}
	return dawn.Add(time.Duration(n) * time.Second).Format(time.RFC3339)
}

const namespaces = ` xmlns:fh="http://purl.org/syndication/history/1.0" xmlns:at="http://purl.org/atompub/tombstones/1.0"`

// atom writes a document: head is XML, or "@12" for its update time. Entries are
// "id@seconds:text", of which only the id has to be there, and "-id@seconds" is a
// tombstone.
func atom(head, entries string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"` + namespaces + `>` + heads(head, "updated"))
	for _, e := range strings.Fields(entries) {
		id, at, text := cutEntry(e)
		if ref, ok := strings.CutPrefix(id, "-"); ok {
			fmt.Fprintf(&b, `<at:deleted-entry ref="%s" when="%s"/>`, ref, at)
			continue
		}
		fmt.Fprintf(&b, "<entry><id>%s</id>", html.EscapeString(id))
		if at != "" {
			fmt.Fprintf(&b, "<updated>%s</updated>", at)
		}
		if text != "" {
			fmt.Fprintf(&b, "<content>%s</content>", text)
		}
		b.WriteString("</entry>")
	}
	return b.String() + "</feed>"
}

var contentStart = regexp.MustCompile(`<content>(\w+)`)

// titled gives the entries of a document titles that change with their text.
func titled(doc string) string {
	return contentStart.ReplaceAllString(doc, "<title>$1</title>$0")
}

// rss writes a document as [atom] does. The text after the @ is a pubDate.
func rss(head, entries string) string {
	var b strings.Builder
	b.WriteString(`<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"` + namespaces + `><channel>` + heads(head, "lastBuildDate"))
	for _, e := range strings.Fields(entries) {
		id, at, text := cutEntry(e)
		if ref, ok := strings.CutPrefix(id, "-"); ok {
			fmt.Fprintf(&b, `<at:deleted-entry ref="%s" when="%s"/>`, ref, at)
			continue
		}
		b.WriteString("<item>")
		if link, ok := strings.CutPrefix(id, "~"); ok {
			fmt.Fprintf(&b, "<guid/><link>%s/%s</link>", host, link)
		} else {
			fmt.Fprintf(&b, "<guid>%s</guid>", id)
		}
		if at != "" {
			fmt.Fprintf(&b, "<pubDate>%s</pubDate>", at)
		}
		if text != "" {
			fmt.Fprintf(&b, "<description>%s</description>", text)
		}
		b.WriteString("</item>")
	}
	return b.String() + "</channel></rss>"
}

func cutEntry(e string) (id, at, text string) {
	e, text, _ = strings.Cut(e, ":")
	id, at, _ = strings.Cut(e, "@")
	if at != "" {
		at = second(at)
	}
	return id, at, text
}

func heads(head, updated string) string {
	at := regexp.MustCompile(`@(\d+)`)
	return at.ReplaceAllStringFunc(head, func(s string) string {
		return fmt.Sprintf("<%s>%s</%[1]s>", updated, second(s[1:]))
	})
}

func link(rel, href string) string { return fmt.Sprintf(`<link rel="%s" href="%s"/>`, rel, href) }
func prev(href string) string      { return link("prev-archive", href) }
func rssPrev(href string) string {
	return fmt.Sprintf(`<atom:link rel="prev-archive" href="%s"/>`, href)
}

const (
	complete = "<fh:complete/>"
	archive  = "<fh:archive/>"
)
