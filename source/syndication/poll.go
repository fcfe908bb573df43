package syndication

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// poller requests the subscription document.
type poller struct{ *nextCall }

// readSubscription requests and reads the subscription document.
func (p poller) readSubscription(ctx context.Context, now time.Time) (*document, error) {
	s, cur := p.s, &p.cur
	q := request{url: s.subscriptionURL(cur), order: p.expectedOrder()}
	if !p.resumeDocument(&q) && cur.At == hashOf(q.url) && !cur.Held.isDue(s.cfg.MaxDeleteRatio, now) && now.Sub(time.Unix(cur.Full, 0)) < s.cfg.FullEvery && !p.isRecheckDue(now) {
		q.etag, q.modified = cur.ETag, cur.Modified
	}
	if q.url != s.cfg.URL {
		s.client.AddReached(q.url)
	}
	d, err := s.readDocument(ctx, cur, q)
	if q.url != s.cfg.URL && source.IsGone(err) {
		s.log.Warn("the feed is not where it had moved to; requesting its earlier URL", "url", q.url, "error", err)
		cur.URL, cur.From, cur.Moved = "", "", nil
		return p.readSubscription(ctx, now)
	}
	if source.StatusOf(err) == http.StatusGone {
		// Not to ask at all would take a person to start again a feed whose server has said
		// so by mistake.
		return nil, goneForGood(err)
	}
	if err != nil {
		return nil, p.unreadable(err)
	}
	s.unread = 0
	if !d.truncated {
		s.torn = 0
	}
	p.dropReported(d)
	p.recordRedirect(q.url, d.response)
	return d, nil
}

func goneForGood(err error) error {
	return feed.RetryAfter(feed.Permanent(fmt.Errorf("the provider reports that the feed is gone for good; remove it from the configuration. It is requested once a day, and after a restart: %w", err)), 24*time.Hour)
}

// unreadTimes is the number of consecutive polls with an unreadable subscription
// document after which the error is permanent. Documents that were just being written,
// and error pages with the status 200, are usually gone by then.
const unreadTimes = 5

// unreadable returns the error of a poll whose subscription document could not be read.
func (p poller) unreadable(err error) error {
	if !isUnreadable(err) {
		return err
	}
	if p.s.unread++; p.s.unread < unreadTimes {
		return err
	}
	return feed.Permanent(fmt.Errorf("the document could not be read %d times in a row, so its provider has to act: %w", p.s.unread, err))
}

// keepValidators records the validators of an answer without a document.
func (p poller) keepValidators(d *document) {
	if d.response.Status != http.StatusNotModified || p.cur.At != hashOf(d.url) && p.cur.URL != d.response.URL.String() {
		return
	}
	p.cur.ETag = cmp.Or(validator(d.response.Header.Get("ETag")), p.cur.ETag)
	p.cur.Modified = cmp.Or(validator(d.response.Header.Get("Last-Modified")), p.cur.Modified)
}

// isUnchanged reports whether a document was already published and nothing else is due.
func (p poller) isUnchanged(d *document, now time.Time) bool {
	return p.cur.Body == d.hash && !d.partial && p.cur.Doc == nil && !p.cur.Held.isDue(p.s.cfg.MaxDeleteRatio, now) && p.cur.At != "" && !p.isRecheckDue(now)
}

// followCurrent returns the current document if the feed's URL is that of an archive.
func (p poller) followCurrent(ctx context.Context, d *document) (*document, error) {
	if !d.meta.Archive || d.meta.Complete || d.partial {
		return d, nil
	}
	current, n := d.meta.Link("current")
	url := withoutFragment(current.Href)
	switch {
	case n == 0 || url == "":
		return nil, feed.Permanent(fmt.Errorf("%s is an archive, which does not change any more, and has no link to the current document; set url to the current document", d.url))
	case url == withoutFragment(d.url) || url == withoutFragment(d.response.URL.String()):
		return d, nil
	}
	p.seen.addViolation(kindLinkToArchive, d.url, "the url is that of an archive; %s is read, to which it leads", url)
	d.buffer, d.versions = nil, versions{} // to free the memory for the other document
	next, err := p.s.readDocument(ctx, &p.cur, request{url: url, order: p.expectedOrder()})
	if err != nil {
		return nil, err
	}
	if next.unmodified || next.meta.Archive && !next.meta.Complete {
		return nil, feed.Permanent(fmt.Errorf("%s is an archive, and so is %s, to which it leads as the current document; set url to that", d.url, url))
	}
	if shortURL(url) != "" {
		p.cur.URL, p.cur.From = url, hashOf(p.s.cfg.URL)
	}
	return next, nil
}

