package syndication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// tailer reads a feed in mode tail.
type tailer struct{ *turn }

// tail reads the next page of a feed whose pages only change by growing, and
// follows the links to newer ones. The page at the end is asked for again and
// again.
func (r tailer) tail(ctx context.Context) (feed.Batch, error) {
	batch, err := r.nextPage(ctx)
	if err != nil || !batch.More {
		r.s.round = nil
	}
	return batch, err
}

func (r tailer) nextPage(ctx context.Context) (feed.Batch, error) {
	s, cur := r.s, &r.cur
	if cur.Tail == "" {
		return r.findTail(ctx)
	}
	if s.job == nil {
		now := time.Now()
		q := question{url: cur.Tail, order: r.expected()}
		if cur.Doc != nil && cur.Doc.URL == hashOf(q.url) {
			q.from, q.order = cur.Doc, cur.Doc.Order
		} else if cur.At == hashOf(q.url) && now.Sub(time.Unix(cur.Full, 0)) < s.cfg.FullEvery {
			q.etag, q.modified = cur.ETag, cur.Modified
		}
		d, err := s.read(ctx, cur, q)
		if isGone(err) {
			return r.tailGone(ctx, err)
		}
		if err != nil {
			return feed.Batch{}, err
		}
		r.goOn(d)
		if d.unmodified || cur.At == hashOf(q.url) && cur.Body == d.hash && now.Sub(time.Unix(cur.Full, 0)) < s.cfg.FullEvery {
			return feed.Batch{Fresh: fresh(s.cfg.Hints, d.response, cur.Hints, now)}, nil
		}
		s.job = pageJob(d)
	}
	d := s.job.at
	entities, more := publisher{r.turn}.publish(d)
	s.newest = max(s.newest, d.newest)
	if more {
		if len(d.window.items) == 0 {
			s.job = nil
		}
		return feed.Batch{Entities: entities, More: true}, nil
	}
	s.job = nil
	if s.round == nil {
		s.round = map[key]bool{}
	}
	s.round[keyOf(cur.Tail)] = true
	newer, _ := d.meta.Link(s.profile.newer)
	next := withoutFragment(newer.Href)
	if next != "" && (s.round[keyOf(next)] || short(next) == "") {
		r.seen.add(Loop, d.url, "the links to newer pages lead in a circle, or the next one is too long: %s", feedxml.Excerpt(next))
		next = ""
	}
	if next != "" {
		more, err := r.follow(ctx, d, next)
		return feed.Batch{Entities: entities, More: more, Fresh: fresh(s.cfg.Hints, d.response, hintsOf(&d.meta), d.now)}, err
	}
	if cur.At != hashOf(d.url) || cur.Body != d.hash || d.now.Sub(time.Unix(cur.Full, 0)) >= s.cfg.FullEvery {
		cur.Full = d.now.Unix()
	}
	cur.settle(d)
	cur.Body = d.hash
	cur.Hints = hintsOf(&d.meta)
	return feed.Batch{Entities: entities, Fresh: fresh(s.cfg.Hints, d.response, cur.Hints, d.now)}, nil
}

func pageJob(d *document) *job {
	d.archive, d.deletes = true, false
	d.forgetIDs()
	return &job{dialect: d.dialect, at: d}
}

// follow goes on to the next newer page, if it is there: a link may be written
// before its page is. more says that there is something to read at once.
func (r tailer) follow(ctx context.Context, d *document, next string) (more bool, err error) {
	s, cur := r.s, &r.cur
	page, err := s.read(ctx, cur, question{url: next, order: r.expected()})
	if isGone(err) {
		// The page that has the link is the end for now, and is asked for in full
		// each time. At is empty and Body is not once that was told.
		told := cur.At == "" && cur.Body == d.hash
		cur.unsettle()
		cur.Body = d.hash
		if !told {
			s.log.Warn("the next newer page is missing; asking for it again at each poll", "url", next, "error", err)
			r.seen.add(Incomplete, next, "the next newer page is missing, and with it what is newer: %v", err)
		}
		return false, nil
	}
	// Any other error is that of the next turn.
	cur.Tail = next
	cur.unsettle()
	if err == nil && !page.unmodified && page.window.whole {
		// If it were not whole, it could lack what is wanted once this turn's
		// entries are published, and is read again then.
		s.job = pageJob(page)
	}
	// A chain of pages without an end is read in parts.
	return len(s.round) < s.cfg.Bounds.Documents, nil
}

