package datareplication

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
)

// cursor is a position in a feed: before entity number Index of Page. It also has the
// evidence that the position is still the same, and the data to find it again when the
// page is gone (specification §5.2). It is stored as JSON with a version.
type cursor struct {
	Version int    `json:"v"`
	Page    string `json:"page,omitempty"`
	Index   int    `json:"index,omitempty"`
	// Came is the page whose next link led to Page, while nothing of Page has
	// been read, and Before is the page at whose end Last is, if that is an
	// earlier one because Came is empty.
	Came   string `json:"came,omitempty"`
	Before string `json:"before,omitempty"`
	// Empty is the number of empty pages that reading has passed since the last
	// entity or the end of the feed.
	Empty int `json:"empty,omitempty"`
	// Digest is over the first Index entities of Page, in hex.
	Digest digest `json:"digest,omitempty"`
	// ETag holds the ETag of Page when all of it had been read. Full holds the time of that
	// read, in Unix seconds. It is stored because an ETag is trusted for a limited time
	// only (see trustETag).
	ETag string `json:"etag,omitempty"`
	Full int64  `json:"full,omitempty"`

	// Last is the Content-ID of the entity before the position, on whatever page, as
	// storedID returns it. Modified is its time in Unix seconds. Ties are the newest
	// Content-IDs before it with the same time.
	Last     string   `json:"last,omitempty"`
	Modified int64    `json:"modified,omitempty"`
	Ties     idHashes `json:"tie_hashes,omitempty"`

	// Search is the search for the position where reading starts, until it is found.
	Search *seek `json:"search,omitempty"`
	// Gap is the value of Last at the last gap after which the configuration let reading
	// go on. If the same entity is lost again, reading halts.
	Gap string `json:"gap,omitempty"`

	// Snapshot is a snapshot that is read before the feed.
	Snapshot *snapshotPosition `json:"snapshot,omitempty"`
	// Owed is an entity of a snapshot that was left out because the feed must have it, until
	// it is read from the feed.
	Owed *owed `json:"owed,omitempty"`
}

const cursorVersion = 1

// A cursor is stored in a message of the bus, so its size is bounded: maxCursor bytes, and
// the URLs in it. It has at most three URLs while the feed is read, and six during a
// search for the start or while a snapshot is read. A configured start is part of the
// cursor until it is found. The feed's URLs are bounded by the limit of headers.
const maxCursor = 1 << 10

const (
	// maxTies bounds Ties. They are used after a gap only, to leave out entities that are
	// published already. If more entities have the same time, the sink filters the rest by
	// the IDs that it remembers.
	maxTies = 16
	// maxETag is the length of the longest ETag that is stored, in bytes of JSON. Without
	// an ETag, the newest page is read in full after a restart.
	maxETag = 100
)

func decodeCursor(c feed.Cursor) (cursor, error) {
	if len(c) == 0 {
		return cursor{Version: cursorVersion}, nil
	}
	var cur cursor
	if err := json.Unmarshal(c, &cur); err != nil {
		return cursor{}, feed.Permanent(fmt.Errorf("read the cursor: %w", err))
	}
	cur.Last, cur.Gap = storedID(cur.Last), storedID(cur.Gap)
	if cur.Owed != nil {
		cur.Owed.ID = storedID(cur.Owed.ID)
	}
	return cur, cur.validate()
}

// decodedCursor caches the cursor that was decoded last. An idle feed gets the same one at each poll.
type decodedCursor struct {
	stored feed.Cursor
	cursor cursor
}

// decode is [decodeCursor].
func (d *decodedCursor) decode(c feed.Cursor) (cursor, error) {
	if len(c) == 0 || !bytes.Equal(c, d.stored) {
		*d = decodedCursor{}
		cur, err := decodeCursor(c)
		if err != nil || cur.Search != nil || cur.Owed != nil {
			return cur, err // the caller may change what these point to; a Snapshot has a Search
		}
		*d = decodedCursor{c, cur}
	}
	cur := d.cursor
	cur.Ties = slices.Clone(cur.Ties) // see [cursor.advance]
	return cur, nil
}

// validate returns an error unless the cursor has a known version and names a position.
func (cur cursor) validate() error {
	switch sr, sn := cur.Search, cur.Snapshot; {
	case cur.Version != cursorVersion:
		return feed.Permanent(fmt.Errorf("the cursor has version %d and this program reads version %d; run the feedbridge that wrote it, or a newer one", cur.Version, cursorVersion))
	case sn != nil && (sr == nil || sn.Index == "" || sn.ID != "" && sr.From == nil || sn.Page < 0 || sn.Entity < 0 || sn.ID == "" && sn.Page+sn.Entity > 0):
		return feed.Permanent(errors.New("the cursor has no position in a snapshot"))
	case cur.Page == "" && (sr == nil || cur.Index > 0), cur.Index < 0, cur.Empty < 0, cur.Index > 0 && cur.Last == "":
		return feed.Permanent(errors.New("the cursor has no position"))
	case sr != nil && sr.ID != "" && sr.From == nil:
		return feed.Permanent(fmt.Errorf("the cursor has no time for the entity %s that it looks for", sr.ID))
	}
	return nil
}

// startCursor returns the cursor for a configured start.
func startCursor(start source.Start) cursor {
	cur := cursor{Search: newSeek(start)}
	if start.Snapshot != "" {
		cur.Snapshot = &snapshotPosition{Index: start.Snapshot}
	}
	return cur
}

