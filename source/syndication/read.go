package syndication

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

const (
	// mostDepth is the maximum depth of nested elements: XHTML in real entries needs less than 100.
	mostDepth = 256
	// mostEntries is the maximum number of entries of a document, which costs about 100 bytes for each.
	mostEntries = 1_000_000
)

// documentReader reads the documents of a feed.
type documentReader struct {
	decider
	client *source.Client
	// ahead requests older documents that are published next.
	ahead *source.PagesAhead
	log   *slog.Logger
	share share
	// ignored are the elements of entries that are not compared.
	ignored []xml.Name
	// notFeed counts the consecutive answers of a URL that were no feed.
	notFeed map[hashedKey]int
	// torn counts the consecutive polls with a document that breaks off and is waited for.
	torn int
	// brokenBy is the last logged fault of a repaired document.
	brokenBy string
	// title is the title of the feed, clipped; empty before a document has one.
	title string
}

// readDocument requests and reads a document. It repeats the request if the document
// has changed since its first part was published, or has another order than expected.
func (s *documentReader) readDocument(ctx context.Context, cur *cursor, q request) (*document, error) {
	s.share.scarce = false
	if q.from == nil {
		s.share.want = 0
	} else if s.share.want > 0 {
		// The previous part had to wait.
		if err := s.share.acquireBudget(ctx, s.pending.bufferedBytes()); err != nil {
			return nil, err
		}
	}
	least := min(firstWanted, s.cfg.Bounds.Memory)
	for try := 0; ; try++ {
		d, err := s.readOnce(ctx, cur, q)
		for errors.Is(err, errNoBudget) {
			// While it waits, no connection is open and no entry is in memory.
			s.share.want = max(s.share.want, least)
			least = s.cfg.Bounds.Memory
			if err := s.share.acquireBudget(ctx, s.pending.bufferedBytes()); err != nil {
				return nil, err
			}
			d, err = s.readOnce(ctx, cur, q)
		}
		if err != nil || d.unmodified {
			return d, err
		}
		switch {
		case q.from != nil && d.hash != q.from.Hash:
			q.from = nil
		case d.buffer.cut != nil && d.order != q.order && try < 3,
			d.versions.byOrder && d.versions.oldestFirst != (d.order == feedxml.OldestFirst) && q.from == nil && try < 3:
			q.order = d.order
		default:
			if d.buffer.cut != nil || q.from != nil {
				d.order = q.order // that of the parts which are published
			}
			d.buffer.arrange(d.order)
			return d, nil
		}
		q.etag, q.modified = "", ""
	}
}

func (s *documentReader) readOnce(ctx context.Context, cur *cursor, q request) (*document, error) {
	d := &document{request: q, now: time.Now()}
	resp, err := s.getResponse(ctx, q)
	if err != nil {
		return nil, err
	}
	d.response = resp
	defer resp.Body.Close()
	if q.archive {
		s.ahead.Expect(ctx, q.next...)
	}
	switch resp.Status {
	case http.StatusNotModified, http.StatusNoContent:
		d.unmodified = true
		return d, nil
	case http.StatusIMUsed:
		d.partial = true
	}
	d.digest = sha256.New()
	body := &countingReader{r: resp.Body}
	r := feedxml.NewReader(body, feedxml.Options{
		URL: baseURL(resp), ContentType: resp.Header.Get("Content-Type"), Lenient: s.cfg.Lenient != "false",
		Identity: s.cfg.Identity, Redact: s.cfg.Redact,
		Limits: feedxml.Limits{Entry: int(s.cfg.Limits.Entity), Depth: mostDepth}, HashWithout: s.ignored, Interrupted: ctx.Err, CutEntries: true,
	})
	if err := s.readEntries(r, body, cur, d); errors.Is(err, errNoBudget) {
		return nil, err
	} else if err != nil {
		if broken := r.Faults().Err(); broken != nil && ctx.Err() == nil && !s.mayBeBroken(cur, d) {
			err = broken
		}
		return nil, s.explainDocumentError(cur, d, err)
	}
	delete(s.notFeed, hashKey(q.url))
	d.meta = *r.Meta()
	s.title = cmp.Or(feedxml.Excerpt(strings.Join(strings.Fields(d.meta.Title), " ")), s.title)
	s.profile.addHeaderLinks(d)
	d.hashContent()
	s.classify(cur, d)
	d.seen.addAll(r.Violations())
	d.broken = r.Faults().Count > 0 || d.meta.Undefined != ""
	d.truncated = r.Faults().Truncated
	d.unsure = d.truncated || r.Faults().HeadLeftOut
	if d.deletes && (d.broken || d.meta.Doubtful) && len(s.missingIDs(d)) > 0 {
		d.deletes, d.withheld = false, true
		d.seen.addViolation(kindDeletesWithheld, d.url, "entries have vanished from the feed, and are not deleted, because its document is not well-formed, or has a prefix that is not declared or an attribute twice")
	}
	d.repair = s.mayBeBroken(cur, d)
	f := r.Faults()
	switch {
	case f.Count > 0 && !d.repair:
		return nil, s.withCure(cur, d, f.Err())
	case d.truncated && s.mayAwaitRest(cur, d):
		s.torn++
		err := fmt.Errorf("%w; %w, for %d more polls at most", f.Err(), errAwaitsRest, mostTorn-s.torn)
		return nil, feed.RetryAfter(err, min(s.cfg.Every, longestTorn))
	case f.Count > 0:
		d.seen.addViolation(feedxml.NotWellFormed, d.url, "%s", f)
		if cause := f.First(); cause != s.brokenBy {
			s.log.Warn("a document of the feed is not well-formed; it was repaired", "url", d.url, "faults", f.Count, "entries_left_out", f.LeftOut, "first", cause)
			s.brokenBy = cause
		}
	case !q.archive:
		s.brokenBy = ""
	}
	return d, nil
}

