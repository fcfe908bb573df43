package datareplication

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
)

// walk reads on at the place that cur names. The first page with new entities
// ends it, as do a full batch and the end of the feed.
func (s *Source) walk(ctx context.Context, cur cursor, after feed.Cursor, seen sightings) (feed.Batch, error) {
	w := walker{s: s, cur: cur, seen: seen}
	err := w.run(ctx)
	var l *lostPlace
	switch {
	case errors.As(err, &l):
		return s.recover(ctx, w.cur, l, w.seen)
	case err != nil && len(w.entities) == 0 && !w.moved:
		return feed.Batch{}, err
	case err != nil:
		// What came before the break is whole and in order. The next call
		// meets the break again, or finds it cured.
		s.closePage()
		w.more = true
	}
	batch := feed.Batch{Entities: w.entities, Cursor: after, More: w.more, Violations: w.seen}
	if w.moved {
		w.cur.trim()
		batch.Cursor = w.cur.encode()
	}
	return batch, nil
}

// walker is one walk.
type walker struct {
	s        *Source
	cur      cursor
	seen     sightings
	entities []feed.Entity
	size     int
	moved    bool // cur is another place than at the start
	more     bool // there is more upstream
}

func (w *walker) run(ctx context.Context) error {
	s := w.s
	for {
		if s.at == nil {
			p, err := s.turnTo(ctx, &w.cur, &w.seen)
			if err != nil || p == nil {
				return err
			}
			s.at = p
			if p.self != w.cur.Page && w.cur.Index == 0 {
				w.cur.Page, w.moved = p.self, true
			}
		}
		ended, err := w.read(s.at)
		if err != nil {
			return err
		}
		if !ended {
			w.more = true
			return nil
		}
		p := s.at
		w.look(p)
		s.leave(p, w.cur)
		s.closePage()
		next := p.head.next
		if next == "" {
			w.cur.ETag = p.etag
			return w.finish()
		}
		if next == w.cur.Page || s.trail.visit(next) {
			return broken(Loop, w.cur.Page, "the next links lead in a circle by way of %s", next)
		}
		w.cur.turn(next)
		w.moved = true
		s.lookUp(ctx)
		if len(w.entities) > 0 || w.cur.Search != nil {
			w.more = true
			return nil
		}
	}
}

// read takes entities from the page until it ends or the batch is full.
func (w *walker) read(p *page) (ended bool, err error) {
	for {
		if len(w.entities) > 0 && (w.size >= w.s.cfg.BatchBytes || len(w.entities) == w.s.cfg.BatchEntities) {
			return false, nil
		}
		e, err := p.entity(&w.seen)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		deliver := true
		if sr := w.cur.Search; sr != nil {
			v := sr.judge(&e)
			if v == missing {
				return false, lost(IDNotFound, p.self, "there is no entity %s of %s before the first later one, %s of %s", sr.ID, unix(*sr.From), e.ID, unix(e.Modified.Unix()))
			}
			deliver = v == found
			if v == last || v == found && (len(sr.Skip) == 0 || e.Modified.Unix() > *sr.From) {
				w.cur.Search = nil
			}
		}
		if w.cur.Last != "" && e.Modified.Unix() < w.cur.Modified {
			w.seen.add(violation(TimeRunsBack, p.self, "entity %s is of %s, and %s before it of %s", e.ID, unix(e.Modified.Unix()), w.cur.Last, unix(w.cur.Modified)))
		}
		w.cur.advance(&e)
		w.moved = true
		if deliver {
			w.entities = append(w.entities, e)
			w.size += e.Size()
		}
	}
}

// finish is called where the feed ends.
func (w *walker) finish() error {
	sr := w.cur.Search
	switch {
	case sr == nil:
		return nil
	case sr.Now:
		w.cur.Search, w.moved = nil, true
	case sr.ID != "" && sr.Oldest:
		return lost(NotOldEnough, w.cur.Page, "the feed reaches back to its oldest page and has no entity %s of %s", sr.ID, unix(*sr.From))
	case sr.ID != "":
		return lost(IDNotFound, w.cur.Page, "the feed ends without an entity %s of %s", sr.ID, unix(*sr.From))
	}
	return nil
}