func (cur cursor) encodeCursor() feed.Cursor {
	cur.Version = cursorVersion
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // URLs have ampersands
	if err := enc.Encode(cur); err != nil {
		panic(fmt.Sprintf("datareplication: %v", err)) // strings and integers
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// advance moves the position behind e, the next entity of Page. It overwrites the array of Ties,
// which a copy of the cursor from before may share: the caller of a [pageWalk] has one, and uses its
// Ties only if the walk has not moved.
func (cur *cursor) advance(e *feed.Entity) {
	cur.Digest = cur.Digest.addEntity(e)
	cur.Index++
	cur.Came, cur.Before, cur.Empty, cur.ETag, cur.Full = "", "", 0, "", 0
	at := e.Modified.Unix()
	switch {
	case cur.Last == "" || at != cur.Modified:
		cur.Ties = cur.Ties[:0]
	case len(cur.Ties) < 2*maxTies:
		cur.Ties = append(cur.Ties, hashID(cur.Last))
	default:
		cur.Ties = append(slices.Clone(cur.Ties.lastHashes(maxTies-1)), hashID(cur.Last))
	}
	cur.Last, cur.Modified = e.ID, at
}

// trimFields bounds the fields that advance lets grow.
func (cur *cursor) trimFields() {
	cur.Ties = cur.Ties.lastHashes(maxTies)
	cur.Last = storedID(cur.Last)
}

// startNextPage moves the position from the end of the page with the URL from to the start
// of the page with the URL next.
func (cur *cursor) startNextPage(from, next string) {
	if cur.Index == 0 {
		cur.Before = cur.pageBefore()
		cur.Empty++
	}
	cur.Came, cur.Page, cur.Index = from, next, 0
	cur.Digest, cur.ETag, cur.Full = 0, "", 0
}

// pageBefore returns the page at whose end Last is, while nothing of Page has
// been read; "" if nothing was read before.
func (cur *cursor) pageBefore() string {
	if cur.Last == "" {
		return ""
	}
	return cmp.Or(cur.Before, cur.Came)
}

// published are the newest IDs before the place.
func (cur *cursor) published() idHashes {
	return append(slices.Clone(cur.Ties), hashID(cur.Last))
}

// setFullRead records when Page was read to its end, and the ETag that it had.
// An ETag that is too long to be kept is as good as none.
func (cur *cursor) setFullRead(etag string, at time.Time) {
	cur.ETag, cur.Full = "", 0
	if keepsETag(etag) {
		cur.ETag, cur.Full = etag, at.Unix()
	}
}

func keepsETag(etag string) bool { return etag != "" && jsonSize(etag) <= maxETag }

// CursorInfo is a readable form of a cursor.
type CursorInfo struct {
	// Reading goes on before the entity with that index, from 0, of the page with that URL.
	Page  string `json:"page,omitempty"`
	Index int    `json:"index"`
	// Last is the Content-ID of the entity before it, and Modified its time in
	// Unix seconds.
	Last     string `json:"last_content_id,omitempty"`
	Modified int64  `json:"last_modified,omitempty"`
	// Snapshot is the position in a snapshot that is read first, if there is one: behind SnapshotRead of
	// SnapshotPages pages.
	Snapshot      string `json:"snapshot,omitempty"`
	SnapshotRead  int    `json:"-"`
	SnapshotPages int    `json:"-"`
	// Searching is the target of the search for the position, if there is a search.
	// SearchedPages is the number of pages that the search has passed, from the newest page
	// back, and SearchedBackTo the time of the oldest of them.
	Searching      string    `json:"searching,omitempty"`
	SearchedPages  int       `json:"searched_pages,omitempty"`
	SearchedBackTo time.Time `json:"searched_back_to,omitzero"`
}

// Describe returns the readable form of a cursor of this source.
func Describe(c feed.Cursor) (CursorInfo, error) {
	cur, err := decodeCursor(c)
	if err != nil {
		return CursorInfo{}, err
	}
	p := CursorInfo{Page: cur.Page, Index: cur.Index, Last: cur.Last, Modified: cur.Modified}
	switch {
	case cur.Snapshot != nil:
		p.Snapshot, p.SnapshotRead, p.SnapshotPages = cur.Snapshot.String(), cur.Snapshot.Page, cur.Snapshot.Pages
	case cur.Search != nil:
		found := cur.Search.progress()
		p.Searching, p.SearchedPages, p.SearchedBackTo = found.Target, found.Pages, found.Back
	}
	return p, nil
}

// Search returns the search for the position that the place is in; the zero Search if it is
// in none.
func (p CursorInfo) Search() Search {
	s := Search{Target: p.Searching, Pages: p.SearchedPages, Back: p.SearchedBackTo}
	if p.Searching != "" && p.Modified != 0 {
		s.Forward = time.Unix(p.Modified, 0).UTC()
	}
	return s
}

// ParseCursor returns the cursor for a position that a person names: one that
// [source.ParseStart] reads, or a cursor as it is stored.
func ParseCursor(position string) (feed.Cursor, error) {
	if strings.HasPrefix(position, "{") {
		if _, err := decodeCursor(feed.Cursor(position)); err != nil {
			return nil, err
		}
		return feed.Cursor(position), nil
	}
	start, err := source.ParseStart(position)
	if err != nil {
		return nil, err
	}
	cur := startCursor(start)
	cur.Search.Start = "" // it stays, whatever start the configuration has
	return cur.encodeCursor(), nil
}
