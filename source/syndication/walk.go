package syndication

import (
	"context"
	"fmt"
	"slices"
)

// walker finds the older documents of a feed and adds them to the job.
type walker struct{ *turn }

// walkBack reads older documents until it reaches a published one, the oldest, a
// missing one, or a limit. It returns an error if a document cannot be read at the
// moment; the next call continues there.
func (w walker) walkBack(ctx context.Context) error {
	s, j := w.s, w.s.job
	for j.frontier != "" {
		url := j.frontier
		old := j.late
		switch known := w.cur.hasArchive(url); {
		case j.visited[hashKey(url)]:
			w.seen.addViolation(Loop, url, "the links to older documents lead in a circle")
			j.frontier = ""
			return nil
		case known && j.recheck > 0:
			j.recheck--
			old = true
		case known, w.cur.gapIndex(url) >= 0 && url != j.gapURL:
			j.frontier = ""
			j.shared = true // or a gap, which was reported
			return w.bridgeGap(ctx, !known)
		case j.weight > max(s.cfg.Bounds.Memory, leastWalk):
			later := "what is behind them is read later"
			if shortURL(url) == "" {
				later = "what is behind them is not read, because URLs of more than 500 bytes are not remembered"
			}
			j.lacking, j.shared = true, true
			w.recordGap(url, WalkLimit, fmt.Errorf("the URLs of %d documents take %d bytes, which is all that a walk may hold (bounds.memory); %s", len(j.steps), j.weight, later))
			j.frontier = ""
			return nil
		case len(j.steps) >= s.cfg.Bounds.Documents:
			j.lacking, j.shared = true, true
			w.recordGap(url, WalkLimit, fmt.Errorf("%d documents are all that are read in one go (bounds.documents); what is behind them is read later", len(j.steps)))
			j.frontier = ""
			return nil
		}
		d, err := s.readDocument(ctx, &w.cur, request{url: url, archive: true, old: old, late: j.late, believe: j.believe, order: w.expectedOrder()})
		if err == nil && d.unmodified {
			err = fmt.Errorf("%s: the server answers without a document", url)
		}
		if err != nil {
			kind := gapKind(err)
			if !j.late {
				kind, err = w.awaitOrSkip(ctx, url, err)
			}
			switch {
			case kind == "":
				return err
			case j.dialect == Paged:
				j.lacking = true
				w.seen.addViolation(Incomplete, url, "a page is missing, and with it what is older: %v", err)
			default:
				w.recordGap(url, kind, err)
			}
			j.frontier = ""
			j.shared = true // a gap was reported
			return w.bridgeGap(ctx, true)
		}
		j.visited[hashKey(url)] = true
		if final := withoutFragment(d.response.URL.String()); final != url {
			j.visited[hashKey(final)] = true
		}
		w.cur.endWait(url)
		w.pushStep(d, old)
		s.search.Store(&search{len(j.steps), d.meta.Updated.Time})
		j.steps[len(j.steps)-1].permanent = j.permanent
		if w.setFrontier(d); j.frontier == "" && j.dialect != Paged && len(w.cur.Archives) > 0 && !slices.ContainsFunc(j.steps, isOld) {
			// None of the archives is known: their URLs have changed.
			w.cur.Rewalk = true
		}
		if j.dialect == Paged && !j.full && !s.wantsAny(&w.cur, d) {
			j.frontier = ""
		}
	}
	return nil
}

// setFrontier continues the walk at the next older document that a document links to.
func (w walker) setFrontier(d *document) {
	j := w.s.job
	url, rel := w.s.profile.olderLink(&d.meta, j.dialect)
	j.frontier, j.permanent = url, j.dialect == Paged && rel == "next-archive"
	w.recordTorn(d)
}

// reportOverrun reports that entries may have come and gone between two polls: none of
// the entries that the feed has now, as far back as it could be read, was there at the
// last poll.
func (w walker) reportOverrun() {
	j := w.s.job
	if j == nil || !j.watched || j.frontier != "" || j.shared || j.fresh == 0 {
		return
	}
	j.watched = false
	w.seen.addViolation(PossibleOverrun, j.url, "none of the %d entries was there at the last poll, and no link leads to what was: some may have come and gone; poll more often", j.fresh)
}

// pushStep adds a document to those to publish. If there are too many in memory, it
// drops the entries of those that are published last. It also drops those with only the
// entries that the topic lacked, because the topic will have changed when they are
// published.
func (w walker) pushStep(d *document, old bool) {
	j := w.s.job
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
		j.recordVersions(d)
	}
	d.dropIDs()
	size := 0
	for i, st := range slices.Backward(j.steps) {
		if st.doc == nil {
			continue
		}
		size += st.doc.memorySize()
		if i < len(j.steps)-1 && (size > int(w.s.cfg.Bounds.Memory) || !st.doc.buffer.whole) {
			st.doc = nil
		}
	}
	if j.sub != nil && (size+j.sub.memorySize() > int(w.s.cfg.Bounds.Memory) || !j.sub.buffer.whole) {
		j.sub = nil
	}
	w.s.share.releaseUnneeded(j.bufferedBytes())
}