// baseURL returns the base of the relative references in a document.
func baseURL(resp *source.Response) string {
	if location := resp.Header.Get("Content-Location"); location != "" {
		if u, err := resp.URL.Parse(location); err == nil {
			return u.String()
		}
	}
	return resp.URL.String()
}

// explainDocumentError returns the error of a document that cannot be read, with its cure. It counts
// answers that are no feed.
func (s *documentReader) explainDocumentError(cur *cursor, d *document, err error) error {
	err = s.withCure(cur, d, err)
	if !errors.Is(err, feedxml.ErrNotFeed) {
		return err
	}
	contentType := d.response.Header.Get("Content-Type")
	if !d.archive && strings.HasPrefix(strings.ToLower(contentType), "multipart/") {
		return feed.Permanent(fmt.Errorf("%s: the answer is %s, as of a datareplication feed, and this one is read as Atom or RSS; if that is right, set its format to auto, "+
			"and start it over with 'feedbridge checkpoint reset'", d.url, feedxml.Excerpt(contentType)))
	}
	if len(s.notFeed) == mostNotFeed {
		clear(s.notFeed) // a feed may make up any number of URLs
	}
	s.notFeed[hashKey(d.url)]++
	return &errNotFeed{err, s.notFeed[hashKey(d.url)]}
}

// getResponse requests a document, or takes the answer that was requested ahead.
func (s *documentReader) getResponse(ctx context.Context, q request) (*source.Response, error) {
	if q.archive {
		resp, err := s.ahead.Get(ctx, q.url)
		if source.StatusOf(err) != http.StatusIMUsed {
			return resp, err
		}
		// PagesAhead does not accept a part of a document (226).
	}
	return s.client.Do(ctx, source.Request{
		Method: http.MethodGet, URL: q.url, IfNoneMatch: q.etag, IfModifiedSince: q.modified, Partial: true,
	})
}

// withCure adds the cure to the error of a document that is not well-formed, if there
// is one.
func (s *documentReader) withCure(cur *cursor, d *document, err error) error {
	if !isParse(err) || errors.Is(err, feedxml.ErrCharset) {
		return err
	}
	switch {
	case d.dialect == Complete || cur.Dialect == Complete:
		return fmt.Errorf("%w; the document is the whole feed, so it is not read while it is broken, because entries that it lacks would be deleted", err)
	case s.cfg.Lenient == "false":
		return fmt.Errorf("%w; set lenient to true to have it repaired (not_well_formed)", err)
	case s.cfg.Lenient == "auto" && !d.unsure:
		return fmt.Errorf("%w; set lenient to true to have it repaired (not_well_formed), which auto does only for windows and paged feeds", err)
	}
	return err
}

// mayBeBroken reports whether a document is published although it is not well-formed.
// The earlier dialect of the feed counts too: a document that breaks off may lack the
// elements that describe it.
func (s *documentReader) mayBeBroken(cur *cursor, d *document) bool {
	if s.cfg.Lenient == "false" || d.unsure && (cur.Start != "" || s.profile.tail) {
		return false
	}
	for _, dialect := range []Dialect{d.dialect, cur.Dialect} {
		switch dialect {
		case Complete:
			return false
		case "", Window, Incremental, Paged:
		default:
			if s.cfg.Lenient != "true" || d.unsure {
				return false
			}
		}
	}
	return true
}

const (
	// mostTorn is the maximum number of consecutive polls that wait for the rest of a document
	// that breaks off, and longestTorn the longest time between two of them. Their number is not
	// stored, because a restart prolongs the wait by a few minutes at most.
	mostTorn    = 3
	longestTorn = time.Minute
)

// errAwaitsRest is the error of a document that breaks off, while the rest is waited for.
var errAwaitsRest = errors.New("its new entries wait for older ones that may be missing")

// mayAwaitRest reports whether to wait for the rest of a document that breaks off: it may have
// new entries that are older than those which came.
func (s *documentReader) mayAwaitRest(cur *cursor, d *document) bool {
	return !d.lastKnown && d.hash != cur.Body && d.order != feedxml.OldestFirst && s.torn < mostTorn && !s.cfg.Once
}

