// Package datareplication reads feeds of the datareplication format: pages of
// multipart entities, linked to each other by Link headers and read from the
// oldest to the newest.
//
// A [Source] finds the place to start at by HEAD requests back from the entry
// point, walks forward by GET, and from then on polls the newest page with one
// conditional request. A feed may be told to start with a snapshot, whose pages
// are then read first.
//
// # The position
//
// The cursor names a page and the number of entities that were read of it. It
// also holds what proves that the position is still the same: the Content-ID of
// the entity before it, that entity's time, and a digest over the entities before
// it on the page. At the start of a page, of which nothing has been read, the page
// before it has to end with that entity. It is read again only after a restart, a
// pause, or a poll of a newest page that was empty. A position that is not proven is lost. Its entity is then searched for
// in the whole feed; without it reading stops, or goes on as Config.Gap says.
//
// Upstreams may have replicas that lag. An older answer is a feed without its
// newest pages and entities, so it can hide a position, but cannot move it: what
// follows the entity before the position is the same in every version of the feed
// that has that entity. A position counts as lost after it was missing several
// times in a row over several seconds, and until then Next returns a transient
// error.
//
// "Not modified" is believed for an hour after the page was read in full. The
// cursor has the time of that, so the hour is not restarted with a process.
//
// The cursor is bounded: 1 KiB and a few URLs.
//
// Pages are parsed as they arrive: what is held in memory is one batch and one
// buffer, however large the page is.
package datareplication

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

const (
	// batchBytes is how large a batch gets by default.
	batchBytes = 1 << 20
	// trustETag is for how long "not modified" is believed after the page was
	// read in full, whichever process read it. There are servers whose ETag
	// does not change with the page (users lost data to them) or with its
	// links, so the page is read in full now and then.
	trustETag = time.Hour
	// newestEvery is how often the entry point is asked how far the feed has
	// got, while older pages are being read.
	newestEvery = 30 * time.Second
	// newestTimeout is how long reading waits for the answer.
	newestTimeout = 2 * time.Second
	// weak is how old a page must be, by the server's own clock, for its
	// Last-Modified to prove that nothing came after it in the same second.
	// RFC 9110 (8.8.2.2) would have a second or two do, but entities are put on
	// a page some time after the time that they bear.
	weak = time.Minute
)

// Source reads one feed. Next keeps the contract of a bridge's Source: what a
// Source remembers between calls saves requests, or delays what it reports, and
// decides nothing else. It is for one goroutine at a time.
type Source struct {
	cfg    Config
	client *source.Client
	log    *slog.Logger
	// trust is how long this Source trusts a page that was read in full: up to
	// a sixth less than trustETag. So the copies of a feed do not read and
	// commit at the same moment, nor do a thousand feeds that were started
	// together.
	trust time.Duration

	// reserved is what the batch that is being read has reserved.
	reserved reservation

	// at is the page that is being read, if its end has not been reached.
	at *openPage
	// index is that of the snapshot that is being read.
	index *index
	// end is what is known of the end of the feed.
	end end
	// newest is the newest time that was seen on the entry point.
	newest newest
	// trail notices next links that lead in a circle. It starts anew where
	// reading does not go on from expect.
	trail trail
	// proven is the end of a page that is known to be what was read.
	proven pageEnd
	// expect is the cursor that was returned last, or that the last error was
	// the answer to.
	expect feed.Cursor
	// noHead says that the server does not know HEAD.
	noHead bool
	// old counts answers that may be older than what was read before, and gaps
	// the searches that did not find the position. Both count from the last
	// batch on, and for the cursor expect.
	old, gaps finding
	// changed is the digest of a changed page that was reported.
	changed digest
}

// New returns a Source for the feed that cfg names.
func New(cfg Config, client *source.Client, log *slog.Logger) *Source {
	if cfg.BatchBytes <= 0 {
		cfg.BatchBytes = batchBytes
	}
	if cfg.Gap == "" {
		cfg.Gap = GapHalt
	}
	return &Source{cfg: cfg, client: client, log: log, trust: trustETag - rand.N(trustETag/6)}
}

