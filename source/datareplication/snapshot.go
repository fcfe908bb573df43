package datareplication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

const (
	// skew is how long before the creation of a snapshot reading of the feed starts. The
	// times of snapshots and of entities may come from different clocks, and entities are
	// put on a page some time after their Last-Modified.
	skew = time.Minute
)

// snapshot is a position in a snapshot, which is published before the feed. It is part of
// the cursor, whose other fields are the position in the feed after the snapshot.
//
// A snapshot is made while the feed grows, so the two overlap. An entity that both have
// must be published once, and must come from the feed: the feed also has its earlier
// versions, which would otherwise be published after it. So times divide them. Entities
// that were modified before the time From of the search come from the snapshot, and later
// ones from the feed. This needs no memory.
type snapshot struct {
	// Index is the configured URL of the index. Found is its URL after redirects, if that
	// is another one: a server may redirect to the own URL of its newest snapshot, which
	// can then be read to its end although newer snapshots appear.
	Index string `json:"index"`
	Found string `json:"found,omitempty"`
	// ID, Created and Pages are the id, the time and the number of pages of the snapshot.
	// ID is empty until the index has been read.
	ID      string    `json:"id,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Pages   int       `json:"pages,omitempty"`
	// Ready reports that the position in the feed after the snapshot is known.
	Ready bool `json:"ready,omitempty"`

	// The position is before entity number Entity of page number Page. Digest is over the
	// entities before it on that page.
	Page   int    `json:"page,omitempty"`
	Entity int    `json:"entity,omitempty"`
	Digest digest `json:"digest,omitempty"`
	// Published is the number of entities that were delivered.
	Published int `json:"published,omitempty"`
}

func (sn *snapshot) String() string {
	if sn.ID == "" {
		return "the snapshot " + sn.Index
	}
	return fmt.Sprintf("page %d of %d of the snapshot %s of %s", min(sn.Page+1, sn.Pages), sn.Pages, sn.ID, sn.Created.Format(time.RFC3339))
}

// again returns the snapshot in its state before its index was read.
func (sn *snapshot) again() snapshot {
	return snapshot{Index: sn.Index, Ready: sn.Ready, Published: sn.Published}
}

// owed is the oldest entity that was left out of a snapshot because the feed must have it.
type owed struct {
	ID       string `json:"id"`
	Modified int64  `json:"modified"`
}

// Snapshot describes a snapshot, from its index.
type Snapshot struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Pages   int       `json:"pages"`
}

// Snapshot reads the index of a snapshot, and none of its pages.
func (s *Source) Snapshot(ctx context.Context, index string) (Snapshot, []feed.Violation, error) {
	var seen sightings
	ix, err := readIndex(ctx, s.client, index, &seen)
	if err != nil {
		return Snapshot{}, nil, err
	}
	return Snapshot{ix.id, ix.created, len(ix.pages)}, seen, nil
}

// ReadSnapshot reads a snapshot to its end, without the feed, and calls take with every
// batch. Together with an error it returns the description of the snapshot, if its index was
// read.
func (s *Source) ReadSnapshot(ctx context.Context, index string, take func(feed.Batch) error) (Snapshot, error) {
	defer s.closePage()
	var read Snapshot
	never := int64(math.MaxInt64) // all entities come from the snapshot
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

// readSnapshot reads on in the snapshot of cur: its index, the position in the feed after
// it, or entities of one page. At the end of the snapshot, cur is that position.
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

// snapshotRead reads a part of a snapshot, for one call of Next.
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
	ix, err := readIndex(ctx, l.s.client, cmp.Or(sn.Found, sn.Index), &l.seen)
	if sn.Found != "" && statusOf(err) != 0 && errors.Is(err, feed.ErrPermanent) {
		// The snapshot is gone, or was there under a URL that holds for a while.
		ix, err = readIndex(ctx, l.s.client, sn.Index, &l.seen)
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

// checkReplaced requests the index again after a page is gone, because the snapshot may
// have been replaced. It returns err if it was not.
func (l *snapshotRead) checkReplaced(ctx context.Context, err error) error {
	was := *l.sn
	l.s.index = nil
	if _, replaced := l.index(ctx); replaced != nil || *l.sn != was {
		return replaced
	}
	return err
}

func (sn *snapshot) matches(ix *index) bool {
	// The URLs of the pages are not compared: they may be signed for each reader.
	return isStoredID(sn.ID, ix.id) && sn.Created.Equal(ix.created) && sn.Pages == len(ix.pages)
}

// startSnapshot starts to read the snapshot of the index. If the position in the feed is
// known already, it is not changed: the feed is read from the creation of the first
// snapshot, and a newer snapshot contributes only entities that were not modified since.
// So the deletes in between are not missed.
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

// findPlace searches for the position in the feed after the snapshot, before entities of
// the snapshot are published. So a feed that cannot be read is detected at once, and a
// feed that later does not reach back so far is known to have lost entities. The whole
// search happens in one call, because a stored one could continue at a page that is gone.
func (l *snapshotRead) findPlace(ctx context.Context) error {
	sr := l.cur.Search.again()
	start, err := l.s.seekBack(ctx, sr, 0, &l.seen)
	if gone, ok := errors.AsType[*lostPosition](err); ok {
		return &gone.violation // the next search may find the page again
	}
	switch {
	case errors.Is(err, errEmpty): // the feed starts behind the snapshot
	case err != nil:
		return err
	default:
		l.cur.Page, sr.Reached = start, !sr.Oldest
	}
	sr.Start = "" // from here on a change of the configured start has no effect
	l.cur.Search, l.sn.Ready = sr, true
	return nil
}

// readPage adds entities of the current page to the batch, until the page ends or the batch
// is full. Entities before an error are delivered first. The next call gets the same
// error, or can read on.
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
			// The request may have ended with the call of Next that made it.
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

// openPage requests a page of the snapshot and reads up to the position, unless the last
// call has left it open there.
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

// skipRead reads the entities before the position, and checks that they are those that
// were read before.
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

// takeEntities adds entities of the page to the batch until the page ends or the batch is
// full.
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

// entity returns the next entity of the page. Entities of snapshots may lack headers that
// entities of feeds must have. The ID is generated from the position then, and the time is
// that of the snapshot, so that they are the same at every reading. whole reports that the
// entity has its own ID and time. Without them it cannot be matched with the feed.
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