// countingReader counts the bytes of a document that belong to one entry. The parser
// has all of them in memory, and keeps a buffer of that size until the document ends.
type countingReader struct {
	r io.Reader
	// piece is the number of bytes since the last entry, and largest the greatest that
	// it has been.
	piece, largest int64
	// covered reports whether there is budget for them; nil for no bound.
	covered func() bool
}

func (c *countingReader) Read(p []byte) (int, error) {
	if c.covered != nil && !c.covered() {
		return 0, errNoBudget
	}
	n, err := c.r.Read(p)
	c.piece += int64(n)
	c.largest = max(c.largest, c.piece)
	return n, err
}

// readEntries reads the entries of a document into its buffer. body is the reader below
// r.
func (s *documentReader) readEntries(r *feedxml.Reader, body *countingReader, cur *cursor, d *document) error {
	d.buffer = newEntryBuffer(d.request.order, int(s.cfg.Bounds.Memory))
	d.versions = versions{ids: map[hashedKey]version{}, oldestFirst: d.request.order == feedxml.OldestFirst}
	others := s.pending.bufferedBytes()
	covered := func() bool {
		// Blanks and comments are not kept, so bytes beyond the limit belong to no
		// entry.
		rest := min(body.largest, s.cfg.Limits.Entity)
		for !s.share.tryReserve(others + d.bufferedBytes() + rest) {
			// Kept entries only save requests, so they are dropped before another document has to wait.
			if !s.pending.dropDocument() {
				return s.share.tryCover(others + d.bufferedBytes() + rest)
			}
			others = s.pending.bufferedBytes()
		}
		return true
	}
	if s.share.scarce {
		d.buffer.covered = func() bool { return s.share.tryCover(others + d.bufferedBytes()) }
		defer func() { d.buffer.covered = nil }() // the document may stay in memory
	} else {
		body.covered = covered
	}
	wanted := func(it *item) bool { return s.mayWant(cur, it) }
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, feedxml.ErrTrailing) && !r.Meta().Complete && r.Meta().Incremental != feedxml.No:
			d.seen.addViolation(kindTrailing, d.url, "%v", err)
			return nil
		case err != nil:
			return err
		}
		if d.entries++; d.entries > mostEntries {
			return fmt.Errorf("%s: the document has more than %d entries: %w", d.url, mostEntries, feedxml.ErrTooLarge)
		}
		body.piece = 0
		if d.entries == 1 {
			d.hasVersions = s.hasVersions(cur, r.Meta())
		}
		s.takeEntry(cur, d, e, wanted)
		if !s.share.scarce && !covered() {
			return errNoBudget
		}
	}
}

// takeEntry compares an entry with earlier ones of the same ID and adds it to the
// buffer.
func (s *documentReader) takeEntry(cur *cursor, d *document, e feedxml.Entry, wanted func(*item) bool) {
	if e.ID == "" || e.Deleted && e.Updated.Time.IsZero() {
		return // reported by the reader
	}
	fmt.Fprintf(d.digest, "%q %v %x\n", e.ID, e.Deleted, e.Hash)
	e.ID = message.SafeValue(e.ID)
	updated := s.trustedTime(instantOf(e.Updated.Time), d.now)
	if updated == 0 && instantOf(e.Updated.Time) != 0 {
		d.seen.addViolation(kindFutureDate, d.url, "entry %s is of %s, which is not compared with other dates", feedxml.Excerpt(e.ID), e.Updated.Raw)
	}
	it := &item{Entry: e, own: e.ID}
	id, t := s.identify(cur, d, it, updated)
	if !e.Deleted {
		if d.lastKnown = t.inTopic || s.isSkipped(cur, it); d.lastKnown {
			d.known++
		} else {
			d.fresh++
		}
	}
	d.newest = max(d.newest, updated)
	d.titleHashes.addEntry(&e)
	it.ID = id
	counts, instead := d.versions.addEntry(t.key, &it.Entry, updated)
	if instead >= 0 {
		d.buffer.removeItem(instead)
	}
	if !counts {
		return
	}
	d.versions.recordTopic(t.key, it.shortHash(), t.known, t.same)
	if d.from != nil && rankOf(&it.Entry, d.request.order).compareOrder(d.from.Key) <= 0 {
		return
	}
	d.buffer.addItem(it, wanted)
}

// errNotFeed is the error of a URL that has answered with something other than a feed,
// times times in a row.
type errNotFeed struct {
	err   error
	times int
}

func (e *errNotFeed) Error() string { return e.err.Error() }

func (e *errNotFeed) Unwrap() error { return e.err }

// mostNotFeed is the maximum number of URLs in notFeed.
const mostNotFeed = 1000

// isParse reports whether a document was received whole and is not well-formed.
func isParse(err error) bool {
	return errors.Is(err, feedxml.ErrMalformed) || errors.Is(err, feedxml.ErrTrailing) || errors.Is(err, feedxml.ErrCharset)
}

// isUnreadable reports whether the content of a document caused the error.
func isUnreadable(err error) bool {
	for _, kind := range []error{feedxml.ErrNotFeed, feedxml.ErrTruncated, feedxml.ErrMalformed, feedxml.ErrTrailing, feedxml.ErrTooLarge, feedxml.ErrCharset} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