// NextUpTo is Next with at most n entities in the batch; n is 1 or more.
func (s *Source) NextUpTo(ctx context.Context, after feed.Cursor, n int) (feed.Batch, error) {
	most := s.cfg.BatchEntities
	defer func() { s.cfg.BatchEntities = most }()
	s.cfg.BatchEntities = n
	return s.Next(ctx, after)
}

// Next reads on from after: at most one page of new entities, or a stretch of
// the way to the starting place.
func (s *Source) Next(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	s.reserved = reservation{memory: s.cfg.Memory}
	if !bytes.Equal(after, s.expect) {
		s.closePage()
		s.trail = trail{}
		s.old, s.gaps = finding{}, finding{}
	}
	batch, err := s.next(ctx, after)
	if err != nil {
		s.closePage()
		s.index = nil
		s.expect = after
		s.proven = pageEnd{} // the server may come back with another feed
		return feed.Batch{}, err
	}
	batch.Newest = s.newest.at
	s.expect = batch.Cursor
	s.old, s.gaps = finding{}, finding{}
	return batch, nil
}

func (s *Source) next(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	cur, err := decodeCursor(after)
	if err != nil {
		return feed.Batch{}, err
	}
	fresh := cur.Page == "" && cur.Search == nil
	edited := cur.Search != nil && cur.Search.Start != "" && cur.Search.Start != s.cfg.Start.String()
	if fresh || edited {
		cur = startCursor(s.cfg.Start)
	}
	batch, err := s.read(ctx, cur, after)
	if err != nil && mayBeOld(err, &cur) && !s.old.add() {
		return feed.Batch{}, unconfirmed(err)
	}
	if l, ok := errors.AsType[*lostPosition](err); ok {
		return s.recoverPosition(ctx, cur, l)
	}
	return batch, err
}

// read goes on with the snapshot, the search or the walk that cur is in.
func (s *Source) read(ctx context.Context, cur cursor, after feed.Cursor) (feed.Batch, error) {
	if cur.Snapshot != nil {
		return s.readSnapshot(ctx, cur)
	}
	if cur.Page != "" {
		return s.readPages(ctx, &pageWalk{s: s, trail: &s.trail, cur: cur, named: cur.Page}, after)
	}
	sr := cur.Search
	var seen sightings
	start, err := s.seekBack(ctx, sr, headsPerCall, &seen)
	switch {
	case errors.Is(err, errEmpty) && sr.Now:
		// The feed ends here and now: what comes is new.
		sr.Now = false
		return feed.Batch{Cursor: cur.encode(), Violations: seen}, nil
	case errors.Is(err, errEmpty):
		return feed.Batch{Cursor: after, Violations: seen}, nil
	case err != nil:
		return feed.Batch{}, err
	case start == "":
		s.log.Info("looking for the place to start at", "place", sr.String(), "at", sr.Back)
		return feed.Batch{Cursor: cur.encode(), More: true, Violations: seen}, nil
	}
	cur.Page = start
	return s.readPages(ctx, &pageWalk{s: s, trail: &s.trail, cur: cur, seen: seen}, after)
}

// head is what a HEAD request tells of a page.
type head struct {
	page.Header
	length     int64 // Content-Length, or -1
	violations []feed.Violation
}

// head asks for the header of a page, by GET where the server does not know
// HEAD (case 88).
func (s *Source) head(ctx context.Context, url string) (head, error) {
	method := http.MethodHead
	if s.noHead {
		method = http.MethodGet
	}
	resp, err := s.client.Do(ctx, source.Request{Method: method, URL: url})
	if status := statusOf(err); !s.noHead && (status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented) {
		s.noHead = true
		s.log.Info("the server does not answer HEAD; using GET", "url", url)
		return s.head(ctx, url)
	}
	if err != nil {
		return head{}, err
	}
	defer resp.Body.Close()
	if resp.Status == http.StatusNoContent {
		return head{}, errNoContent
	}
	header, violations, err := page.ParseHeader(resp.Header, resp.URL, false)
	return head{header, contentLength(resp.Header), violations}, err
}

