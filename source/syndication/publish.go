package syndication

import (
	"context"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// mostQuiet is the maximum number of documents without anything to publish that are
// read in one turn. They move the cursor, which has to be committed from time to time.
const mostQuiet = 50

// publisher publishes the documents of the job.
type publisher struct{ *turn }

// publishNext returns the next part of the job. done is false if the feed has to be
// polled again first.
func (p publisher) publishNext(ctx context.Context) (batch feed.Batch, done bool, err error) {
	s, j := p.s, p.s.job
	for range mostQuiet {
		if j.at == nil {
			if j.at, err = p.nextDocument(ctx); err != nil {
				return feed.Batch{}, false, err
			}
		}
		switch {
		case j.at == nil && len(j.steps) > 0:
			continue // the document was missing
		case j.at == nil:
			s.job = nil
			return feed.Batch{}, false, nil
		}
		d := j.at
		if len(j.steps) > 0 || d.partial || p.cur.Doc != nil {
			p.cur.dropValidators()
		}
		if len(j.steps) > 0 && j.dialect == Paged {
			// Pages shift. If this walk is not finished at once, known entries no
			// longer end a walk.
			p.cur.Walked = 0
		}
		entities, more := p.publishPart(d)
		s.newest = max(s.newest, d.newest)
		switch {
		case more && len(d.buffer.items) == 0 && d.buffer.cut != nil:
			// Read the entries that had no room.
			if j.at = nil; len(j.steps) > 0 {
				j.steps[len(j.steps)-1].doc = nil
			}
		case more:
		case len(j.steps) > 0:
			p.finishArchive()
		default:
			wait := p.finishSubscription(d)
			return feed.Batch{Entities: entities, More: p.hasDueGap(d), Fresh: wait}, true, nil
		}
		if len(entities) > 0 {
			return feed.Batch{Entities: entities, More: true}, true, nil
		}
	}
	return feed.Batch{More: true}, true, nil
}

// hasDueGap reports whether a gap is due for another request.
func (p publisher) hasDueGap(*document) bool {
	_, due := p.cur.dueGap(time.Now())
	return due
}

// nextDocument returns the document to publish next; nil if there is none, or if it was
// missing.
func (p publisher) nextDocument(ctx context.Context) (*document, error) {
	s, j := p.s, p.s.job
	if len(j.steps) == 0 {
		if j.gapURL != "" {
			p.closeGap(j.gapURL)
			return nil, nil
		}
		return p.subscriptionDocument(ctx)
	}
	st := j.steps[len(j.steps)-1]
	if st.doc != nil {
		return st.doc, nil
	}
	q := request{url: st.url, archive: true, old: st.old, late: j.late, believe: j.believe, order: p.expectedOrder()}
	if p.cur.Doc != nil && p.cur.Doc.URL == hashOf(q.url) {
		q.from, q.order = p.cur.Doc, p.cur.Doc.Order
	}
	d, err := s.readDocument(ctx, &p.cur, q)
	kind := ""
	if err != nil {
		if kind, err = p.awaitOrSkip(ctx, st.url, err); kind == "" {
			return nil, err
		}
	}
	if err != nil || d.unmodified {
		// Older documents are published already; this one has disappeared since the
		// walk.
		if err != nil && j.dialect != Paged {
			p.recordGap(st.url, kind, err)
		}
		j.lacking = true
		j.steps = j.steps[:len(j.steps)-1]
		return nil, nil
	}
	p.dropReported(d)
	p.recordTorn(d)
	d.dialect, d.depth = j.dialectOf(d), len(j.steps)
	d.dropIDs()
	st.doc = d
	return d, nil
}

// subscriptionDocument returns the subscription document, which it reads again if it is
// no longer in memory; nil if it has changed, so that the feed has to be polled again.
func (p publisher) subscriptionDocument(ctx context.Context) (*document, error) {
	j := p.s.job
	if d := j.sub; d != nil {
		j.sub = nil
		return d, nil
	}
	q := request{url: j.url, order: p.expectedOrder()}
	if p := p.cur.Doc; p != nil && p.URL == hashOf(q.url) {
		q.from, q.order = p, p.Order
	}
	d, err := p.s.readDocument(ctx, &p.cur, q)
	j.shifted = err == nil && d.hash != j.hash && j.dialect == Paged
	if err != nil || d.unmodified || d.hash != j.hash && !j.shifted {
		return nil, err
	}
	p.dropReported(d)
	p.recordTorn(d)
	// Its missing entries were checked strictly already, or there were none.
	d.deletes, d.withheld = d.deletes && j.deletes, j.withheld
	d.dropIDs()
	return d, nil
}

// publishPart returns the entities of a document for which the next batch has room.
// more reports that the document has more, or has to be read again to get them.
func (p publisher) publishPart(d *document) (entities []feed.Entity, more bool) {
	s := p.s
	d.dialect = s.job.dialectOf(d)
	pos := progress{URL: hashOf(d.url), Hash: d.hash, Order: d.order}
	if p := p.cur.Doc; p != nil && p.URL == pos.URL && p.Hash == pos.Hash {
		pos = *p
	} else if d.deletes {
		pos.Live = s.countLive()
	}
	size := 0
	full := func() bool { return len(entities) >= s.cfg.BatchEntities || size >= s.cfg.BatchBytes }
	w := d.buffer
	for len(w.items) > 0 {
		it := w.items[0]
		op := s.publishDecision(&p.cur, d, it)
		if op != "" {
			if full() {
				break
			}
			e := d.newEntity(it, op, s.cfg.Redact)
			entities, size = append(entities, e), size+e.Size()
		}
		pos.Key = it.rank
		w.dropFirst()
	}
	more = len(w.items) > 0 || w.cut != nil
	if !more && d.deletes {
		var deletes []string
		deletes, more = p.takeDeletes(d, &pos, s.cfg.BatchEntities-len(entities))
		for _, id := range deletes {
			entities = append(entities, d.vanishedEntity(id))
		}
	}
	p.seen.addAll(d.seen.takeAll())
	if p.cur.Doc = nil; more {
		pos.Part++
		p.cur.Doc = &pos
	}
	return entities, more
}

// finishArchive removes the published document from the job. From now on a walk ends at
// it: all older ones are published, or gaps.
func (p publisher) finishArchive() {
	j := p.s.job
	st := j.steps[len(j.steps)-1]
	p.cur.Walk++
	if j.dialect != Paged && !st.old {
		p.cur.addArchive(st.key)
		if j.dialect != Snapshots {
			p.cur.Newest = shortURL(st.url)
		}
	} else if st.permanent && !j.lacking {
		p.cur.addArchive(st.key)
	} else if j.late {
		newest := p.cur.Newest
		p.cur.addArchive(st.key)
		p.cur.Newest = newest
	}
	j.steps[len(j.steps)-1] = nil
	j.steps = j.steps[:len(j.steps)-1]
	j.at = nil
}

// finishSubscription records that the subscription document and all older ones are
// published. It returns the time that upstream asks to wait before the next request.
func (p publisher) finishSubscription(d *document) time.Duration {
	cur, j := &p.cur, p.s.job
	p.s.job = nil
	cur.Doc, cur.Walk, cur.Rewalk = nil, 0, false
	if j.dialect != Paged {
		cur.Awaited = nil // it is a gap, or nothing leads to it any more
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
	if this, n := d.meta.Link("this"); n > 0 && d.dialect == Snapshots {
		cur.addArchive(withoutFragment(this.Href))
	}
	switch {
	case j.shifted:
		cur.dropValidators()
	case j.torn:
		// All pages are read again at the next poll.
		cur.dropValidators()
		cur.Walked = 0
	case j.full:
		cur.Walked = d.now.Unix()
	default:
		cur.Walked = j.walked
	}
	if d.truncated {
		// They may be the validators of the whole document.
		cur.ETag, cur.Modified = "", ""
	}
	cur.Hints = hintsOf(&d.meta)
	return askedToWait(p.s.cfg.Hints, d.response, cur.Hints, d.now)
}
