package syndication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// job is a poll that has something to publish: older documents, and behind them
// the subscription document. It lives in memory alone. Without it, as after a
// crash, the walk is made again, and ends at what the cursor has as published.
type job struct {
	// steps are the documents to publish, newest first: the last comes next.
	steps []*step
	// frontier is the URL to walk on at; "" when the walk is done.
	frontier string
	visited  map[key]bool
	// weight is about what steps and visited take in memory, without documents.
	weight  int64
	dialect Dialect
	// lasts has the IDs that the topic held when the walk began.
	lasts map[key]last
	// sub is the subscription document, if it is still held. url, hash and
	// believe, its update time, are known of it longer, as are deletes and
	// withheld.
	sub               *document
	url, hash         string
	believe           instant
	deletes, withheld bool
	// late and healing are set while what is behind a gap is read.
	late    bool
	healing string
	// recheck is how many published archives are still to be read again, and
	// full says that all pages of a paged feed are.
	recheck int
	full    bool
	again   bool // a paged feed has changed during the walk once
	// shifted says that it has changed while its pages were published, and walked
	// is when all of them were read last.
	shifted bool
	walked  int64
	// permanent reports that frontier is an archive of a paged feed, and lacking that a
	// page of the walk is missing, so that no archive may end the next walk.
	permanent, lacking bool
	// torn reports that a page may lack its link to the next older one.
	torn bool
	// shared reports that a document has an entry that the topic has, or that the walk
	// has got to what is published or to a gap; fresh counts the entries that the topic has not,
	// and watched says that a poll without a shared entry is to be reported.
	shared, watched bool
	fresh           int
	// at is the document that is being published.
	at *document
	// failed is the turn in which the job could not go on.
	failed *turn
	// err is what the next call fails with.
	err error
	// found are the documents that are held while pincer looks for more.
	found []*document
}

const (
	// stepBytes is about what a document takes in a job without its entries and
	// its URL, in bytes.
	stepBytes = 300
	// leastWalk is how many bytes the URLs of a walk may always take.
	leastWalk = 1 << 20
)

// step is a document to publish. It is read again if it was not kept.
type step struct {
	url string
	// key is what the cursor knows it by.
	key string
	doc *document
	old bool
	// permanent reports that it is an archive of a paged feed.
	permanent bool
}

func isOld(st *step) bool { return st.old }

// walk looks for older documents until there are none, or none that are not
// published. It fails where one is not to be had at the moment, and can be called
// again then.
func (r *turn) walk(ctx context.Context) error {
	s, j := r.s, r.s.job
	for j.frontier != "" {
		url := j.frontier
		old := j.late
		switch known := r.cur.has(url); {
		case j.visited[keyOf(url)]:
			r.seen.add(Loop, url, "the links to older documents lead in a circle")
			j.frontier = ""
			return nil
		case known && j.recheck > 0:
			j.recheck--
			old = true
		case known, r.cur.gap(url) >= 0 && url != j.healing:
			j.frontier = ""
			j.shared = true // or a gap, which was reported
			return r.pincer(ctx, !known)
		case j.weight > max(s.cfg.Bounds.Memory, leastWalk):
			later := "what is behind them is read later"
			if short(url) == "" {
				later = "what is behind them is not read, because URLs of more than 500 bytes are not remembered"
			}
			j.lacking, j.shared = true, true
			r.skip(url, WalkLimit, fmt.Errorf("the URLs of %d documents take %d bytes, which is all that a walk may hold (bounds.memory); %s", len(j.steps), j.weight, later))
			j.frontier = ""
			return nil
		case len(j.steps) >= s.cfg.Bounds.Documents:
			j.lacking, j.shared = true, true
			r.skip(url, WalkLimit, fmt.Errorf("%d documents are all that are read in one go (bounds.documents); what is behind them is read later", len(j.steps)))
			j.frontier = ""
			return nil
		}
		d, err := s.read(ctx, &r.cur, question{url: url, archive: true, old: old, late: j.late, believe: j.believe, order: r.expected()})
		if err == nil && d.unmodified {
			err = fmt.Errorf("%s: the server answers without a document", url)
		}
		if err != nil {
			kind := gapKind(err)
			if !j.late {
				kind, err = r.missing(ctx, url, err)
			}
			switch {
			case kind == "":
				return err
			case j.dialect == Paged:
				j.lacking = true
				r.seen.add(Incomplete, url, "a page is missing, and with it what is older: %v", err)
			default:
				r.skip(url, kind, err)
			}
			j.frontier = ""
			j.shared = true // a gap was reported
			return r.pincer(ctx, true)
		}
		j.visited[keyOf(url)] = true
		if final := withoutFragment(d.response.URL.String()); final != url {
			j.visited[keyOf(final)] = true
		}
		r.cur.arrived(url)
		j.push(r, d, old)
		j.steps[len(j.steps)-1].permanent = j.permanent
		if r.walkTo(d); j.frontier == "" && j.dialect != Paged && len(r.cur.Archives) > 0 && !slices.ContainsFunc(j.steps, isOld) {
			// None of the archives is known: their URLs have changed.
			r.cur.Rewalk = true
		}
		if j.dialect == Paged && !j.full && !s.wants(&r.cur, d) {
			j.frontier = ""
		}
	}
	return nil
}

