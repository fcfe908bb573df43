package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/connlimit"
)

// handler answers the requests for a feed.
type handler struct {
	cfg         *Config
	credentials *credentials
	pages       *pageBuilder
	outage      *outage
	snapshots   *snapshotHandler
	packing     singleflight.Group // the pages that are being compressed
}

// ServeHTTP answers requests for /feeds/NAME/….
func (f *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun, watched := time.Now(), &watchedWriter{ResponseWriter: w}
	w = watched
	defer func() {
		// A client that left before its answer is not observed.
		if f.cfg.Observe != nil && watched.status != 0 {
			f.cfg.Observe(watched.status, time.Since(begun)-watched.waited)
		}
	}()
	err := f.serveFeed(watched, r)
	if err == nil || r.Context().Err() != nil {
		return
	}
	var a *answer
	switch {
	case errors.As(err, &a):
	case errors.Is(err, errGone):
		a = &answer{http.StatusGone, "This page is gone: the topic no longer has its messages, or was created again. The feed starts at " + f.cfg.entryURL() + "."}
	case errors.Is(err, errNoPage):
		a = &answer{http.StatusNotFound, "There is no such page. The newest is at " + f.cfg.entryURL() + "."}
	case errors.Is(err, feed.ErrNoTopic):
		f.outage.logChange(err)
		a = &answer{http.StatusNotFound, "The topic of this feed does not exist."}
	case errors.Is(err, errFull):
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		a = &answer{http.StatusServiceUnavailable, "Too many clients are being served. Try again in a moment."}
	case errors.Is(err, errTooLarge):
		f.cfg.Log.Error("a document is too large to be served", "path", r.URL.Path, "error", err)
		a = &answer{http.StatusInternalServerError, "This document is too large to be served."}
	case errors.Is(err, feed.ErrPermanent):
		f.outage.logChange(err)
		a = &answer{http.StatusInternalServerError, "This topic cannot be served as a feed; the server's log says why."}
	default:
		f.outage.logChange(err)
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		a = &answer{http.StatusServiceUnavailable, "The bus does not answer. Try again in a moment."}
	}
	h := w.Header()
	for _, name := range []string{"Cache-Control", "ETag", "Last-Modified", "Link", "Content-Encoding"} {
		h.Del(name)
	}
	if a.status == http.StatusNotFound || a.status == http.StatusGone {
		// A topic may come, or come back.
		h.Set("Cache-Control", "no-cache")
	}
	if f.cfg.Format == HTTPFeeds {
		sendProblem(w, a)
		return
	}
	http.Error(w, a.sentence, a.status)
}

// watchedWriter records the status, and sends pages that are held in memory without a
// buffer. Otherwise each client would take up a buffer for as long as it reads.
type watchedWriter struct {
	http.ResponseWriter
	status int           // 0 until it is written, as it always is before a body
	waited time.Duration // for events, as the client asked
}