// turnTo gets the page of the cursor, up to its place. It returns nil if the
// feed ends at the place, as it did before.
func (s *Source) turnTo(ctx context.Context, cur *cursor, seen *sightings) (*page, error) {
	etag := cur.ETag
	if s.end.matches(*cur) {
		etag = s.end.etag
		if time.Since(s.end.full) > trustETag {
			etag = ""
		} else if same, err := s.sameEnd(ctx); same || err != nil {
			return nil, s.gone(err, cur.Page)
		}
	}
	p, err := s.get(ctx, cur.Page, etag)
	if err != nil || p == nil {
		return nil, s.gone(err, cur.Page)
	}
	if err := s.skip(p, cur, seen); err != nil {
		p.body.Close()
		return nil, err
	}
	return p, nil
}

// sameEnd asks by HEAD whether the feed still ends where it ended, if its
// server gives no ETag and its Last-Modified can tell.
func (s *Source) sameEnd(ctx context.Context) (bool, error) {
	if s.end.etag != "" || !s.end.settled || s.noHead {
		return false, nil
	}
	h, err := s.head(ctx, s.end.page)
	if err != nil {
		return false, err
	}
	return !s.noHead && h.next == "" && h.modified.Equal(s.end.modified) && h.length == s.end.length, nil
}

// skip reads up to the place and makes sure that it is the place.
func (s *Source) skip(p *page, cur *cursor, seen *sightings) error {
	if cur.Index == 0 {
		seen.add(p.violations...)
	}
	if cur.Came != "" && p.prev != "" && p.prev != cur.Came {
		seen.add(violation(LinksAsymmetric, p.self, "its prev link leads to %s, but the page whose next link leads here is %s", p.prev, cur.Came))
	}
	var ignored sightings // they were seen when the entities were new
	var sum digest
	var e feed.Entity
	for p.parsed < cur.Index {
		var err error
		e, err = p.entity(&ignored)
		if errors.Is(err, io.EOF) {
			return lost(PageChanged, p.self, "the page had %d entities and has %d now", cur.Index, p.parsed)
		}
		if err != nil {
			return err
		}
		sum = sum.add(&e)
	}
	switch {
	case cur.Index == 0:
	case e.ID != cur.Last:
		return lost(PageChanged, p.self, "entity number %d of the page was %s and is %s now", cur.Index, cur.Last, e.ID)
	case sum != cur.Digest && sum != s.changed:
		s.changed = sum
		seen.add(violation(PageChanged, p.self, "entities that were read before have other contents now, somewhere in the first %d", cur.Index))
	}
	return nil
}

// look checks what can be told of a page once it has been read to its end.
func (w *walker) look(p *page) {
	if w.s.end.matches(w.cur) {
		return // it was looked at
	}
	if p.parsed == 0 {
		w.seen.add(violation(EmptyPage, p.self, "the page has no entity"))
	}
	if w.moved && w.cur.Index > 0 && w.cur.Modified > p.modified.Unix() {
		w.seen.add(violation(PageOlderThanLast, p.self, "the page is of %s, and its last entity %s of %s", unix(p.modified.Unix()), w.cur.Last, unix(w.cur.Modified)))
	}
}

// leave takes note of a page that was read to its end.
func (s *Source) leave(p *page, cur cursor) {
	if p.head.next == "" {
		s.end = end{
			page: cur.Page, index: cur.Index,
			etag: p.etag, modified: p.modified, length: p.length,
			settled: !p.date.IsZero() && p.date.Sub(p.modified) >= weak,
			full:    time.Now(),
		}
		s.newest.set(p.modified)
	}
}

// lookUp asks the entry point now and then how far the feed has got. It is
// for the lag that is reported; nothing depends on it.
func (s *Source) lookUp(ctx context.Context) {
	if time.Since(s.newest.looked) < lookEvery {
		return
	}
	s.newest.looked = time.Now()
	if h, err := s.head(ctx, s.cfg.URL); err == nil {
		s.newest.set(h.modified)
	}
}

// errNoContent is the answer 204 to a request for a page.
var errNoContent = errors.New("the server answers 204 No Content")

// gone turns the errors that say that a page is not there any more into a lost
// place (case 84).
func (s *Source) gone(err error, page string) error {
	if isGone(err) {
		return lost(PageGone, page, "the page where reading goes on is gone: %v", err)
	}
	return err
}

func isGone(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusGone || errors.Is(err, errNoContent)
}

func statusOf(err error) int {
	var status *source.StatusError
	if errors.As(err, &status) {
		return status.Status
	}
	return 0
}

func contentLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
