package syndication

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// mostQuiet is the maximum number of documents without anything to publish that are
// read in one call of Next. They move the cursor, which has to be committed from time to time.
const mostQuiet = 50

// publisher publishes the documents of the pending poll.
type publisher struct{ *nextCall }

// publishNext returns the next part of the pending poll. done is false if the feed has to be
// polled again first.
func (p publisher) publishNext(ctx context.Context) (batch feed.Batch, done bool, err error) {
	s, pending := p.s, p.s.pending
	for range mostQuiet {
		if pending.at == nil {
			if pending.at, err = p.nextDocument(ctx); err != nil {
				return feed.Batch{}, false, err
			}
		}
		switch {
		case pending.at == nil && len(pending.steps) > 0:
			continue // the document was missing
		case pending.at == nil:
			s.pending = nil
			return feed.Batch{}, false, nil
		}
		d := pending.at
		if len(pending.steps) > 0 || d.partial || p.cur.Doc != nil {
			p.cur.dropValidators()
		}
		if len(pending.steps) > 0 && pending.dialect == Paged {
			// Pages shift. If this walk is not finished at once, known entries no
			// longer end a walk.
			p.cur.Walked = 0
		}
		entities, more := p.publishPart(d)
		s.newest = max(s.newest, d.newest)
		switch {
		case more && len(d.buffer.items) == 0 && d.buffer.cut != nil:
			// Read the entries that had no room.
			if pending.at = nil; len(pending.steps) > 0 {
				pending.steps[len(pending.steps)-1].doc = nil
			}
		case more:
		case len(pending.steps) > 0:
			p.finishArchive()
		default:
			wait := p.finishSubscription(d)
			_, due := p.cur.dueGap(time.Now())
			return feed.Batch{Entities: entities, More: due, Fresh: wait}, true, nil
		}
		if len(entities) > 0 {
			return feed.Batch{Entities: entities, More: true}, true, nil
		}
	}
	return feed.Batch{More: true}, true, nil
}

// nextDocument returns the document to publish next; nil if there is none, or if it was
// missing.
func (p publisher) nextDocument(ctx context.Context) (*document, error) {
	pending := p.s.pending
	if len(pending.steps) == 0 {
		if pending.gapURL != "" {
			p.closeGap(pending.gapURL)
			return nil, nil
		}
		return p.subscriptionDocument(ctx)
	}
	st := pending.steps[len(pending.steps)-1]
	if st.doc != nil {
		p.s.ahead.Expect(ctx, p.nextURLs()...)
		return st.doc, nil
	}
	q := p.olderRequest(st.url)
	q.next = p.nextURLs()
	p.resumeDocument(&q)
	d, err := p.s.readDocument(ctx, &p.cur, q)
	kind := ""
	if err != nil {
		if kind, err = p.awaitOrSkip(ctx, st.url, err); kind == "" {
			return nil, err
		}
	}
	if err != nil || d.unmodified {
		// Older documents are published already; this one has disappeared since the
		// walk.
		if err != nil && pending.dialect != Paged {
			p.recordGap(st.url, kind, err)
		}
		pending.lacking = true
		pending.steps = pending.steps[:len(pending.steps)-1]
		return nil, nil
	}
	p.dropReported(d)
	p.recordMissingLink(d)
	d.dialect, d.depth = pending.dialectOf(d), len(pending.steps)
	d.dropIDs()
	st.doc = d
	return d, nil
}

// nextURLs returns the URLs of those of the documents to request ahead, after the current one,
// that are not in memory.
func (p publisher) nextURLs() (urls []string) {
	later := p.s.pending.steps[:len(p.s.pending.steps)-1]
	for _, st := range slices.Backward(later[max(0, len(later)-p.s.ahead.Number()):]) {
		if st.doc == nil {
			urls = append(urls, st.url)
		}
	}
	return urls
}

// subscriptionDocument returns the subscription document, which it reads again if it is
// no longer in memory; nil if it has changed, so that the feed has to be polled again.
func (p publisher) subscriptionDocument(ctx context.Context) (*document, error) {
	pending := p.s.pending
	if d := pending.sub; d != nil {
		pending.sub = nil
		return d, nil
	}
	q := request{url: pending.url, order: p.expectedOrder()}
	p.resumeDocument(&q)
	d, err := p.s.readDocument(ctx, &p.cur, q)
	// After a release, the feed is polled again instead: entries may be on pages that the walk did not read. One
	// that does not fit into memory, and is another one at each request, would never be published like that.
	if err != nil || d.unmodified || d.hash != pending.hash && (pending.dialect != Paged || pending.released) {
		return nil, err
	}
	if d.hash != pending.hash {
		pending.reread, pending.walked = true, p.cur.Walked
	}
	p.dropReported(d)
	p.recordMissingLink(d)
	d.deletes, d.withheld = d.deletes && pending.deletes, pending.withheld
	d.dropIDs()
	return d, nil
}

