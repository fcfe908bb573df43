package syndication

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// walker finds the older documents of a feed and adds them to the pending poll.
type walker struct{ *nextCall }

// walkBack reads older documents until it reaches a published one, the oldest, a
// missing one, or a limit. It returns an error if a document cannot be read at the
// moment; the next call continues there.
func (w walker) walkBack(ctx context.Context) error {
	s, pending := w.s, w.s.pending
	for pending.frontier != "" {
		url := pending.frontier
		switch known := w.cur.hasArchive(url); {
		case pending.visited[hashKey(url)]:
			w.seen.addViolation(kindLoop, url, "the links to older documents lead in a circle")
			pending.frontier = ""
			return nil
		case known, w.cur.gapIndex(url) >= 0 && url != pending.gapURL:
			pending.frontier = ""
			pending.behind = w.cur.archivesUpTo(url)
			pending.connected = true // or a gap, which was reported
			return w.bridgeGap(ctx, !known)
		default:
			if err := w.checkLimits(url); err != nil {
				pending.lacking, pending.connected = true, true
				w.recordGap(url, kindWalkLimit, err)
				pending.frontier = ""
				return nil
			}
		}
		d, err := w.readOlder(ctx, w.olderRequest(url))
		if err != nil {
			return w.endAtMissing(ctx, url, err)
		}
		pending.visited[hashKey(url)] = true
		if final := withoutFragment(d.response.URL.String()); final != url {
			pending.visited[hashKey(final)] = true
		}
		w.cur.endWait(url)
		w.pushStep(d)
		s.search.Store(&search{len(pending.steps), d.meta.Updated.Time})
		if w.setFrontier(d); pending.frontier == "" && pending.dialect != Paged && len(w.cur.Archives) > 0 && !pending.isLate() {
			// None of the archives is known: their URLs have changed.
			w.cur.Archives, pending.behind = nil, nil
		}
		if pending.dialect == Paged && !pending.full && !s.wantsAny(&w.cur, d) {
			pending.frontier = ""
		}
	}
	return nil
}

// checkLimits returns an error if a walk may not read another document. url is that of the
// next.
func (w walker) checkLimits(url string) error {
	s, pending := w.s, w.s.pending
	if pending.estimatedBytes > max(s.cfg.Bounds.Memory, leastWalk) {
		later := "the older ones are read later"
		if shortURL(url) == "" {
			later = "the older ones are not read, because URLs of more than 500 bytes are not stored"
		}
		return fmt.Errorf("the URLs of %d documents take %d bytes, and a walk may not hold more; %s", len(pending.steps), pending.estimatedBytes, later)
	}
	if len(pending.steps) >= s.cfg.Bounds.Documents {
		return fmt.Errorf("a walk reads at most %d documents; the older ones are read later", len(pending.steps))
	}
	return nil
}

// endAtMissing ends the walk at a document that is missing because of err. It returns an error
// if the document is waited for.
func (w walker) endAtMissing(ctx context.Context, url string, err error) error {
	pending := w.s.pending
	kind := gapKind(err)
	if !pending.isLate() {
		kind, err = w.awaitOrSkip(ctx, url, err)
	}
	switch {
	case kind == "":
		return err
	case pending.dialect == Paged:
		pending.lacking = true
		w.seen.addViolation(kindIncomplete, url, "a page is missing, and with it the older ones: %v", err)
	default:
		w.recordGap(url, kind, err)
	}
	pending.frontier = ""
	pending.connected = true // a gap was reported
	return w.bridgeGap(ctx, true)
}

// setFrontier continues the walk at the next older document that a document links to.
func (w walker) setFrontier(d *document) {
	pending := w.s.pending
	url, rel := w.s.profile.olderLink(&d.meta, pending.dialect)
	pending.frontier, pending.permanent = url, pending.dialect == Paged && rel == "next-archive"
	w.recordMissingLink(d)
}

// reportOverrun reports that entries may have come and gone between two polls: none of
// the entries that the feed has now, as far back as it could be read, was there at the
// last poll.
func (w walker) reportOverrun() {
	pending := w.s.pending
	if pending.connected || pending.frontier != "" || pending.fresh == 0 {
		return
	}
	pending.connected = true
	w.seen.addViolation(kindPossibleOverrun, pending.url, "none of the %d entries was there at the last poll, and no link leads to those that were: entries in between may have been missed; poll more often", pending.fresh)
}