// bridgeGap looks for the archives behind a gap from the older side: the newest
// published archive may now have a link to a newer one.
func (w walker) bridgeGap(ctx context.Context, gap bool) error {
	s, j := w.s, w.s.job
	rel := s.profile.newer
	if rel == "" {
		rel = "next-archive"
	}
	if !gap || j.late || w.cur.Newest == "" || j.dialect != Archived {
		return nil
	}
	d, err := s.readDocument(ctx, &w.cur, request{url: w.cur.Newest, archive: true, old: true, believe: j.believe, order: w.expectedOrder()})
	j.found = nil
	defer func() { j.found = nil }()
	seen := map[hashedKey]bool{}
	size, joined := 0, true
	for err == nil && !d.unmodified {
		next, _ := d.meta.Link(rel)
		url := withoutFragment(next.Href)
		if int64(size) > max(s.cfg.Bounds.Memory, leastWalk) {
			joined = false
			break
		}
		if url == "" || seen[hashKey(url)] || j.visited[hashKey(url)] || w.cur.hasArchive(url) || len(j.steps)+len(j.found) >= s.cfg.Bounds.Documents {
			break
		}
		seen[hashKey(url)] = true
		d, err = s.readDocument(ctx, &w.cur, request{url: url, archive: true, believe: j.believe, order: w.expectedOrder()})
		if err == nil && !d.unmodified {
			j.found = append(j.found, d)
			size += d.memorySize()
		}
	}
	if err != nil && gapKind(err) == "" {
		return err
	}
	found := j.found
	j.found = nil
	for _, d := range slices.Backward(found) {
		w.pushStep(d, false)
	}
	if last := len(w.cur.Gaps) - 1; len(found) > 0 && last >= 0 && joined {
		w.s.log.Info("the missing archive is bridged from its older side", "gap", w.cur.Gaps[last].URL, "from", found[0].url)
		w.cur.Gaps = slices.Clone(w.cur.Gaps[:last])
	}
	return nil
}

// checkShift requests the first page of a paged feed again after its other pages were
// read. If it has changed, entries may have moved from page to page.
func (w walker) checkShift(ctx context.Context) (changed bool, err error) {
	j := w.s.job
	if j.sub == nil || j.dialect != Paged || len(j.steps) == 0 || w.s.profile.steady {
		return false, nil
	}
	q := j.sub.request
	q.etag, q.modified = j.sub.response.Header.Get("ETag"), j.sub.response.Header.Get("Last-Modified")
	q.from = nil
	d, err := w.s.readDocument(ctx, &w.cur, q)
	if err != nil || d.unmodified || d.hash == j.sub.hash {
		return false, err
	}
	if j.again {
		w.seen.addViolation(LossyShift, q.url, "the feed has changed twice while its pages were read; entries may be missing")
		return false, nil
	}
	w.startJob(d)
	w.s.job.again = true
	return true, nil
}

// startJob creates the job for a subscription document.
func (w walker) startJob(d *document) {
	s := w.s
	j := &job{
		sub: d, url: d.url, hash: d.hash, believe: d.updated, deletes: d.deletes, withheld: d.withheld,
		walked: w.cur.Walked, dialect: d.dialect, visited: map[hashedKey]bool{hashKey(withoutFragment(d.url)): true},
	}
	j.visited[hashKey(withoutFragment(d.response.URL.String()))] = true
	due := w.isRecheckDue(d.now)
	if due {
		j.recheck = s.cfg.RecheckArchives.Newest
	}
	j.full = due || w.cur.Walked == 0
	j.fresh, j.shared = d.fresh, d.known > 0
	walk := false
	switch d.dialect {
	case Complete:
	case Paged:
		walk = j.full || s.wantsAny(&w.cur, d)
	default:
		walk = true
	}
	s.job = j
	if walk {
		w.setFrontier(d)
	}
	if j.frontier != "" {
		j.recordVersions(d)
	}
	d.dropIDs()
}

// walkUntilStable walks back, and once more if a paged feed has changed meanwhile.
func (w walker) walkUntilStable(ctx context.Context) error {
	for {
		if err := w.walkBack(ctx); err != nil {
			return err
		}
		watched := w.s.job.watched
		if again, err := w.checkShift(ctx); err != nil || !again {
			w.reportOverrun()
			return err
		}
		w.s.job.watched = watched
	}
}

// retryGap requests a missing archive again. Its entries are published late.
func (w walker) retryGap(ctx context.Context, g gap) error {
	s := w.s
	s.job = &job{late: true, gapURL: g.URL, frontier: g.URL, visited: map[hashedKey]bool{}, dialect: w.cur.Dialect}
	err := w.walkBack(ctx)
	if err != nil || len(s.job.steps) == 0 {
		s.job = nil
	}
	return err
}