// walkTo has the walk go on at what a document links to as the next older one.
func (r *turn) walkTo(d *document) {
	j := r.s.job
	url, rel := r.s.olderLink(&d.meta, j.dialect)
	j.frontier, j.permanent = url, j.dialect == Paged && rel == "next-archive"
	r.noteTorn(d)
}

// noteTorn takes note of a page that may lack the link to what is older.
func (r *turn) noteTorn(d *document) {
	j := r.s.job
	if !d.unsure || j.dialect != Paged && r.cur.Dialect != Paged {
		return
	}
	j.torn, j.lacking, j.shared = true, true, true
	r.seen.add(Incomplete, d.url, "the page is broken, and the link to what is older may be missing")
}

// overrun reports entries that may have come and gone between two polls: nothing
// that the feed has now, as far back as it could be read, was there at the last one.
func (r *turn) overrun() {
	j := r.s.job
	if j == nil || !j.watched || j.frontier != "" || j.shared || j.fresh == 0 {
		return
	}
	j.watched = false
	r.seen.add(PossibleOverrun, j.url, "none of the %d entries was there at the last poll, and no link leads to what was: some may have come and gone; poll more often", j.fresh)
}

// push adds a document to those to publish, and lets go of some if there are too
// many in memory: those that are published last. It lets go of those, too, of which
// only what the topic has not is held, for the topic will have something else when
// it is their turn.
func (j *job) push(r *turn, d *document, old bool) {
	st := &step{url: d.url, key: d.url, doc: d, old: old}
	j.fresh += d.fresh
	j.shared = j.shared || d.known > 0
	if this, n := d.meta.Link("this"); n > 0 && this.Href != "" && j.dialect == Snapshots {
		st.key = withoutFragment(this.Href)
	}
	j.steps = append(j.steps, st)
	j.weight += int64(len(st.url) + len(st.key) + stepBytes)
	d.depth = len(j.steps)
	if !j.late {
		j.note(d)
	}
	d.forgetIDs()
	size := 0
	for i, st := range slices.Backward(j.steps) {
		if st.doc == nil {
			continue
		}
		size += st.doc.weight()
		if i < len(j.steps)-1 && (size > int(r.s.cfg.Bounds.Memory) || !st.doc.window.whole) {
			st.doc = nil
		}
	}
	if j.sub != nil && (size+j.sub.weight() > int(r.s.cfg.Bounds.Memory) || !j.sub.window.whole) {
		j.sub = nil
	}
	r.s.share.keep(j.held())
}

// pincer looks for archives behind a gap from the other side: the newest that is
// published may by now have a link to a newer one.
func (r *turn) pincer(ctx context.Context, gap bool) error {
	s, j := r.s, r.s.job
	rel := s.profile.newer
	if rel == "" {
		rel = "next-archive"
	}
	if !gap || j.late || r.cur.Newest == "" || j.dialect != Archived {
		return nil
	}
	d, err := s.read(ctx, &r.cur, question{url: r.cur.Newest, archive: true, old: true, believe: j.believe, order: r.expected()})
	j.found = nil
	defer func() { j.found = nil }()
	seen := map[key]bool{}
	size, joined := 0, true
	for err == nil && !d.unmodified {
		next, _ := d.meta.Link(rel)
		url := withoutFragment(next.Href)
		if int64(size) > max(s.cfg.Bounds.Memory, leastWalk) {
			joined = false
			break
		}
		if url == "" || seen[keyOf(url)] || j.visited[keyOf(url)] || r.cur.has(url) || len(j.steps)+len(j.found) >= s.cfg.Bounds.Documents {
			break
		}
		seen[keyOf(url)] = true
		d, err = s.read(ctx, &r.cur, question{url: url, archive: true, believe: j.believe, order: r.expected()})
		if err == nil && !d.unmodified {
			j.found = append(j.found, d)
			size += d.weight()
		}
	}
	if err != nil && gapKind(err) == "" {
		return err
	}
	found := j.found
	j.found = nil
	for _, d := range slices.Backward(found) {
		j.push(r, d, false)
	}
	if last := len(r.cur.Gaps) - 1; len(found) > 0 && last >= 0 && joined {
		r.s.log.Info("the missing archive is bridged from its older side", "gap", r.cur.Gaps[last].URL, "from", found[0].url)
		r.cur.Gaps = slices.Clone(r.cur.Gaps[:last])
	}
	return nil
}