// pushStep adds a document to those to publish. If there are too many in memory, it drops
// the entries of those that are published last.
func (w walker) pushStep(d *document) {
	pending := w.s.pending
	st := &step{url: d.url, key: cmp.Or(d.permanentURL(pending.dialect), d.url), doc: d, permanent: pending.permanent}
	pending.fresh += d.fresh
	pending.connected = pending.connected || d.known > 0
	pending.steps = append(pending.steps, st)
	pending.estimatedBytes += int64(len(st.url) + len(st.key) + stepBytes)
	d.depth = len(pending.steps)
	if !pending.isLate() {
		pending.recordVersions(d)
	}
	d.dropIDs()
	pending.dropToLimit(w.s.cfg.Bounds.Memory)
	w.s.share.releaseUnneeded(pending.bufferedBytes())
}

// bridgeGap looks for the archives behind a gap from the older side: the newest
// published archive may now have a link to a newer one.
func (w walker) bridgeGap(ctx context.Context, gap bool) error {
	s, pending := w.s, w.s.pending
	rel := s.profile.newer
	if rel == "" {
		rel = "next-archive"
	}
	if !gap || pending.isLate() || w.cur.Newest == "" || pending.dialect != Archived {
		return nil
	}
	d, err := w.readOlder(ctx, w.olderRequest(w.cur.Newest))
	defer func() { pending.found = nil }()
	size, joined := 0, true
	for err == nil {
		next, _ := d.meta.Link(rel)
		url := withoutFragment(next.Href)
		if int64(size) > max(s.cfg.Bounds.Memory, leastWalk) {
			joined = false
			break
		}
		if url == "" || pending.visited[hashKey(url)] || w.cur.hasArchive(url) || len(pending.steps)+len(pending.found) >= s.cfg.Bounds.Documents {
			break
		}
		pending.visited[hashKey(url)] = true
		if d, err = w.readOlder(ctx, w.olderRequest(url)); err == nil {
			pending.found = append(pending.found, d)
			size += d.memorySize()
		}
	}
	if err != nil && gapKind(err) == "" {
		return err
	}
	found := pending.found
	pending.found = nil
	for _, d := range slices.Backward(found) {
		w.pushStep(d)
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
	pending := w.s.pending
	if pending.sub == nil || pending.dialect != Paged || len(pending.steps) == 0 || w.s.profile.steady {
		return false, nil
	}
	q := pending.sub.request
	q.etag, q.modified = pending.sub.response.Header.Get("ETag"), pending.sub.response.Header.Get("Last-Modified")
	q.from = nil
	d, err := w.s.readDocument(ctx, &w.cur, q)
	if err != nil || d.unmodified || d.hash == pending.sub.hash {
		return false, err
	}
	if pending.again {
		w.seen.addViolation(kindLossyShift, q.url, "the feed has changed twice while its pages were read; entries may be missing")
		return false, nil
	}
	w.startPending(d, !pending.connected)
	w.s.pending.again = true
	return true, nil
}

// startPending creates the pending poll for a subscription document. If watched is set, it reports
// that entries may have come and gone since the last poll.
func (w walker) startPending(d *document, watched bool) {
	s := w.s
	pending := &pendingPoll{
		subscription: subscription{sub: d, url: d.url, hash: d.hash, believe: d.updated, deletes: d.deletes, withheld: d.withheld},
		dialect:      d.dialect, ending: ending{walked: w.cur.Walked}, walk: walk{visited: map[hashedKey]bool{hashKey(withoutFragment(d.url)): true}, behind: w.cur.Archives},
	}
	pending.visited[hashKey(withoutFragment(d.response.URL.String()))] = true
	if w.isRecheckDue(d.now) || w.cur.Walked == 0 {
		pending.full, pending.walked = true, d.now.Unix()
	}
	pending.fresh, pending.connected = d.fresh, !watched || d.known > 0
	s.pending = pending
	if d.dialect != Complete && (d.dialect != Paged || pending.full || s.wantsAny(&w.cur, d)) {
		w.setFrontier(d)
	}
	if pending.frontier != "" {
		pending.recordVersions(d)
	}
	d.dropIDs()
}

// walkUntilStable walks back, and once more if a paged feed has changed meanwhile.
func (w walker) walkUntilStable(ctx context.Context) error {
	for {
		if err := w.walkBack(ctx); err != nil {
			return err
		}
		if again, err := w.checkShift(ctx); err != nil || !again {
			w.reportOverrun()
			return err
		}
	}
}

// retryGap requests a missing archive again. Its entries are published late.
func (w walker) retryGap(ctx context.Context, g gap) error {
	s := w.s
	s.pending = &pendingPoll{gapURL: g.URL, dialect: w.cur.Dialect, walk: walk{frontier: g.URL, visited: map[hashedKey]bool{}}, overrunWatch: overrunWatch{connected: true}}
	err := w.walkBack(ctx)
	if err != nil || len(s.pending.steps) == 0 {
		s.pending = nil
	}
	return err
}
