package datareplication

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

const (
	// skew is how long before the creation of a snapshot the feed is read from.
	// The clock that dates a snapshot need not be the one that dates entities,
	// and entities are put on a page some time after the time that they bear.
	skew = time.Minute
	// maxIndex is how large the index of a snapshot may be, in bytes. It is held
	// in memory; pages are not.
	maxIndex = 16 << 20
	// longestAddress is how long the URL of an index, that of one of its pages, and
	// the id of a snapshot may be, in bytes.
	longestAddress = 8 << 10
)

// snapshot is a place in a snapshot, which is published before the feed is read
// on. It is part of the cursor, whose other fields say where the feed goes on.
//
// A snapshot is made while the feed grows, so the two overlap. An entity that
// both have must not come twice, and one that the feed brings must not come from
// the snapshot: the feed has its predecessors too, which would then stand behind
// it. So dates divide them: what was modified before the time From of the search
// comes from the snapshot, and what was modified later from the feed. That takes
// no memory.
type snapshot struct {
	// Index is the URL of the index as configured. Found is where it was after
	// redirects, if elsewhere: a server that redirects from its newest snapshot
	// to that one's own URL lets it be read to its end, whatever comes after.
	Index string `json:"index"`
	Found string `json:"found,omitempty"`
	// ID, Created and Pages are the snapshot's, and how many pages it has; ID is
	// empty until the index has been read.
	ID      string    `json:"id,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Pages   int       `json:"pages,omitempty"`
	// Ready says that the place is known where the feed goes on.
	Ready bool `json:"ready,omitempty"`

	// The place is in front of entity number Entity of page number Page, and
	// Digest is over the entities before it on that page.
	Page   int    `json:"page,omitempty"`
	Entity int    `json:"entity,omitempty"`
	Digest digest `json:"digest,omitempty"`
	// Published is how many entities were handed out.
	Published int `json:"published,omitempty"`
}

func (sn *snapshot) String() string {
	if sn.ID == "" {
		return "the snapshot " + sn.Index
	}
	return fmt.Sprintf("page %d of %d of the snapshot %s of %s", min(sn.Page+1, sn.Pages), sn.Pages, sn.ID, sn.Created.Format(time.RFC3339))
}

// again returns the snapshot as it was before its index was read.
func (sn *snapshot) again() snapshot {
	return snapshot{Index: sn.Index, Ready: sn.Ready, Published: sn.Published}
}

// owed is an entity that was left out of a snapshot because the feed has to have
// it: the oldest of all such.
type owed struct {
	ID       string `json:"id"`
	Modified int64  `json:"modified"`
}

// index is what a snapshot consists of.
type index struct {
	url     string // after redirects
	id      string
	created time.Time
	// pages are the URLs of the pages as written; base is what they are relative to.
	// They are resolved one at a time: behind a redirect to a long URL, a small index
	// would become gigabytes.
	pages []string
	base  *url.URL
	// latest is the newest time that created can have been.
	latest time.Time
}

// page returns the URL of a page.
func (ix *index) page(n int) (string, error) {
	ref, err := url.Parse(ix.pages[n])
	if err != nil {
		return "", broken(BadIndex, page.Name(ix.base), "page %d in the index of the snapshot is %q, which is no URL", n, excerpt(ix.pages[n]))
	}
	at := ix.base.ResolveReference(ref).String()
	if len(at) > longestAddress {
		return "", broken(BadIndex, page.Name(ix.base), "page %d in the index of the snapshot has a URL of %d bytes, where %d are the most: %s", n, len(at), longestAddress, excerpt(at))
	}
	return at, nil
}

// from is where the feed goes on after the snapshot, in Unix seconds. Feeds have
// whole seconds (case 140). A clock that is ahead must not make the feed start
// later than now. It is nil, the beginning of the feed, if there was nothing yet
// that a snapshot could have: one of the time zero, without pages, says so.
func (ix *index) from() *int64 {
	created := ix.created
	if created.After(ix.latest) {
		created = ix.latest
	}
	if len(ix.pages) == 0 && created.Unix() <= 0 {
		return nil
	}
	from := created.Add(-skew).Unix()
	return &from
}

// Snapshot is what the index of a snapshot says.
type Snapshot struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Pages   int       `json:"pages"`
}

// Snapshot reads the index of a snapshot, and no more.
func (s *Source) Snapshot(ctx context.Context, index string) (Snapshot, []feed.Violation, error) {
	var seen sightings
	ix, err := s.getIndex(ctx, index, &seen)
	if err != nil {
		return Snapshot{}, nil, err
	}
	return Snapshot{ix.id, ix.created, len(ix.pages)}, seen, nil
}

// ReadSnapshot reads a snapshot to its end, without the feed behind it, and hands
// every batch to take. What it returns is as far as it got.
func (s *Source) ReadSnapshot(ctx context.Context, index string, take func(feed.Batch) error) (Snapshot, error) {
	defer s.closePage()
	var read Snapshot
	never := int64(math.MaxInt64) // there is no feed that has any of it
	cur := cursor{Search: &seek{From: &never}, Snapshot: &snapshot{Index: index, Ready: true}}
	for cur.Snapshot != nil {
		sn := cur.Snapshot
		batch, err := s.readSnapshot(ctx, cur)
		read = Snapshot{sn.ID, sn.Created, sn.Pages}
		if err == nil {
			err = take(batch)
		}
		if err == nil {
			cur, err = decodeCursor(batch.Cursor)
		}
		if err != nil {
			return read, err
		}
	}
	return read, nil
}

// readSnapshot reads on in the snapshot of cur: its index, the place where the feed goes
// on, or entities of one page. At the snapshot's end, cur is a place in the feed.
func (s *Source) readSnapshot(ctx context.Context, cur cursor) (feed.Batch, error) {
	l := &snapshotRead{s: s, cur: cur, sn: cur.Snapshot}
	ix, err := l.index(ctx)
	if err != nil {
		return feed.Batch{}, err
	}
	switch {
	case !l.sn.Ready:
		err = l.findPlace(ctx)
	case l.sn.Page < len(ix.pages):
		if err = l.readPage(ctx, ix); isGone(err) {
			err = l.checkReplaced(ctx, err)
		}
	}
	if err != nil {
		return feed.Batch{}, err
	}
	if l.sn.Ready && l.sn.Page == len(ix.pages) {
		s.log.Info("the snapshot has been read; going on with the feed", "snapshot", l.sn.ID, "entities", l.sn.Published, "from", l.cur.Search.String())
		s.index, l.cur.Snapshot = nil, nil
	}
	return feed.Batch{Entities: l.entities, Cursor: l.cur.encode(), More: true, Violations: l.seen}, nil
}

// snapshotRead is one step through a snapshot.
type snapshotRead struct {
	s        *Source
	cur      cursor
	sn       *snapshot // cur's
	seen     sightings
	entities []feed.Entity
	size     int
}

// index returns the index of the snapshot that is being read.
func (l *snapshotRead) index(ctx context.Context) (*index, error) {
	sn := l.sn
	if ix := l.s.index; ix != nil && isStoredID(sn.ID, ix.id) && ix.created.Equal(sn.Created) {
		return ix, nil
	}
	ix, err := l.s.getIndex(ctx, cmp.Or(sn.Found, sn.Index), &l.seen)
	if sn.Found != "" && statusOf(err) != 0 && errors.Is(err, feed.ErrPermanent) {
		// The snapshot is gone, or was there under a URL that holds for a while.
		ix, err = l.s.getIndex(ctx, sn.Index, &l.seen)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case sn.ID == "", sn.Published == 0 && !sn.matches(ix):
		l.startSnapshot(ix)
	case !sn.matches(ix):
		replaced := lostForGood(SnapshotReplaced, ix.url, "the snapshot is %s of %s with %d pages now, and was %s of %s with %d pages when %d entities of it were published",
			ix.id, ix.created.Format(time.RFC3339Nano), len(ix.pages), sn.ID, sn.Created.Format(time.RFC3339Nano), sn.Pages, sn.Published)
		if ix.created.After(sn.Created) {
			return nil, replaced.forCertain()
		}
		return nil, replaced // a lagging server has the snapshot before, too
	}
	l.s.index = ix
	return ix, nil
}

// checkReplaced asks for the index again when one of its pages is gone: the snapshot may be.
func (l *snapshotRead) checkReplaced(ctx context.Context, err error) error {
	was := *l.sn
	l.s.index = nil
	if _, replaced := l.index(ctx); replaced != nil || *l.sn != was {
		return replaced
	}
	return err
}

func (sn *snapshot) matches(ix *index) bool {
	// Not the URLs of the pages: they may be signed anew for each reader.
	return isStoredID(sn.ID, ix.id) && sn.Created.Equal(ix.created) && sn.Pages == len(ix.pages)
}

// startSnapshot takes up the snapshot that the index names. If the place in the feed is
// known already, it stays: the feed goes on from the creation of the first
// snapshot, and of a newer one only what was not modified since comes from it. So
// nothing that was deleted in between is missed.
func (l *snapshotRead) startSnapshot(ix *index) {
	sn := l.sn
	found := ""
	if ix.url != sn.Index {
		found = ix.url
	}
	*sn = snapshot{Index: sn.Index, Found: found, ID: storedID(ix.id), Created: ix.created, Pages: len(ix.pages), Ready: sn.Ready, Published: sn.Published}
	if !sn.Ready {
		l.cur.Search.From, l.cur.Search.Early = ix.from(), int64(skew/time.Second)
	}
	l.s.log.Info("reading a snapshot", "snapshot", sn.ID, "created", sn.Created, "pages", sn.Pages)
}

// findPlace looks in the feed for the place where it goes on after the snapshot,
// before anything of that is published: a feed that does not reach back so far
// later is known to have lost entities, and one that cannot be read is found out
// at once. It is one search, however long: its cursor could lead to a page that is
// gone.
func (l *snapshotRead) findPlace(ctx context.Context) error {
	sr := l.cur.Search.again()
	start, err := l.s.seekBack(ctx, sr, 0, &l.seen)
	if gone, ok := errors.AsType[*lostPosition](err); ok {
		return &gone.violation // pages come and go; the next search may have more luck
	}
	switch {
	case errors.Is(err, errEmpty): // the feed starts behind the snapshot
	case err != nil:
		return err
	default:
		l.cur.Page, sr.Reached = start, !sr.Oldest
	}
	sr.Start = "" // from here on it goes by the cursor, whatever start is configured
	l.cur.Search, l.sn.Ready = sr, true
	return nil
}

// readPage reads entities of the page of the place, as many as a batch takes.
// What came before an error is handed out; the next call meets the error again,
// or finds it cured.
func (l *snapshotRead) readPage(ctx context.Context, ix *index) error {
	s, sn := l.s, l.sn
	at, err := ix.page(sn.Page)
	if err != nil {
		return err
	}
	kept, first := s.at != nil, sn.Entity
	for {
		ended := false
		err := l.openPage(ctx, at)
		if err == nil {
			ended, err = l.takeEntities(ctx, s.at)
		}
		switch {
		case err != nil && kept && sn.Entity == first:
			// The request may have ended with the call that made it.
			s.closePage()
			kept = false
			continue
		case err != nil && sn.Entity == first:
			return err
		case err != nil:
			s.closePage()
		case ended:
			s.closePage()
			sn.Page, sn.Entity, sn.Digest = sn.Page+1, 0, 0
		}
		return nil
	}
}

// open gets a page of the snapshot, up to the place, unless it is open there from
// the last call.
func (l *snapshotRead) openPage(ctx context.Context, at string) error {
	s, sn := l.s, l.sn
	if s.at != nil {
		return nil
	}
	resp, err := s.client.Do(ctx, source.Request{Method: http.MethodGet, URL: at})
	if err != nil {
		return fmt.Errorf("%s: %w", sn, err)
	}
	if resp.Status == http.StatusNoContent {
		resp.Body.Close()
		return fmt.Errorf("%s: GET %s: %w", sn, at, errNoContent)
	}
	boundary, err := page.ParseBoundary(resp.Header.Get("Content-Type"), page.Name(resp.URL))
	if err != nil {
		resp.Body.Close()
		return fmt.Errorf("%s: %w", sn, err)
	}
	s.at = &openPage{
		head:     head{Header: page.Header{Self: at, Boundary: boundary}},
		body:     resp.Body,
		parts:    page.NewReader(resp.Body, boundary, page.Name(resp.URL), int(s.cfg.Limits.Entity)),
		reserved: &s.reserved,
	}
	if err := l.skipRead(ctx, s.at); err != nil {
		s.closePage()
		return err
	}
	return nil
}

// skipRead reads up to the place and makes sure that it is the place.
func (l *snapshotRead) skipRead(ctx context.Context, p *openPage) error {
	var sum digest
	for p.parsed < l.sn.Entity {
		used := l.s.reserved.used
		e, _, _, err := l.entity(ctx, p, true)
		if errors.Is(err, errPageEnd) {
			break
		}
		if err != nil {
			return err
		}
		sum = sum.add(&e)
		l.s.reserved.shrink(used)
	}
	if p.parsed < l.sn.Entity || sum != l.sn.Digest {
		return lostForGood(SnapshotReplaced, p.Self, "the first %d entities of %s are not those that were read before", l.sn.Entity, l.sn).forCertain()
	}
	return nil
}

// takeEntities takes entities from the page until it ends or the batch is full.
func (l *snapshotRead) takeEntities(ctx context.Context, p *openPage) (ended bool, err error) {
	sn := l.sn
	for {
		if len(l.entities) > 0 && (l.size >= l.s.cfg.BatchBytes || len(l.entities) == l.s.cfg.BatchEntities) {
			return false, nil
		}
		used := l.s.reserved.used
		e, whole, violations, err := l.entity(ctx, p, len(l.entities) == 0)
		switch {
		case errors.Is(err, errPageEnd):
			return true, nil
		case errors.Is(err, errNoMemory):
			return false, nil
		}
		if err != nil {
			return false, err
		}
		sn.Entity++
		sn.Digest = sn.Digest.add(&e)
		if at := e.Modified.Unix(); whole && at >= *l.cur.Search.From {
			if l.cur.Owed == nil || at < l.cur.Owed.Modified {
				l.cur.Owed = &owed{strings.Clone(storedID(e.ID)), at}
			}
			l.s.reserved.shrink(used)
			continue
		}
		l.seen.add(violations...)
		l.entities = append(l.entities, e)
		l.size += e.Size()
		sn.Published++
	}
}

// entity returns the next entity of the page. Snapshots may leave out what the
// entities of feeds must have. What is missing is made up, and the same at every
// reading: the ID from the place, the time from the snapshot's. Whole says that
// the entity has an ID and a time of its own, without which nobody could tell
// that the feed has it too.
func (l *snapshotRead) entity(ctx context.Context, p *openPage, wait bool) (e feed.Entity, whole bool, violations []feed.Violation, err error) {
	part, err := p.part(ctx, wait)
	if err != nil {
		return feed.Entity{}, false, nil, err
	}
	f := page.ReadFields(part)
	whole = f.ID != "" && f.Modified != ""
	var seen sightings
	if f.Modified == "" {
		f.Modified = l.sn.Created.UTC().Format(http.TimeFormat)
		if !p.undated {
			p.undated = true
			seen.add(violation(page.MissingEntityTime, p.Self, "entity %d has no Last-Modified; it and those like it on the page get the time of the snapshot, %s", p.parsed, f.Modified))
		}
	}
	f.ID = cmp.Or(f.ID, fmt.Sprintf("%s/%d/%d", l.sn.ID, l.sn.Page, p.parsed))
	f.Operation = cmp.Or(f.Operation, string(feed.Put))
	e, violations, err = f.Entity(part, p.Self, p.parsed)
	p.parsed++
	return e, whole, append(seen, violations...), err
}

// getIndex reads the index of a snapshot.
func (s *Source) getIndex(ctx context.Context, at string, seen *sightings) (*index, error) {
	resp, err := s.client.Do(ctx, source.Request{Method: http.MethodGet, URL: at})
	if err != nil {
		return nil, fmt.Errorf("the index of the snapshot: %w", err)
	}
	defer resp.Body.Close()
	if resp.Status == http.StatusNoContent {
		return nil, fmt.Errorf("the index of the snapshot: GET %s: %w; there may be no snapshot yet", at, errNoContent)
	}
	name := page.Name(resp.URL)
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxIndex+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxIndex {
		return nil, broken(BadIndex, name, "the index of the snapshot has more than %d bytes", maxIndex)
	}
	var doc struct {
		ID      *string   `json:"id"`
		Created *string   `json:"createdAt"`
		Pages   []*string `json:"pages"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, broken(BadIndex, name, "the answer, %q, is not the index of a snapshot: %v", excerpt(resp.Header.Get("Content-Type")), err)
	}
	switch {
	case doc.ID == nil || *doc.ID == "":
		return nil, broken(BadIndex, name, "the index of the snapshot has no id")
	case len(*doc.ID) > longestAddress:
		return nil, broken(BadIndex, name, "the index of the snapshot has an id of %d bytes, where %d are the most", len(*doc.ID), longestAddress)
	case doc.Created == nil:
		return nil, broken(BadIndex, name, "the index of the snapshot has no createdAt, so the place in the feed that goes with it cannot be told")
	case doc.Pages == nil:
		return nil, broken(BadIndex, name, "the index of the snapshot has no pages; one that is empty has an empty list")
	}
	created, err := time.Parse(time.RFC3339, *doc.Created)
	if year := created.UTC().Year(); err != nil || year < 1 || year > 9999 {
		return nil, broken(BadIndex, name, "the index of the snapshot has the createdAt %q, which is not like 2026-01-01T00:00:00Z", excerpt(*doc.Created))
	}
	ix := &index{url: resp.URL.String(), id: *doc.ID, created: created.UTC(), latest: resp.Date, base: resp.URL}
	if len(ix.url) > longestAddress {
		return nil, broken(BadIndex, name, "the index of the snapshot has a URL of %d bytes, where %d are the most", len(ix.url), longestAddress)
	}
	twice, relative := make(map[[sha256.Size]byte]bool, len(doc.Pages)), false
	for i, link := range doc.Pages {
		if link == nil || *link == "" {
			return nil, broken(BadIndex, name, "page %d in the index of the snapshot has no URL", i)
		}
		ref, err := url.Parse(*link)
		if err != nil {
			return nil, broken(BadIndex, name, "page %d in the index of the snapshot is %q, which is no URL", i, excerpt(*link))
		}
		if !ref.IsAbs() && !relative {
			relative = true
			seen.add(violation(RelativePage, name, "page %d in the index of the snapshot is %s; it should be a whole URL, and so should those like it", i, excerpt(*link)))
		}
		ix.pages = append(ix.pages, *link)
		page, err := ix.page(i)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256([]byte(page)); twice[sum] {
			return nil, broken(BadIndex, name, "the index of the snapshot names the page %s twice", excerpt(page))
		} else {
			twice[sum] = true
		}
	}
	return ix, nil
}