// older returns the URL of the next older document; "" if there is none.
func (s *Source) older(m *feedxml.Meta, dialect Dialect) string {
	url, _ := s.olderLink(m, dialect)
	return url
}

// olderLink returns the URL of the next older document, and the relation that leads
// there.
func (s *Source) olderLink(m *feedxml.Meta, dialect Dialect) (url, rel string) {
	rels := s.profile.older
	if rels == nil {
		switch dialect {
		case Archived:
			rels = []string{"prev-archive"}
		case ArchivedElement:
			if m.Prev != "" {
				return withoutFragment(m.Prev), ""
			}
			rels = []string{"prev-archive"}
		case Snapshots:
			rels = []string{"prev"}
		case Paged:
			rels = pagedOlder
		default:
			return "", ""
		}
	}
	for _, rel := range rels {
		if link, n := m.Link(rel); n > 0 {
			return withoutFragment(link.Href), rel
		}
	}
	if dialect == Archived {
		return withoutFragment(m.Prev), ""
	}
	return "", ""
}

func withoutFragment(url string) string {
	url, _, _ = strings.Cut(url, "#")
	return url
}

// wants says whether anything of a document is to be published.
func (s *Source) wants(cur *cursor, d *document) bool {
	if d.window.cut != nil {
		return true
	}
	probe := *d
	probe.seen = sightings{}
	return slices.ContainsFunc(d.window.items, func(it *item) bool { return s.decide(cur, &probe, it) != "" })
}

// stable asks once more for the first page of a paged feed after its other pages
// were read. If it has changed, entries may have moved from page to page.
func (r *turn) stable(ctx context.Context) (changed bool, err error) {
	j := r.s.job
	if j.sub == nil || j.dialect != Paged || len(j.steps) == 0 || r.s.profile.steady {
		return false, nil
	}
	q := j.sub.question
	q.etag, q.modified = j.sub.response.Header.Get("ETag"), j.sub.response.Header.Get("Last-Modified")
	q.from = nil
	d, err := r.s.read(ctx, &r.cur, q)
	if err != nil || d.unmodified || d.hash == j.sub.hash {
		return false, err
	}
	if j.again {
		r.seen.add(LossyShift, q.url, "the feed has changed twice while its pages were read; entries may be missing")
		return false, nil
	}
	r.begin(d)
	r.s.job.again = true
	return true, nil
}

// recheckDue says whether archives that are published, or all pages, are to be
// read again.
func (r *turn) recheckDue(now time.Time) bool {
	every := r.s.cfg.RecheckArchives.Every
	switch r.cur.Dialect {
	case Paged:
		every = r.s.cfg.FullEvery
	case Archived, ArchivedElement:
		if r.s.cfg.RecheckArchives.Newest == 0 {
			return false
		}
	default:
		return false
	}
	return r.cur.Walked != 0 && now.Sub(time.Unix(r.cur.Walked, 0)) >= every
}

// expected is the order that the entries of a document are expected in.
func (r *turn) expected() feedxml.Order {
	switch {
	case r.s.profile.order != feedxml.NoOrder:
		return r.s.profile.order
	case r.cur.Order != feedxml.NoOrder:
		return r.cur.Order
	}
	return feedxml.NewestFirst
}

// isParse says whether a document that came was not good enough.
func isParse(err error) bool {
	return errors.Is(err, feedxml.ErrMalformed) || errors.Is(err, feedxml.ErrTrailing) || errors.Is(err, feedxml.ErrCharset)
}
