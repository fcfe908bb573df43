package syndication

import (
	"context"
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// tailer reads a feed in mode tail.
type tailer struct{ *nextCall }

// readOn reads the next page of a feed whose pages only change by growing, and follows
// the links to newer ones. At the end it requests the last page at each poll.
func (t tailer) readOn(ctx context.Context) (feed.Batch, error) {
	batch, err := t.publishPage(ctx)
	if err != nil || !batch.More {
		t.s.tailPages = nil
	}
	return batch, err
}

// publishPage publishes the next part of the current page, and requests the page before its first
// part. After its last part it continues with the next newer page, if there is one.
func (t tailer) publishPage(ctx context.Context) (feed.Batch, error) {
	s, cur := t.s, &t.cur
	if cur.Tail == "" {
		return t.findFirstPage(ctx)
	}
	if s.pending == nil {
		now := time.Now()
		d, changed, err := t.requestPage(ctx, now)
		if source.IsGone(err) {
			return t.restartTail(ctx, err)
		}
		if err != nil {
			return feed.Batch{}, err
		}
		if !changed {
			return feed.Batch{Fresh: askedToWait(s.cfg.Hints, d.response, cur.Hints, now)}, nil
		}
		s.pending = pendingPage(d)
	}
	d := s.pending.at
	entities, more := publisher(t).publishPart(d)
	s.newest = max(s.newest, d.newest)
	if more {
		if len(d.buffer.items) == 0 {
			s.pending = nil
		}
		return feed.Batch{Entities: entities, More: true}, nil
	}
	s.pending = nil
	if next := t.newerPage(d); next != "" {
		more, err := t.followNewer(ctx, d, next)
		return feed.Batch{Entities: entities, More: more, Fresh: askedToWait(s.cfg.Hints, d.response, d.meta.Hints, d.now)}, err
	}
	if cur.At != hashOf(d.url) || cur.Body != d.hash || d.now.Sub(time.Unix(cur.Full, 0)) >= s.cfg.FullEvery {
		cur.Full = d.now.Unix()
	}
	cur.recordValidators(d)
	cur.Body = d.hash
	return feed.Batch{Entities: entities, Fresh: askedToWait(s.cfg.Hints, d.response, cur.Hints, d.now)}, nil
}

// requestPage requests the current page. changed reports that there may be something to publish
// in it. Once per full_every the page is requested and read in full.
func (t tailer) requestPage(ctx context.Context, now time.Time) (d *document, changed bool, err error) {
	s, cur := t.s, &t.cur
	q := request{url: cur.Tail, order: t.expectedOrder()}
	known := func() bool {
		return cur.At == hashOf(q.url) && now.Sub(time.Unix(cur.Full, 0)) < s.cfg.FullEvery
	}
	if !t.resumeDocument(&q) && known() {
		q.etag, q.modified = cur.ETag, cur.Modified
	}
	if d, err = s.readDocument(ctx, cur, q); err != nil {
		return nil, false, err
	}
	t.dropReported(d)
	return d, !d.unmodified && (!known() || cur.Body != d.hash), nil
}

// newerPage returns the URL of the page that follows d; empty if there is none, or if it was read
// before.
func (t tailer) newerPage(d *document) string {
	s := t.s
	if s.tailPages == nil {
		s.tailPages = map[hashedKey]bool{}
	}
	s.tailPages[hashKey(t.cur.Tail)] = true
	newer, _ := d.meta.Link(s.profile.newer)
	next := withoutFragment(newer.Href)
	if next != "" && (s.tailPages[hashKey(next)] || shortURL(next) == "") {
		t.seen.addViolation(kindLoop, d.url, "the links to newer pages lead in a circle, or the next one is too long: %s", feedxml.Excerpt(next))
		return ""
	}
	return next
}

// pendingPage returns the pending poll of one page.
func pendingPage(d *document) *pendingPoll {
	d.archive, d.deletes = true, false
	d.dropIDs()
	return &pendingPoll{dialect: d.dialect, at: d}
}

// followNewer continues with the next newer page, if it exists: a server may write a
// link before its page. more reports that there is something to read at once.
func (t tailer) followNewer(ctx context.Context, d *document, next string) (more bool, err error) {
	s, cur := t.s, &t.cur
	page, err := s.readDocument(ctx, cur, request{url: next, order: t.expectedOrder()})
	if source.IsGone(err) {
		// The page with the link is the end for now, and is requested in full each
		// time. Once the violation was reported, At is empty and Body is not.
		reported := cur.At == "" && cur.Body == d.hash
		cur.dropValidators()
		cur.Body = d.hash
		if !reported {
			s.log.Warn("the next newer page is missing; requesting it again at each poll", "url", next, "error", err)
			t.seen.addViolation(kindIncomplete, next, "the next newer page is missing, and with it all that follow: %v", err)
		}
		return false, nil
	}
	// Any other error is returned by the next call.
	cur.Tail = next
	cur.dropValidators()
	if err == nil && !page.unmodified && page.buffer.whole {
		// A page that is not whole in memory could lack wanted entries once the entries
		// of this call are published, so it is read again then.
		s.pending = pendingPage(page)
	}
	// A chain of pages without an end is read in parts.
	return len(s.tailPages) < s.cfg.Bounds.Documents, nil
}

// restartTail starts again from the beginning of the feed because the current page no
// longer exists.
func (t tailer) restartTail(ctx context.Context, err error) (feed.Batch, error) {
	s, cur := t.s, &t.cur
	gone := cur.Tail
	// No entry is published again, because those of the topic are known.
	s.log.Warn("the page at the end of the feed is gone; reading from the start of the feed again", "url", gone, "error", err)
	t.seen.addViolation(kindPageGone, gone, "the page at the end of the feed is gone: %v", err)
	cur.Tail, cur.Doc = "", nil
	cur.dropValidators()
	batch, again := t.findFirstPage(ctx)
	if again == nil && cur.Tail == gone {
		return feed.Batch{}, err
	}
	// Reading restarts once at most until the next pause: two pages may be missing alternately.
	batch.More = batch.More && s.tailPages == nil
	s.tailPages = map[hashedKey]bool{} // without the page: a link to it is no circle
	return batch, again
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
	page, now := d.url, cur.Start == "now"
	if _, err := poller(t).startReading(d); err != nil {
		return feed.Batch{}, err
	}
	if now {
		cur.dropValidators()
		if newer, n := d.meta.Link(s.profile.newer); n > 0 {
			page = withoutFragment(newer.Href)
		} else if self, n := d.meta.Link("self"); n > 0 {
			page = withoutFragment(self.Href)
		}
		return t.startAt(page)
	}
	if last, n := d.meta.Link("last"); n > 0 {
		return t.startAt(withoutFragment(last.Href))
	}
	visited := map[hashedKey]bool{hashKey(page): true}
	for range s.cfg.Bounds.Documents {
		older, _ := s.profile.olderLink(&d.meta, d.dialect)
		if older == "" || visited[hashKey(older)] {
			return t.startAt(page)
		}
		visited[hashKey(older)] = true
		if d, err = t.readOlder(ctx, request{url: older, archive: true, order: t.expectedOrder()}); err != nil {
			return feed.Batch{}, err
		}
		page = older
	}
	return feed.Batch{}, feed.Permanent(fmt.Errorf("the oldest page of the feed is more than %d pages back; set mode: poll, or start: now", s.cfg.Bounds.Documents))
}

func (t tailer) startAt(page string) (feed.Batch, error) {
	if shortURL(page) == "" {
		return feed.Batch{}, feed.Permanent(fmt.Errorf("the page to begin with has no url, or one that is too long: %s", feedxml.Excerpt(page)))
	}
	t.cur.Tail = page
	return feed.Batch{More: true}, nil
}