// checkFormat returns an error if the format of a document is not that of the feed. Its
// entries would have other IDs: all of them would be published again, and those of a
// complete feed deleted under the old IDs.
func (p poller) checkFormat(d *document) error {
	is, want, was := d.meta.Format, p.s.cfg.Format, p.cur.Format
	switch {
	case want != "" && is != want && (is != feedxml.RDF || want != feedxml.RSS):
		return feed.Permanent(fmt.Errorf("%s: the document is %s, and the feed is configured as %s; if the document is right, set format to auto", d.url, is, want))
	case is == feedxml.JSON && p.s.cfg.Body == "xml":
		return feed.Permanent(fmt.Errorf("%s is a JSON Feed, which has no XML; set body to json, or to source for its own items", d.url))
	case was != "" && is != was:
		return feed.Permanent(fmt.Errorf("%s: the document is %s, and the feed was %s until now; its entries may have other IDs, and then all of them are published again: "+
			"if that is right, start it over with 'feedbridge checkpoint reset'", d.url, is, was))
	}
	return nil
}

// recordDialect records the detected format, dialect and order of the feed.
func (p poller) recordDialect(d *document) {
	cur := &p.cur
	if cur.Dialect == "" && !d.unsure {
		p.s.log.Info("the feed is recognised", "url", d.url, "format", string(d.meta.Format), "dialect", string(d.dialect))
	}
	if d.unsure {
		// Its links to older documents may be missing; the next document decides.
		cur.Format = d.meta.Format
		return
	}
	if cur.Dialect != "" && cur.Dialect != d.dialect {
		p.seen.addViolation(kindDialectChanged, d.url, "the feed was %s and is %s now", cur.Dialect, d.dialect)
		p.s.log.Warn("the feed has changed its dialect", "url", d.url, "before", string(cur.Dialect), "now", string(d.dialect))
	}
	if d.dialect == Paged && cur.Dialect != Paged && !p.s.profile.tail && !p.s.profile.steady {
		p.seen.addViolation(kindPagedLossy, d.url, "the feed is paged: its pages change while they are read, so entries may be missed (RFC 5005, section 3)")
	}
	if d.partial {
		p.seen.addViolation(kindPartial, d.url, "the answer has a part of the document (226), which was not asked for; nothing is taken for deleted")
	}
	if this := d.permanentURL(d.dialect); cur.Doc == nil && cur.hasArchive(this) {
		p.seen.addViolation(kindNotPermanent, d.url, "the document has the permanent URL %s, which another document had before", this)
	}
	cur.Format = d.meta.Format
	cur.Dialect = d.dialect
	if d.meta.Order == feedxml.NewestFirst || d.meta.Order == feedxml.OldestFirst {
		cur.Order = d.meta.Order
	}
}

// subscriptionURL returns the URL of the subscription document.
func (s *decider) subscriptionURL(cur *cursor) string {
	if cur.URL != "" && cur.From == hashOf(s.cfg.URL) {
		return cur.URL
	}
	return s.cfg.URL
}

// A permanent redirect is accepted once movedTimes polls or more in a row have seen it, over at
// least movedAfter.
const (
	movedAfter = 24 * time.Hour
	movedTimes = 3
)

// recordRedirect records a permanent redirect of the subscription document, or its end.
func (p poller) recordRedirect(url string, resp *source.Response) {
	s, cur := p.s, &p.cur
	if !resp.Moved || shortURL(resp.URL.String()) == "" {
		cur.Moved = nil
		return
	}
	to, now := resp.URL.String(), time.Now()
	if cur.Moved == nil || cur.Moved.To != to {
		cur.Moved = &moved{To: to, Since: now.Unix(), Times: 1}
		return
	}
	m := *cur.Moved
	m.Times = min(m.Times+1, movedTimes)
	cur.Moved = &m
	if m.Times == movedTimes && now.Sub(time.Unix(m.Since, 0)) >= movedAfter {
		s.log.Info("the feed has moved for good; requesting it there from now on", "from", url, "to", to)
		cur.URL, cur.From, cur.Moved = to, hashOf(s.cfg.URL), nil
		if cur.At == hashOf(url) {
			cur.At = hashOf(to)
		}
	}
}

