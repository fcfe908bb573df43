package syndication

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// question is what is asked of a URL, and how the answer is read.
type question struct {
	url string
	// etag and modified make it conditional.
	etag, modified string
	// strict has the document read by encoding/xml too.
	strict bool
	// archive says that it is not the subscription document, and old that its
	// entries may have been replaced by later ones already.
	archive, old bool
	// late says that it was missing when what is newer was published.
	late bool
	// believe is the update time of the subscription document. An archive that
	// says it is as new or newer is not believed.
	believe instant
	// from leaves out the entries up to a position, if the body is still the
	// same.
	from *position
	// order is what the entries' is expected to be.
	order feedxml.Order
}

// document is a document of the feed as it was read.
type document struct {
	question
	meta     feedxml.Meta
	response *source.Response
	// unmodified says that there is no document: the server says that it has
	// not changed, or that it has none.
	unmodified bool
	// partial says that it has only a part of its entries (RFC 3229).
	partial bool
	// hash is over all that matters of the document: not when it was written, or
	// by what. digest makes it.
	hash   string
	digest interface {
		io.Writer
		Sum([]byte) []byte
	}
	order   feedxml.Order
	dialect Dialect
	// depth is how many documents of the walk are newer.
	depth int
	// broken reports that it is not well-formed, so that nothing is deleted on its
	// evidence, and repair that its entries are published well-formed all the same.
	broken, repair bool
	// truncated reports that it breaks off, and unsure that it may lack what it says of
	// itself, as its links to older documents.
	truncated, unsure bool
	// deletes says that what it does not have was deleted, and withheld that it
	// would be if the document were well-formed.
	deletes, withheld bool
	// updated is when it was changed, as far as that is to be believed, and
	// now when it was read.
	updated instant
	now     time.Time

	window *window
	fold   fold
	// entries counts all of them, tombstones included; fresh and known are those
	// of which the topic did not have the ID, and had it.
	entries, fresh, known int
	newest                instant
	// looks are those of the first entries that have an ID of their own.
	looks looks
	seen  sightings
}

// mostNotFeed is how many URLs are remembered that answer with something else.
const mostNotFeed = 1000

// weight is about what a document takes in memory while it waits to be published,
// in bytes.
func (d *document) weight() int {
	n := d.window.size + len(d.url) + len(d.meta.ID) + len(d.meta.Title) + 2000
	for _, l := range d.meta.Links {
		n += len(l.Href) + len(l.Raw) + len(l.Type) + len(l.Title) + len(l.Lang) + len(l.Rel) + 150
	}
	for name, values := range d.response.Header {
		n += len(name) + 50
		for _, v := range values {
			n += len(v) + 20
		}
	}
	return n
}

// errNotFeed says how often a URL has answered with something else in a row.
type errNotFeed struct {
	err   error
	times int
}

func (e *errNotFeed) Error() string { return e.err.Error() }
func (e *errNotFeed) Unwrap() error { return e.err }