func (w *watchedWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// ReadFrom implements [io.ReaderFrom], which [http.ServeContent] uses to send a body.
func (w *watchedWriter) ReadFrom(from io.Reader) (int64, error) {
	if some, ok := from.(*io.LimitedReader); ok {
		if body, ok := some.R.(*bytes.Reader); ok && int64(body.Len()) <= some.N {
			return body.WriteTo(w.ResponseWriter)
		}
	}
	return io.CopyBuffer(struct{ io.Writer }{w.ResponseWriter}, from, make([]byte, connlimit.Chunk/2))
}

// Unwrap returns the underlying writer, for [http.ResponseController].
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (f *handler) serveFeed(w *watchedWriter, r *http.Request) error {
	auth, err := f.credentials.read()
	if err != nil {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		return newAnswer(http.StatusServiceUnavailable, "The server cannot read the credentials of this feed.")
	}
	if !auth.authorizes(r) {
		w.Header().Set("WWW-Authenticate", auth.challenge())
		return newAnswer(http.StatusUnauthorized, "This feed requires credentials.")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return newAnswer(http.StatusMethodNotAllowed, "A feed is read with GET and HEAD.")
	}
	if r.Method == http.MethodHead {
		r.Header.Del("Range") // only GET has ranges (RFC 9110, section 14.2)
	}
	if f.cfg.Format == HTTPFeeds && strings.TrimSuffix(r.URL.Path, "/") == f.cfg.feedPath() {
		return f.serveEvents(w, r)
	}
	path, ok := strings.CutPrefix(r.URL.Path, f.cfg.feedPath()+"/")
	what, name, _ := strings.Cut(path, "/")
	switch {
	case !ok, f.cfg.Format == HTTPFeeds:
	case path == "latest":
		return f.serveLatest(w, r)
	case what == "pages":
		id, ok := parsePageID(name)
		if !ok {
			return errNoPage
		}
		p, err := f.pages.findPage(r.Context(), pageKey{feed: f.cfg, id: id})
		if err != nil {
			return err
		}
		defer f.pages.memory.releasePage(p)
		if r.Method == http.MethodGet && !wantsHTML(r) {
			f.pages.buildAhead(p)
		}
		return f.sendPage(w, r, p)
	case what == "snapshots" && f.snapshots.store != nil:
		return f.snapshots.serveSnapshot(w, r, name)
	}
	return newAnswer(http.StatusNotFound, "There is nothing here. The feed begins at %s.", f.cfg.entryURL())
}

// serveLatest answers at the entry point.
func (f *handler) serveLatest(w http.ResponseWriter, r *http.Request) error {
	if f.cfg.isLinked() {
		return f.subscription(w, r)
	}
	p, err := f.pages.newestPage(r.Context())
	if err != nil {
		return err
	}
	switch {
	case p != nil:
		defer f.pages.memory.releasePage(p)
	case !wantsHTML(r):
		f.outage.logChange(nil)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Vary", vary)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return f.sendPage(w, r, p)
}

// vary names the headers of a request that the representation depends on: browsers get a page for people.
const vary = "Accept, Accept-Encoding"

// isEntry reports whether a request is for the entry point of the feed, whose page changes.
func isEntry(r *http.Request, p *page) bool {
	return strings.HasSuffix(r.URL.Path, "/latest") || p.kind == eventList && lastEventOf(r.URL.Query()) == ""
}

// sendPage sends a page, as HTML to browsers. p is nil if that has no entity.
func (f *handler) sendPage(w http.ResponseWriter, r *http.Request, p *page) error {
	f.outage.logChange(nil)
	span, err := f.pages.spans.Span(r.Context())
	if err != nil {
		return err
	}
	// The newest page is another one at each request, and compressed it may have other bytes
	// with the next version of feedbridge: a page is sent in full.
	r.Header.Del("Range")
	h := w.Header()
	h.Set("Vary", vary)
	if wantsHTML(r) {
		return f.browsePage(w, r, p, span)
	}
	h.Set("Content-Type", p.contentType)
	if !p.linked {
		base, err := f.cfg.linkBase(r)
		if err != nil {
			return err
		}
		h["Link"] = linkFields(base, p, span)
	}
	modified := p.modified.UTC().Format(http.TimeFormat)
	h.Set("Last-Modified", modified)
	// The bus may have a clock that is ahead of ours.
	if time.Now().Before(p.modified) {
		h.Set("Date", modified)
	}
	// A page that may get entities, or a next page, must not be taken for the same
	// because it was changed in the same second. Times may run back, so a later time is no proof.
	since := p.modified
	entry := isEntry(r, p)
	if entry && (!p.dated || r.Header.Get("If-Modified-Since") != modified) || !entry && !p.after.ok {
		since = time.Time{}
	}
	h.Set("Cache-Control", f.cfg.cacheControl(p.after.ok && !entry))
	tag := p.tag
	if !p.linked {
		tag += fmt.Sprintf("-%t-%t", p.hasPrev(span), p.after.ok)
	}

	plain, packed := `"`+tag+`"`, `"`+tag+`-gzip"`
	if b := f.packedBody(r, p); len(b) > 0 {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(b)))
		h.Set("ETag", packed)
		http.ServeContent(w, r, "", since, bytes.NewReader(b))
		return nil
	}
	content, done, err := f.plainBody(w, r, p)
	if err != nil {
		return err
	}
	defer done()
	h.Set("ETag", plain)
	http.ServeContent(w, r, "", since, content)
	return nil
}

// packedBody returns the compressed body of a page, if that is the answer to a request, and otherwise nothing.
func (f *handler) packedBody(r *http.Request, p *page) []byte {
	if len(p.body) < smallest || !acceptsGzip(r.Header.Values("Accept-Encoding")) {
		return nil
	}
	return f.gzipBody(r.Context(), p)
}

// plainBody returns the bytes of a page that is not compressed. The caller calls done when they have been sent.
func (f *handler) plainBody(w http.ResponseWriter, r *http.Request, p *page) (content io.ReadSeeker, done func(), err error) {
	if p.body != nil {
		return bytes.NewReader(p.body), func() {}, nil
	}
	if r.Method == http.MethodHead {
		return &stream{f: f.pages, p: p}, func() {}, nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	slot, err := f.pages.memory.acquireStream(ctx, func() {
		cancel()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	s := &stream{ctx: ctx, f: f.pages, p: p, slot: slot}
	return s, func() {
		s.Close()
		slot.Release()
		cancel()
	}, nil
}

// gzipBody returns the body of a page in gzip. It is empty if there is none.
func (f *handler) gzipBody(ctx context.Context, p *page) []byte {
	if b := f.pages.memory.gzipBody(p); b != nil {
		return b
	}
	b, err := shareCall(ctx, &f.packing, fmt.Sprintf("gzip %p", p), func(ctx context.Context) ([]byte, error) {
		// It takes a megabyte, and a core.
		slot, err := f.pages.memory.builds.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer slot.Release()
		b := compressGzip(p.body)
		if !f.pages.memory.storeGzip(p, b) {
			b = []byte{} // sending it plain takes no more memory
		}
		return b, nil
	})
	if err != nil {
		return nil
	}
	return b
}

// subscription answers with the document that has the newest entries: at least as
// many messages as an archive has positions, if the topic has so many, from the first
// entry of an archive on. So a client that does not know archives sees each entry for
// a while, also where most positions have no message, as those of checkpoints.
func (f *handler) subscription(w http.ResponseWriter, r *http.Request) error {
	for range 5 {
		span, err := f.pages.spans.Span(r.Context())
		if err != nil {
			return err
		}
		id := pageID{epoch: span.Epoch, size: uint64(f.cfg.PageSize)}
		id.k = span.End / id.size
		p, err := f.pages.currentPage(r.Context(), pageKey{feed: f.cfg, id: id, kind: subscription})
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return err
		}
		defer f.pages.memory.releasePage(p)
		return f.sendPage(w, r, p)
	}
	return errMoved
}