// tailGone begins again where the page that is asked for is not there any more.
func (r tailer) tailGone(ctx context.Context, err error) (feed.Batch, error) {
	s, cur := r.s, &r.cur
	gone := cur.Tail
	// What the topic has is known, so reading from the start again repeats nothing.
	s.log.Warn("the page at the end of the feed is gone; reading from the start of the feed again", "url", gone, "error", err)
	r.seen.add(PageGone, gone, "the page at the end of the feed is gone: %v", err)
	cur.Tail, cur.Doc = "", nil
	cur.unsettle()
	batch, again := r.findTail(ctx)
	if again == nil && cur.Tail == gone {
		return feed.Batch{}, err
	}
	// A round begins anew once at most: two pages may take turns in being gone.
	batch.More = batch.More && s.round == nil
	s.round = map[key]bool{} // which lacks the page: a link to it is no circle
	return batch, again
}

func isGone(err error) bool {
	status, ok := errors.AsType[*source.StatusError](err)
	return ok && (status.Status == http.StatusNotFound || status.Status == http.StatusGone)
}

// findTail finds the page to begin with: the oldest, or the newest if reading
// starts now.
func (r tailer) findTail(ctx context.Context) (feed.Batch, error) {
	s, cur := r.s, &r.cur
	d, err := poller{r.turn}.ask(ctx, time.Now())
	if err != nil {
		return feed.Batch{}, err
	}
	if d.unmodified {
		return feed.Batch{}, nil
	}
	if err := (poller{r.turn}).foreign(d); err != nil {
		return feed.Batch{}, err
	}
	poller{r.turn}.verdict(d)
	r.seen.addAll(d.seen.all())
	page := d.url
	if cur.Start == "now" {
		if _, err := (poller{r.turn}).start(d); err != nil {
			return feed.Batch{}, err
		}
		cur.unsettle()
		if newer, n := d.meta.Link(s.profile.newer); n > 0 {
			page = withoutFragment(newer.Href)
		} else if self, n := d.meta.Link("self"); n > 0 {
			page = withoutFragment(self.Href)
		}
		return r.tailFrom(page)
	}
	if _, err := (poller{r.turn}).start(d); err != nil {
		return feed.Batch{}, err
	}
	if last, n := d.meta.Link("last"); n > 0 {
		return r.tailFrom(withoutFragment(last.Href))
	}
	visited := map[key]bool{keyOf(page): true}
	for range s.cfg.Bounds.Documents {
		older := s.profile.olderURL(&d.meta, d.dialect)
		if older == "" || visited[keyOf(older)] {
			return r.tailFrom(page)
		}
		visited[keyOf(older)] = true
		if d, err = s.read(ctx, cur, question{url: older, archive: true, order: r.expected()}); err != nil {
			return feed.Batch{}, err
		}
		if d.unmodified {
			return feed.Batch{}, fmt.Errorf("%s: the server answers without a document", older)
		}
		page = older
	}
	return feed.Batch{}, feed.Permanent(fmt.Errorf("the oldest page of the feed is more than %d pages back; raise bounds.documents", s.cfg.Bounds.Documents))
}

func (r tailer) tailFrom(page string) (feed.Batch, error) {
	if short(page) == "" {
		return feed.Batch{}, feed.Permanent(fmt.Errorf("the page to begin with has no url, or one that is too long: %s", feedxml.Excerpt(page)))
	}
	r.cur.Tail = page
	return feed.Batch{More: true}, nil
}