// read asks for a document. It asks again where the document turns out to be
// another than it was read for.
func (s *Source) read(ctx context.Context, cur *cursor, q question) (*document, error) {
	s.share.scarce = false
	if q.from == nil {
		s.share.want = 0
	} else if s.share.want > 0 {
		// The part before it had to wait.
		if err := s.share.await(ctx, s.job.held()); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		d, err := s.readOnce(ctx, cur, q)
		for errors.Is(err, errNoBudget) {
			// Nothing stays open while it waits, and nothing is held of the document.
			s.share.want = max(s.share.want, s.cfg.Bounds.Memory)
			if err := s.share.await(ctx, s.job.held()); err != nil {
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
		case d.window.cut != nil && d.order != q.order && try < 3:
			q.order = d.order
		default:
			if d.window.cut != nil {
				d.order = q.order
			}
			d.window.arrange(d.order)
			return d, nil
		}
		q.etag, q.modified = "", ""
	}
}

func (s *Source) readOnce(ctx context.Context, cur *cursor, q question) (*document, error) {
	resp, err := s.client.Do(ctx, source.Request{
		Method: http.MethodGet, URL: q.url, IfNoneMatch: q.etag, IfModifiedSince: q.modified, Partial: true,
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	d := &document{question: q, response: resp, now: time.Now()}
	switch resp.Status {
	case http.StatusNotModified, http.StatusNoContent:
		d.unmodified = true
		return d, nil
	case http.StatusIMUsed:
		d.partial = true
	}
	base := resp.URL
	if location := resp.Header.Get("Content-Location"); location != "" {
		if u, err := resp.URL.Parse(location); err == nil {
			base = u
		}
	}
	d.digest = sha256.New()
	r := feedxml.NewReader(resp.Body, feedxml.Options{
		URL: base.String(), ContentType: resp.Header.Get("Content-Type"), Check: q.strict, Lenient: s.cfg.Lenient != "false" && !q.strict,
		Identity: s.cfg.Identity, Redact: s.cfg.Redact,
		Limits: feedxml.Limits{Entry: int(s.cfg.Limits.Entity), Depth: s.cfg.Bounds.Depth}, HashWithout: s.ignored,
	})
	if err := s.readEntries(r, cur, d); errors.Is(err, errNoBudget) {
		return nil, err
	} else if err != nil {
		if broken := r.Faults().Err(); broken != nil && !s.mayBeBroken(cur, d) {
			err = broken
		}
		err = s.withCure(cur, d, err)
		contentType := resp.Header.Get("Content-Type")
		if errors.Is(err, feedxml.ErrNotFeed) && !q.archive && strings.HasPrefix(strings.ToLower(contentType), "multipart/") {
			return nil, feed.Permanent(fmt.Errorf("%s: the answer is %s, as of a datareplication feed, and this one is read as Atom or RSS; if that is right, set its format to auto, "+
				"and start it over with 'feedbridge checkpoint reset'", q.url, feedxml.Excerpt(contentType)))
		}
		if errors.Is(err, feedxml.ErrNotFeed) {
			if len(s.notFeed) == mostNotFeed {
				clear(s.notFeed) // a feed may make up URLs for ever
			}
			s.notFeed[keyOf(q.url)]++
			return nil, &errNotFeed{err, s.notFeed[keyOf(q.url)]}
		}
		return nil, err
	}
	delete(s.notFeed, keyOf(q.url))
	d.meta = *r.Meta()
	d.identify()
	s.judge(cur, d)
	d.seen.addAll(r.Violations())
	d.broken = r.Faults().Count > 0 || d.meta.Undefined != ""
	d.truncated = r.Faults().Truncated
	d.unsure = d.truncated || r.Faults().HeadLost
	d.repair = s.mayBeBroken(cur, d)
	if f := r.Faults(); f.Count > 0 {
		if !d.repair {
			return nil, s.withCure(cur, d, f.Err())
		}
		d.seen.add(feedxml.NotWellFormed, d.url, "%s", f)
		if cause := f.First(); cause != s.brokenBy {
			s.log.Warn("a document of the feed is not well-formed; it was repaired", "url", d.url, "faults", f.Count, "entries_left_out", f.Lost, "first", cause)
			s.brokenBy = cause
		}
	} else if !q.archive {
		s.brokenBy = ""
	}
	return d, nil
}

// withCure adds to the error of a document that is not well-formed how it can be read
// all the same, if it can.
func (s *Source) withCure(cur *cursor, d *document, err error) error {
	if !isParse(err) || errors.Is(err, feedxml.ErrCharset) || d.strict {
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

// mayBeBroken reports whether a document is published although it is not
// well-formed. What the feed was before counts too: a document that breaks off may
// lack what it says of itself.
func (s *Source) mayBeBroken(cur *cursor, d *document) bool {
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

// readEntries reads the entries of a document into its window.
func (s *Source) readEntries(r *feedxml.Reader, cur *cursor, d *document) error {
	d.window = newWindow(d.question.order, int(s.cfg.Bounds.Memory))
	d.fold = fold{ids: map[key]folded{}}
	others := s.job.held()
	covered := func() bool { return s.share.covers(others + d.held()) }
	if s.share.scarce {
		d.window.covered = covered
		defer func() { d.window.covered = nil }() // the document may be kept
	}
	wanted := func(it *item) bool { return s.mayWant(cur, it) }
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, feedxml.ErrTrailing) && !r.Meta().Complete && r.Meta().Incremental != feedxml.No:
			d.seen.add(Trailing, d.url, "%v", err)
			return nil
		case err != nil:
			return err
		}
		if d.entries++; d.entries > s.cfg.Bounds.Entries {
			return fmt.Errorf("%s: the document has more than %d entries (bounds.entries): %w", d.url, s.cfg.Bounds.Entries, feedxml.ErrTooLarge)
		}
		s.take(cur, d, e, wanted)
		if !s.share.scarce && !covered() {
			return errNoBudget
		}
	}
}

// take folds an entry with those before it and puts it into the window.
func (s *Source) take(cur *cursor, d *document, e feedxml.Entry, wanted func(*item) bool) {
	if e.ID == "" || e.Deleted && e.Updated.Time.IsZero() {
		return // the reader has told of it
	}
	fmt.Fprintf(d.digest, "%q %v %x\n", e.ID, e.Deleted, e.Hash)
	e.ID = headerSafe(e.ID)
	updated := s.trusted(instantOf(e.Updated.Time), d.now)
	if updated == 0 && instantOf(e.Updated.Time) != 0 {
		d.seen.add(FutureDate, d.url, "entry %s is of %s, which is not compared with other dates (trust_ahead)", feedxml.Excerpt(e.ID), e.Updated.Raw)
	}
	raw, held := s.held.Mark(e.ID)
	switch {
	case e.Deleted:
	case held || cur.saw(e.ID, [16]byte(e.Hash[:16])):
		d.known++
	default:
		d.fresh++
	}
	d.newest = max(d.newest, updated)
	d.looks.add(&e)
	counts, instead := d.fold.add(e.ID, &e, updated)
	if instead >= 0 {
		d.window.remove(instead)
	}
	if !counts {
		return
	}
	it := &item{Entry: e, hash: [16]byte(e.Hash[:16])}
	m, known := parseMark(raw)
	d.fold.compare(e.ID, held && known, m.deleted == e.Deleted && (e.Deleted || m.hash == it.hash))
	if d.from != nil && rankOf(&it.Entry, d.question.order).compare(d.from.Key) <= 0 {
		return
	}
	d.window.take(it, wanted)
}
