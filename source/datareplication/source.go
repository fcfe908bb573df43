// Package datareplication reads feeds of the datareplication format: pages of
// multipart entities, linked to each other by Link headers and read from the
// oldest to the newest.
//
// A [Source] finds the page to start at by HEAD requests from the entry point back, reads
// forward from there by GET, and then polls the newest page with one conditional request.
// If the configuration names a snapshot, its pages are read first. Package page parses
// the pages.
//
// # The position
//
// The cursor names a page and the number of entities that were read of it. It also has the
// evidence that the position is still the same: the Content-ID and the time of the entity
// before it, and a digest over the entities before it on the page. At the start of a page
// the page before must end with that entity. The page before is read again for this only
// after a restart, a pause, or a poll of an empty newest page. If the evidence does not
// match, the position is lost. The source then searches the whole feed for the entity. If
// the feed does not have it, Config.Gap decides.
//
// Upstreams may have replicas that lag. An older answer is the feed without its newest
// pages and entities. It can hide a position but cannot move it, because the entities
// after the one before the position are the same in every version of the feed. A position
// counts as lost after it was missing several times in a row over several seconds. Until
// then Next returns a transient error.
//
// "Not modified" is trusted for an hour after the page was read in full. The cursor has the
// time of that, so a restart does not extend the hour.
//
// The cursor takes at most 1 KiB, and a few URLs.
//
// # Memory
//
// Pages are parsed as they arrive. A Source holds the batch that it reads and a buffer of
// 64 KiB, however large the page is, and with Config.Memory it reserves the batch before
// it reads it. Nothing that it keeps between calls of Next refers to an entity.
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
	// batchBytes is the default of Config.BatchBytes.
	batchBytes = 1 << 20
	// trustETag is how long "not modified" is trusted after the page was read in full, by
	// whichever process. Some servers have ETags that do not change with the page, by
	// which users lost data, or with its links.
	trustETag = time.Hour
	// newestEvery is the interval of requests for the time of the newest page, while older
	// pages are read.
	newestEvery = 30 * time.Second
	// newestTimeout is how long reading waits for the answer to such a request.
	newestTimeout = 2 * time.Second
	// weak is the age, by the server's clock, from which the Last-Modified of a page proves
	// that no entity was added later in the same second. RFC 9110 (8.8.2.2) suggests one or
	// two seconds, but entities are put on a page some time after their Last-Modified.
	weak = time.Minute
)

// Source reads one feed. It implements the Source of package bridge. Its state between
// calls of Next saves requests and delays reports, and has no other effect. It is used by
// one goroutine at a time.
type Source struct {
	cfg    Config
	client *source.Client
	log    *slog.Logger
	// trust is trustETag, less a random part of up to a sixth, so that the copies of a feed,
	// or many feeds that started together, do not read their pages at the same time.
	trust time.Duration

	// reserved is the reservation of the batch that is being read.
	reserved reservation

	// at is the page that is being read, if its end has not been reached.
	at *openPage
	// index is that of the snapshot that is being read.
	index *index
	// end has the validators of the newest page.
	end end
	// newest is the newest time that the entry point had.
	newest newest
	// trail detects next links that form a loop. It is reset if reading does not continue
	// from expect.
	trail trail
	// proven is the end of a page that proves the position at the start of the next one.
	proven pageEnd
	// expect is the cursor that was returned last, or for which the last call failed.
	expect feed.Cursor
	// noHead reports that the server does not answer HEAD requests.
	noHead bool
	// old counts answers that may be older than earlier ones, and gaps counts searches that
	// did not find the position. Both count since the last batch, for the cursor expect.
	old, gaps finding
	// changed is the digest of the changed page that was reported last.
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

// Next reads on from after: at most one page of new entities, or a part of the search for
// the start.
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
		s.proven = pageEnd{} // the feed may be recreated before the next call
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

// read continues the snapshot, the search or the reading of pages that cur is in.
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
		// The feed is empty, so all later entities are new.
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

// head is the result of a HEAD request for a page.
type head struct {
	page.Header
	length     int64 // Content-Length, or -1
	violations []feed.Violation
}

// head requests the header of a page, with GET if the server does not answer HEAD (case 88).
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
	// undated reports that an entity without a time was reported.
	undated bool
}

// get requests a page. It returns nil if the page is not modified.
func (s *Source) get(ctx context.Context, url, etag string) (*openPage, error) {
	resp, err := s.client.Do(ctx, source.Request{Method: http.MethodGet, URL: url, IfNoneMatch: etag})
	if err != nil {
		return nil, err
	}
	switch resp.Status {
	case http.StatusNotModified:
		defer resp.Body.Close()
		if l, _, err := page.ParseLinks(resp.Header.Values("Link"), resp.URL); err != nil || l.Next != "" {
			// The ETag does not cover the links.
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

// errPageEnd reports that a page has no more entities.
var errPageEnd = errors.New("the page ends here")

// entity returns the next entity of the page and its violations. After the last one it fails
// with errPageEnd. If there is no memory for the entity, it waits until there is, or, without
// wait, fails with errNoMemory and returns the entity at the next call.
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

// Release closes the page that is kept open between calls of Next, and drops its buffer
// and the index of a snapshot.
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

// end caches the validators of the newest page so that a poll can skip it when it is
// unchanged. It is valid for one cursor: a cursor that reached the end of the page in
// another way, as by a search, may have seen other entities.
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

// trusts reports whether "not modified" is trusted for a page that was read in full at that
// time. The time may come from another machine, whose clock may be ahead.
func (s *Source) trusts(full time.Time) bool {
	age := time.Since(full)
	return age <= s.trust && age > -trustETag
}

func (e end) matches(cur cursor) bool {
	return e.page == cur.Page && e.index == cur.Index && e.digest == cur.Digest
}

// newest is the newest time of upstream, as far as it is known.
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