// openPage is a page that is being read.
type openPage struct {
	head
	etag     string
	date     time.Time
	body     io.Closer
	parts    *page.Reader
	parsed   int          // number of entities so far
	reserved *reservation // of the Source
	// undated says that an entity without a time was reported.
	undated bool
}

// get asks for a page. It returns nil if the page is not modified.
func (s *Source) get(ctx context.Context, url, etag string) (*openPage, error) {
	resp, err := s.client.Do(ctx, source.Request{Method: http.MethodGet, URL: url, IfNoneMatch: etag})
	if err != nil {
		return nil, err
	}
	switch resp.Status {
	case http.StatusNotModified:
		defer resp.Body.Close()
		if l, _, err := page.ParseLinks(resp.Header.Values("Link"), resp.URL); err != nil || l.Next != "" {
			// The ETag covers the entities and not the links.
			return s.get(ctx, url, "")
		}
		return nil, nil
	case http.StatusNoContent:
		resp.Body.Close()
		return nil, errNoContent
	}
	header, violations, err := page.ParseHeader(resp.Header, resp.URL, true)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return &openPage{
		head:     head{header, contentLength(resp.Header), violations},
		etag:     resp.Header.Get("ETag"),
		date:     resp.Date,
		body:     resp.Body,
		parts:    page.NewReader(resp.Body, header.Boundary, header.Self, int(s.cfg.Limits.Entity)),
		reserved: &s.reserved,
	}, nil
}

// errPageEnd says that a page has no more entities.
var errPageEnd = errors.New("the page ends here")

// entity returns the next entity of the page and what violations it has. It
// fails with errPageEnd behind the last one. If there is no memory for it, and wait is not
// set, it fails with errNoMemory, and returns the entity at the next call.
func (p *openPage) entity(ctx context.Context, wait bool) (feed.Entity, []feed.Violation, error) {
	part, err := p.part(ctx, wait)
	if err != nil {
		return feed.Entity{}, nil, err
	}
	e, violations, err := page.NewEntity(part, p.Self, p.parsed)
	p.parsed++
	return e, violations, err
}

// part returns the next part of the page. Its errors are those of entity.
func (p *openPage) part(ctx context.Context, wait bool) (page.Part, error) {
	p.reserved.ctx, p.reserved.wait = ctx, wait
	defer func() { p.reserved.ctx = nil }()
	p.parts.Memory = p.reserved
	next, err := p.parts.Next()
	if err == io.EOF { //nolint:errorlint // only the bare value is a good end
		err = errPageEnd
	}
	return next, err
}

// Release closes what is kept open between calls of Next, with its buffers.
func (s *Source) Release() {
	s.closePage()
	s.index = nil
}

func (s *Source) closePage() {
	if s.at != nil {
		s.at.body.Close()
		s.at = nil
	}
}

// end caches the validators of the newest page, so that a poll can skip it when
// it is unchanged. It holds for the cursor that it was made for: whoever comes
// to the end of the page by another way, such as the search for a position that
// is lost, has seen other entities.
type end struct {
	page     string // as the cursor names it
	index    int
	digest   digest // the cursor's
	etag     string
	modified time.Time
	length   int64     // Content-Length, or -1
	settled  bool      // modified and length prove that nothing was added
	full     time.Time // when the page was last read in full
}

// trusts reports whether a page that was read in full at that time may be taken
// for unchanged if its server says so. The time may come from another machine,
// whose clock is ahead.
func (s *Source) trusts(full time.Time) bool {
	age := time.Since(full)
	return age <= s.trust && age > -trustETag
}

func (e end) matches(cur cursor) bool {
	return e.page == cur.Page && e.index == cur.Index && e.digest == cur.Digest
}

// newest is the newest time that upstream is known to have.
type newest struct{ at, looked time.Time }

func (n *newest) set(t time.Time) {
	n.looked = time.Now()
	if n.at.Before(t) {
		n.at = t
	}
}

// sightings collects violations.
type sightings []feed.Violation

func (s *sightings) add(v ...feed.Violation) { *s = append(*s, v...) }