// pollFeed reads the subscription document, and the older documents that it links to.
// done reports that there is nothing to publish.
func (p poller) pollFeed(ctx context.Context) (batch feed.Batch, done bool, err error) {
	s := p.s
	if s.pending != nil {
		return feed.Batch{}, false, walker(p).walkUntilStable(ctx)
	}
	now := time.Now()
	if g, due := p.cur.dueGap(now); due && p.cur.Doc == nil {
		if err := walker(p).retryGap(ctx, g); err != nil {
			s.log.Warn("a missing archive is still missing", "url", g.URL, "error", err)
			p.recordGap(g.URL, g.Kind, err)
		} else if s.pending != nil {
			return feed.Batch{}, false, nil
		}
	}
	// The dialect is not known of a feed whose documents all break off.
	watched := p.cur.Format != "" && p.cur.Doc == nil && s.hadEntries(&p.cur)
	d, err := p.readSubscription(ctx, now)
	if err != nil {
		return feed.Batch{}, false, err
	}
	p.asked = true
	wait := func() time.Duration { return askedToWait(s.cfg.Hints, d.response, p.cur.Hints, now) }
	switch {
	case (d.unmodified || p.isUnchanged(d, now)) && p.cur.Hints.Expired && s.cfg.Hints != "ignore":
		return feed.Batch{}, false, goneForGood(fmt.Errorf("%s has expired: true, and all of it is published", s.cfg.URL))
	case d.unmodified:
		p.keepValidators(d)
		return feed.Batch{Fresh: wait()}, true, nil
	case p.checkFormat(d) != nil:
		return feed.Batch{}, false, p.checkFormat(d)
	case p.isUnchanged(d, now):
		p.cur.recordValidators(d)
		if now.Sub(time.Unix(p.cur.Full, 0)) >= s.cfg.FullEvery {
			p.cur.Full = now.Unix()
		}
		return feed.Batch{Fresh: wait()}, true, nil
	}
	if d, err = p.followCurrent(ctx, d); err != nil {
		return feed.Batch{}, false, err
	}
	if err = p.checkIdentities(d); err != nil {
		return feed.Batch{}, false, err
	}
	p.recordDialect(d)
	if started, err := p.startReading(d); err != nil || started {
		return feed.Batch{Fresh: wait()}, started, err
	}
	walker(p).startPending(d, watched && !d.partial && d.dialect != Complete)
	return feed.Batch{}, false, walker(p).walkUntilStable(ctx)
}

// startReading handles the first poll of a feed with "start: now". done reports that
// there is nothing to publish.
func (p poller) startReading(d *document) (done bool, err error) {
	if p.cur.Start == "" {
		return false, nil
	}
	p.cur.Start = ""
	if err := p.cur.skipAll(d); err != nil {
		return false, err
	}
	p.seen.addAll(d.seen.takeAll())
	if older, _ := p.s.profile.olderLink(&d.meta, d.dialect); older != "" && d.dialect != Paged {
		p.cur.addArchive(older)
		p.cur.Newest = shortURL(older)
	}
	p.cur.addArchive(d.permanentURL(d.dialect))
	p.cur.recordValidators(d)
	p.cur.Body, p.cur.Full, p.cur.Walked = d.hash, d.now.Unix(), d.now.Unix()
	p.cur.TitleHashes = d.titleHashes
	return true, nil
}

// skipAll records the entries of a document, so that none of them counts as new later:
// those with the newest dates by their hashes, and older ones by their date.
func (cur *cursor) skipAll(d *document) error {
	impossible := func(why string) error {
		return feed.Permanent(fmt.Errorf("start: now is not possible for %s: %s; start from the beginning, or from a time", d.url, why))
	}
	if !d.buffer.whole || d.buffer.cut != nil {
		return impossible("its document is larger than the feed may hold in memory")
	}
	items := slices.Clone(d.buffer.items)
	at := func(it *item) instant { return instantOf(it.Updated.Time) }
	slices.SortStableFunc(items, func(a, b *item) int {
		switch x, y := at(a), at(b); {
		case x == 0 && y != 0:
			return -1
		case y == 0 && x != 0:
			return 1
		default:
			return int(max(-1, min(1, y-x)))
		}
	})
	if len(items) > maxSeen || d.dialect == Paged && len(items) > 0 {
		oldest := at(items[min(len(items), maxSeen)-1])
		if oldest == 0 {
			return impossible("its entries have no times of their last change, which distinguish the new ones")
		}
		if cur.Since = oldest; at(items[0]) > oldest {
			cur.Since++ // entries of that time may be on the next page, too
		}
		items = items[:min(len(items), maxSeen)]
	}
	cur.Seen = nil
	for _, it := range items {
		cur.Seen = append(cur.Seen, seenKey(it.own, it.shortHash())...)
	}
	return nil
}

// checkIdentities returns an error if most entries of a document have the title, link
// and date of an entry of the last one, and another ID: all of them would be published
// again.
func (p poller) checkIdentities(d *document) error {
	if p.s.cfg.Identity != "auto" || p.cur.Doc != nil {
		return nil
	}
	before, now := p.cur.TitleHashes.byTitleHash(), d.titleHashes.byTitleHash()
	changed := 0
	for hash, id := range now {
		if was, ok := before[hash]; ok && was != id {
			changed++
		}
	}
	if changed < fewChangedIDs || 2*changed <= len(now) {
		return nil
	}
	violation := feed.NewViolation(kindIdentitiesChanged, d.url, "%d of %d entries have another id than before, and the same title, link and date", changed, len(now))
	return feed.Permanent(fmt.Errorf("%w; ask the provider to take that back; otherwise set identity to guid, which publishes all of them again under their new ids; or, if the ids keep changing, to link or content, "+
		"which publishes all entries once more, under ids that are made of their links or contents",
		&violation))
}

const (
	// fewChangedIDs is the least number of changed IDs that is an error.
	fewChangedIDs = 3
)
