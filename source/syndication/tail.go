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

// readOn reads the next page of a feed whose pages only change by growing, and follows
// the links to newer ones. At the end it requests the last page at each poll.
func (t tailer) readOn(ctx context.Context) (feed.Batch, error) {
	batch, err := t.publishPage(ctx)
	if err != nil || !batch.More {
		t.s.round = nil
	}
	return batch, err
}

func (t tailer) publishPage(ctx context.Context) (feed.Batch, error) {
	s, cur := t.s, &t.cur
	if cur.Tail == "" {
		return t.findFirstPage(ctx)
	}
	if s.job == nil {
		now := time.Now()
		q := request{url: cur.Tail, order: t.expectedOrder()}
		if cur.Doc != nil && cur.Doc.URL == hashOf(q.url) {
			q.from, q.order = cur.Doc, cur.Doc.Order
		} else if cur.At == hashOf(q.url) && now.Sub(time.Unix(cur.Full, 0)) < s.cfg.FullEvery {
			q.etag, q.modified = cur.ETag, cur.Modified
		}
		d, err := s.readDocument(ctx, cur, q)
		if isGone(err) {
			return t.restartTail(ctx, err)
		}
		if err != nil {
			return feed.Batch{}, err
		}
		t.dropReported(d)
		if d.unmodified || cur.At == hashOf(q.url) && cur.Body == d.hash && now.Sub(time.Unix(cur.Full, 0)) < s.cfg.FullEvery {
			return feed.Batch{Fresh: askedToWait(s.cfg.Hints, d.response, cur.Hints, now)}, nil
		}
		s.job = pageJob(d)
	}
	d := s.job.at
	entities, more := publisher(t).publishPart(d)
	s.newest = max(s.newest, d.newest)
	if more {
		if len(d.buffer.items) == 0 {
			s.job = nil
		}
		return feed.Batch{Entities: entities, More: true}, nil
	}
	s.job = nil
	if s.round == nil {
		s.round = map[hashedKey]bool{}
	}
	s.round[hashKey(cur.Tail)] = true
	newer, _ := d.meta.Link(s.profile.newer)
	next := withoutFragment(newer.Href)
	if next != "" && (s.round[hashKey(next)] || shortURL(next) == "") {
		t.seen.addViolation(Loop, d.url, "the links to newer pages lead in a circle, or the next one is too long: %s", feedxml.Excerpt(next))
		next = ""
	}
	if next != "" {
		more, err := t.followNewer(ctx, d, next)
		return feed.Batch{Entities: entities, More: more, Fresh: askedToWait(s.cfg.Hints, d.response, hintsOf(&d.meta), d.now)}, err
	}
	if cur.At != hashOf(d.url) || cur.Body != d.hash || d.now.Sub(time.Unix(cur.Full, 0)) >= s.cfg.FullEvery {
		cur.Full = d.now.Unix()
	}
	cur.recordValidators(d)
	cur.Body = d.hash
	cur.Hints = hintsOf(&d.meta)
	return feed.Batch{Entities: entities, Fresh: askedToWait(s.cfg.Hints, d.response, cur.Hints, d.now)}, nil
}

func pageJob(d *document) *job {
	d.archive, d.deletes = true, false
	d.dropIDs()
	return &job{dialect: d.dialect, at: d}
}

// followNewer continues with the next newer page, if it exists: a server may write a
// link before its page. more reports that there is something to read at once.
func (t tailer) followNewer(ctx context.Context, d *document, next string) (more bool, err error) {
	s, cur := t.s, &t.cur
	page, err := s.readDocument(ctx, cur, request{url: next, order: t.expectedOrder()})
	if isGone(err) {
		// The page with the link is the end for now, and is requested in full each
		// time. Once the violation was reported, At is empty and Body is not.
		told := cur.At == "" && cur.Body == d.hash
		cur.dropValidators()
		cur.Body = d.hash
		if !told {
			s.log.Warn("the next newer page is missing; asking for it again at each poll", "url", next, "error", err)
			t.seen.addViolation(Incomplete, next, "the next newer page is missing, and with it what is newer: %v", err)
		}
		return false, nil
	}
	// Any other error is returned by the next turn.
	cur.Tail = next
	cur.dropValidators()
	if err == nil && !page.unmodified && page.buffer.whole {
		// A page that is not whole in memory could lack wanted entries once the entries
		// of this turn are published, so it is read again then.
		s.job = pageJob(page)
	}
	// A chain of pages without an end is read in parts.
	return len(s.round) < s.cfg.Bounds.Documents, nil
}

