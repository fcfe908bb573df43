// Package statuspage serves the status pages of the admin server: all feeds at /, one feed at
// /feed/NAME, and the served topics at /served. They work without JavaScript. With it they
// are live: the server sends the content of the page again when it has changed.
//
// All text that comes from outside is escaped by html/template, and the Content-Security-Policy
// allows nothing but the style sheet and the script of this package.
package statuspage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/limit"
)

// Feeds are the rows of one page of the table of feeds, with the buses and the counts above it.
type Feeds struct {
	Summary status.Summary
	Config  status.Config
	Buses   []status.Bus
	Fleet   *status.Fleet // nil without a fleet
	Lists   []status.List
	// LeftBehind are the feeds that were stopped and have not ended.
	LeftBehind []status.LeftBehind
	// SlowHosts are the hosts that are asked less often.
	SlowHosts []status.SlowHost
	Rows      []*status.Feed
	// All is the number of feeds, and Found how many of them the query selects.
	All, Found int
	// States counts the feeds that the query would select without its State, by their state.
	States map[string]int
}

// Served are the rows of one page of the table of served topics.
type Served struct {
	Rows       []status.Served
	All, Found int
}

// Options describe the process. Its functions provide the data of the pages. They may be called
// from any goroutine. The secrets of URLs are hidden in their answers, and the length of every text
// is bounded.
type Options struct {
	// Feeds returns the copied feeds that the query selects.
	Feeds func(ctx context.Context, q Query) Feeds
	// Feed returns a copied feed with its recent errors and entities, and whether there is
	// one of that name.
	Feed func(ctx context.Context, name string) (status.Feed, bool)
	// Served returns the served topics that the query selects. It ignores their order, which is
	// that of their names, and State.
	Served func(ctx context.Context, q Query) Served

	Version, Writer string
	Started         time.Time
	Program         Program
	// Token reports whether changes can be made with a token.
	Token bool
	// Streams limits the number of live pages that are open at a time. One more gets the status 503. Default 16.
	Streams int
	// Every is the shortest time between two updates of a live page. Default 2s.
	Every time.Duration
	// Patience limits the time of a write to the client of a live page. A slower client is
	// disconnected. Default 10s.
	Patience time.Duration
	Log      *slog.Logger
}

// Pages serves the status pages.
type Pages struct {
	opts    Options
	streams *limit.Limit // that are open
	renders *limit.Limit // of live pages; see stream
	closing context.Context
	close   context.CancelFunc
}

// New returns the pages.
func New(opts Options) *Pages {
	if opts.Streams <= 0 {
		opts.Streams = 16
	}
	if opts.Every <= 0 {
		opts.Every = 2 * time.Second
	}
	if opts.Patience <= 0 {
		opts.Patience = 10 * time.Second
	}
	opts.Program.Name = cmp.Or(opts.Program.Name, "feedbridge")
	closing, cancel := context.WithCancel(context.Background())
	return &Pages{
		opts:    opts,
		streams: limit.New(opts.Streams, 0), renders: limit.New(limit.Renders, 0),
		closing: closing, close: cancel,
	}
}

// Close ends the live pages.
func (p *Pages) Close() { p.close() }

// Register adds the pages to mux.
func (p *Pages) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", p.serve(feedsTemplate, p.feeds))
	mux.HandleFunc("GET /feed/{feed}", p.serve(feedTemplate, p.feed))
	mux.HandleFunc("GET /served", p.serve(servedTemplate, p.served))
	mux.HandleFunc("GET /assets/{version}/{file}", serveAsset)
}

//go:embed files
var files embed.FS

// assets are the files that pages refer to, by name. Their URLs contain a hash of all of
// them, so browsers cache them for good.
var assets, assetsVersion = readAssets()

func readAssets() (map[string][]byte, string) {
	hash := sha256.New()
	contents := map[string][]byte{}
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		b, err := files.ReadFile("files/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		contents[name] = b
		hash.Write(b)
	}
	return contents, hex.EncodeToString(hash.Sum(nil)[:6])
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	b, ok := assets[r.PathValue("file")]
	if !ok || r.PathValue("version") != assetsVersion {
		http.NotFound(w, r)
		return
	}
	setHeaders(w.Header())
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, r.PathValue("file"), time.Time{}, bytes.NewReader(b))
}

// policy allows only the files of this package. It forbids other sites to show the pages in a
// frame.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
}

// view is the data of a template.
type view struct {
	Title string
	// Path is the path of the page, and Assets that of its files.
	Path, Assets    string
	Version, Writer string
	Now, Started    time.Time
	Program         Program
	// Token reports whether changes can be made with a token, and Readable whether messages can be read without
	// one. TokenInURL reports that the address of the page has one, which is not used.
	Token, Readable, TokenInURL bool
	Data                        any
}

// IsLocal reports whether a request came to an address that only this machine reaches.
func IsLocal(r *http.Request) bool {
	switch at := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return at.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// Of returns a view of a part of the data.
func (v view) Of(data any) view { v.Data = data; return v }

// content returns the data of the page that is requested.
type content func(r *http.Request) (title string, code int, data any)

// serve returns the handler of a page. A request that accepts only events gets a live page.
func (p *Pages) serve(t *template.Template, get content) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		w.Header().Set("Vary", "Accept")
		if r.Header.Get("Accept") == "text/event-stream" {
			p.stream(w, r, t, get)
			return
		}
		body, code, err := p.execute(r, t, "page", get)
		if err != nil {
			p.opts.Log.Error("cannot make the status page", "error", err)
			http.Error(w, "cannot make the page: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write(body)
	}
}

// execute returns a page, or the part of it that has the name, and its status.
func (p *Pages) execute(r *http.Request, t *template.Template, name string, get content) (body []byte, code int, err error) {
	title, code, data := get(r)
	var b bytes.Buffer
	err = t.ExecuteTemplate(&b, name, view{
		Title: title, Path: r.URL.Path, Assets: "/assets/" + assetsVersion, Version: p.opts.Version, Writer: p.opts.Writer,
		Now: time.Now(), Started: p.opts.Started, Program: p.opts.Program, Token: p.opts.Token, Readable: !p.opts.Token && IsLocal(r), TokenInURL: r.URL.Query().Has("token"), Data: data,
	})
	return bytes.Map(visible, b.Bytes()), code, err
}

// visible replaces a control character, which a terminal may obey and no template has:
// package html/template does not escape the ones in a feed's name or a query.
func visible(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return utf8.RuneError
	}
	return r
}

func (p *Pages) feeds(r *http.Request) (string, int, any) {
	q := parseQuery(r.URL.Query(), feedColumns)
	feeds := p.opts.Feeds(r.Context(), q)
	return "Feeds", http.StatusOK, feedsData{feeds, newListing(q, feeds.All, feeds.Found, "/")}
}

func (p *Pages) feed(r *http.Request) (string, int, any) {
	name := r.PathValue("feed")
	f, ok := p.opts.Feed(r.Context(), name)
	if !ok {
		return "No such feed", http.StatusNotFound, feedData{Name: name}
	}
	return f.Feed, http.StatusOK, feedData{Name: f.Feed, Feed: &f}
}

func (p *Pages) served(r *http.Request) (string, int, any) {
	q := parseQuery(r.URL.Query(), nil)
	served := p.opts.Served(r.Context(), q)
	return "Served topics", http.StatusOK, servedData{served, newListing(q, served.All, served.Found, "/served")}
}