// publishPart returns the entities of a document for which the next batch has room.
// more reports that the document has more, or has to be read again to get them.
func (p publisher) publishPart(d *document) (entities []feed.Entity, more bool) {
	s := p.s
	d.dialect = s.pending.dialectOf(d)
	pos := progress{URL: hashOf(d.url), Hash: d.hash, Order: d.order}
	if p := p.cur.Doc; p != nil && p.URL == pos.URL && p.Hash == pos.Hash {
		pos = *p
	} else if d.deletes {
		pos.Live = s.countLive()
	}
	size := 0
	full := func() bool { return s.limits.AreReached(len(entities), size) }
	w := d.buffer
	for len(w.items) > 0 {
		it := w.items[0]
		s.extendKnown(&p.cur, w, it)
		op := s.publishDecision(&p.cur, d, it)
		if op != "" {
			if full() {
				break
			}
			if _, known := s.topic.Mark(it.ID); known && op == feed.Put && !d.archive {
				s.churn.addChange(it)
			}
			e := d.newEntity(it, op, s.cfg.Redact)
			s.encodeBody(d, &e)
			entities, size = append(entities, e), size+e.Size()
		}
		pos.Key = it.rank
		w.dropFirst()
	}
	if len(w.items) == 0 && w.cut != nil {
		// Go on there even if nothing was published: all entries before it may have been replaced by later ones.
		pos.Key = publishOrder{w.cut[0], w.cut[1] - 1}
	}
	more = len(w.items) > 0 || w.cut != nil
	if !more && d.deletes {
		var deletes []string
		deletes, more = p.takeDeletes(d, &pos, cmp.Or(s.limits.Entities, math.MaxInt)-len(entities))
		for _, id := range deletes {
			e := d.vanishedEntity(id)
			s.encodeBody(d, &e)
			entities = append(entities, e)
		}
	}
	p.seen.addAll(d.seen.takeAll())
	if p.cur.Doc = nil; more {
		p.cur.Parts++
		p.cur.Doc = &pos
	}
	return entities, more
}

// finishArchive removes the published document from the pending poll. From now on a walk ends at
// it: all older ones are published, or gaps.
func (p publisher) finishArchive() {
	pending := p.s.pending
	st := pending.steps[len(pending.steps)-1]
	p.cur.Parts++
	if pending.dialect != Paged || pending.isLate() || st.permanent && !pending.lacking {
		p.cur.addArchive(st.key)
		k := hashKey(st.key)
		pending.behind = append(slices.Clip(pending.behind), k[:archiveBytes]...)
		if !pending.isLate() {
			p.cur.Newest = shortURL(st.url)
		}
	}
	pending.steps[len(pending.steps)-1] = nil
	pending.steps = pending.steps[:len(pending.steps)-1]
	pending.at = nil
}

// finishSubscription records that the subscription document and all older ones are
// published. It returns the time that upstream asks to wait before the next request.
func (p publisher) finishSubscription(d *document) time.Duration {
	cur, pending := &p.cur, p.s.pending
	p.s.pending = nil
	cur.Doc, cur.Parts = nil, 0
	if pending.dialect != Paged {
		cur.Awaited = nil // it is a gap, or nothing leads to it any more
	}
	if names := p.s.churn.endPoll(d.entries); names != nil {
		ignore := slices.Compact(slices.Sorted(slices.Values(append(names, p.s.cfg.IgnoreChangesIn...))))
		p.seen.addViolation(kindAlwaysChanging, d.url, "most entries have changed at each of the last %d polls, in: %s; to ignore that, set ignore_changes_in: [%s]", churnPolls, strings.Join(names, ", "), strings.Join(ignore, ", "))
	}
	cur.recordValidators(d)
	cur.TitleHashes = nil
	if p.s.cfg.Identity == "auto" {
		cur.TitleHashes = d.titleHashes
	}
	if !d.partial {
		cur.Body, cur.Full = d.hash, d.now.Unix()
	}
	if d.withheld {
		cur.Body = "" // a corrected document may have the same entries
	}
	if !d.deletes && !d.withheld && !d.partial {
		cur.Held = nil // the feed is no longer complete
	}
	cur.addArchive(d.permanentURL(d.dialect))
	cur.Walked = pending.walked
	if pending.reread {
		cur.dropValidators()
	}
	if d.truncated {
		// They may be the validators of the whole document.
		cur.ETag, cur.Modified = "", ""
	}
	return askedToWait(p.s.cfg.Hints, d.response, cur.Hints, d.now)
}