// restartTail starts again from the beginning of the feed because the current page no
// longer exists.
func (t tailer) restartTail(ctx context.Context, err error) (feed.Batch, error) {
	s, cur := t.s, &t.cur
	gone := cur.Tail
	// No entry is published again, because those of the topic are known.
	s.log.Warn("the page at the end of the feed is gone; reading from the start of the feed again", "url", gone, "error", err)
	t.seen.addViolation(PageGone, gone, "the page at the end of the feed is gone: %v", err)
	cur.Tail, cur.Doc = "", nil
	cur.dropValidators()
	batch, again := t.findFirstPage(ctx)
	if again == nil && cur.Tail == gone {
		return feed.Batch{}, err
	}
	// A round restarts once at most: two pages may be missing alternately.
	batch.More = batch.More && s.round == nil
	s.round = map[hashedKey]bool{} // without the page: a link to it is no circle
	return batch, again
}

func isGone(err error) bool {
	status, ok := errors.AsType[*source.StatusError](err)
	return ok && (status.Status == http.StatusNotFound || status.Status == http.StatusGone)
}

// findFirstPage finds the first page to read: the oldest, or the newest with "start:
// now".
func (t tailer) findFirstPage(ctx context.Context) (feed.Batch, error) {
	s, cur := t.s, &t.cur
	d, err := poller(t).readSubscription(ctx, time.Now())
	if err != nil {
		return feed.Batch{}, err
	}
	if d.unmodified {
		return feed.Batch{}, nil
	}
	if err := poller(t).checkFormat(d); err != nil {
		return feed.Batch{}, err
	}
	poller(t).recordDialect(d)
	t.seen.addAll(d.seen.takeAll())
	page := d.url
	if cur.Start == "now" {
		if _, err := poller(t).startReading(d); err != nil {
			return feed.Batch{}, err
		}
		cur.dropValidators()
		if newer, n := d.meta.Link(s.profile.newer); n > 0 {
			page = withoutFragment(newer.Href)
		} else if self, n := d.meta.Link("self"); n > 0 {
			page = withoutFragment(self.Href)
		}
		return t.startAt(page)
	}
	if _, err := poller(t).startReading(d); err != nil {
		return feed.Batch{}, err
	}
	if last, n := d.meta.Link("last"); n > 0 {
		return t.startAt(withoutFragment(last.Href))
	}
	visited := map[hashedKey]bool{hashKey(page): true}
	for range s.cfg.Bounds.Documents {
		older := s.profile.olderURL(&d.meta, d.dialect)
		if older == "" || visited[hashKey(older)] {
			return t.startAt(page)
		}
		visited[hashKey(older)] = true
		if d, err = s.readDocument(ctx, cur, request{url: older, archive: true, order: t.expectedOrder()}); err != nil {
			return feed.Batch{}, err
		}
		if d.unmodified {
			return feed.Batch{}, fmt.Errorf("%s: the server answers without a document", older)
		}
		page = older
	}
	return feed.Batch{}, feed.Permanent(fmt.Errorf("the oldest page of the feed is more than %d pages back; raise bounds.documents", s.cfg.Bounds.Documents))
}

func (t tailer) startAt(page string) (feed.Batch, error) {
	if shortURL(page) == "" {
		return feed.Batch{}, feed.Permanent(fmt.Errorf("the page to begin with has no url, or one that is too long: %s", feedxml.Excerpt(page)))
	}
	t.cur.Tail = page
	return feed.Batch{More: true}, nil
}
