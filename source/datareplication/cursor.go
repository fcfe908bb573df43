package datareplication

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/feedbridge/feedbridge/feed"
)

// cursor is a place in a feed: in front of entity number Index of Page. It
// carries what it takes to be sure of the place, and to find it again when the
// page is gone (specification §5.2). Its stored form is JSON with a version, which
// is 2 while there is a snapshot to be read first: earlier programs would pass
// over it.
type cursor struct {
	Version int    `json:"v"`
	Page    string `json:"page,omitempty"`
	Index   int    `json:"index,omitempty"`
	// Came is the page whose next link led to Page, while nothing of Page has
	// been read.
	Came string `json:"came,omitempty"`
	// Digest is over the first Index entities of Page, in hex.
	Digest digest `json:"digest,omitempty"`
	// ETag is that of Page when all of it had been read, and Full the time of
	// that, in Unix seconds. It is kept across restarts because an ETag is
	// trusted for a limited time only (see trustETag).
	ETag string `json:"etag,omitempty"`
	Full int64  `json:"full,omitempty"`

	// Last is the Content-ID of the entity before the place, wherever it
	// stood, Modified its time in Unix seconds, and Ties are the newest of
	// the Content-IDs before it with that same second.
	Last     string   `json:"last,omitempty"`
	Modified int64    `json:"modified,omitempty"`
	Ties     []string `json:"ties,omitempty"`

	// Search says what is being looked for, while the place where reading
	// starts is not known.
	Search *search `json:"search,omitempty"`
	// Gap is what Last was when the configuration let reading go on after a
	// gap. If reading gets stuck at that entity again, nothing was won.
	Gap string `json:"gap,omitempty"`

	// Snapshot is what is read before the feed goes on at the place.
	Snapshot *snapshot `json:"snapshot,omitempty"`
	// Owed is what a snapshot had and was not published because the feed has it
	// too, while the feed has not been read so far.
	Owed *owed `json:"owed,omitempty"`
}

const (
	cursorVersion   = 1
	snapshotVersion = 2
)

// maxTies and maxTiesBytes bound Ties, and with it the cursor, which has to fit
// into a message of the bus. A second with more entities than that is bounded
// by the sink's memory of IDs.
const (
	maxTies      = 100
	maxTiesBytes = 16 << 10
)

func decodeCursor(c feed.Cursor) (cursor, error) {
	if len(c) == 0 {
		return cursor{Version: cursorVersion}, nil
	}
	var cur cursor
	if err := json.Unmarshal(c, &cur); err != nil {
		return cursor{}, feed.Permanent(fmt.Errorf("read the cursor: %w", err))
	}
	switch sr, sn := cur.Search, cur.Snapshot; {
	case cur.Version != cursorVersion && cur.Version != snapshotVersion:
		return cursor{}, feed.Permanent(fmt.Errorf("the cursor has version %d and this program reads versions up to %d", cur.Version, snapshotVersion))
	case (sn != nil) != (cur.Version == snapshotVersion),
		sn != nil && (sr == nil || sn.Index == "" || sn.ID != "" && sr.From == nil || sn.Page < 0 || sn.Entity < 0 || sn.ID == "" && sn.Page+sn.Entity > 0):
		return cursor{}, feed.Permanent(errors.New("the cursor names no place in a snapshot"))
	case cur.Page == "" && (sr == nil || cur.Index > 0), cur.Index < 0, cur.Index > 0 && cur.Last == "":
		return cursor{}, feed.Permanent(errors.New("the cursor names no place"))
	case sr != nil && sr.ID != "" && sr.From == nil:
		return cursor{}, feed.Permanent(fmt.Errorf("the cursor has no time for the entity %s that it looks for", sr.ID))
	}
	return cur, nil
}

// startCursor returns the cursor for a configured start.
func startCursor(start Start) cursor {
	cur := cursor{Search: newSearch(start)}
	if start.Snapshot != "" {
		cur.Snapshot = &snapshot{Index: start.Snapshot}
	}
	return cur
}

func (cur cursor) encode() feed.Cursor {
	cur.Version = cursorVersion
	if cur.Snapshot != nil {
		cur.Version = snapshotVersion
	}
	data, err := json.Marshal(cur)
	if err != nil {
		panic(fmt.Sprintf("datareplication: %v", err)) // strings and integers
	}
	return data
}

// advance moves the place behind e, the next entity of Page.
func (cur *cursor) advance(e *feed.Entity) {
	cur.Digest = cur.Digest.add(e)
	cur.Index++
	cur.Came, cur.ETag, cur.Full = "", "", 0
	at := e.Modified.Unix()
	switch {
	case cur.Last == "" || at != cur.Modified:
		cur.Ties = nil
	case len(cur.Ties) < 2*maxTies:
		cur.Ties = append(cur.Ties, cur.Last)
	default:
		cur.Ties = append(slices.Clone(cur.Ties[maxTies+1:]), cur.Last)
	}
	cur.Last, cur.Modified = e.ID, at
}

// trim shortens what advance lets grow.
func (cur *cursor) trim() {
	first, size := len(cur.Ties), 0
	for first > 0 && len(cur.Ties)-first < maxTies {
		if size += len(cur.Ties[first-1]); size > maxTiesBytes {
			break
		}
		first--
	}
	cur.Ties = cur.Ties[first:]
}

// turn moves the place from the end of the page whose name is from to the start
// of the page after it.
func (cur *cursor) turn(from, next string) {
	cur.Came, cur.Page, cur.Index = from, next, 0
	cur.Digest, cur.ETag, cur.Full = 0, "", 0
}

// published are the newest IDs before the place.
func (cur *cursor) published() []string {
	return append(slices.Clone(cur.Ties), cur.Last)
}

// digest tells whether the entities before a place are still the same. It
// covers what makes the message, and not the order of headers, which some
// producers change from answer to answer.
type digest uint64

func (d digest) add(e *feed.Entity) digest {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(d))
	binary.LittleEndian.PutUint64(buf[8:], uint64(e.Modified.Unix()))
	var h xxhash.Digest
	h.Reset()
	_, _ = h.Write(buf[:])
	_, _ = h.WriteString(e.ID)
	_, _ = h.WriteString(string(e.Op))
	_, _ = h.Write(e.Body)
	return digest(h.Sum64())
}

func (d digest) MarshalText() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(d), 16), nil
}

func (d *digest) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*d = digest(n)
	return err
}

// Place is a cursor put into words, for people.
type Place struct {
	// Page and Index say where reading goes on: in front of that entity,
	// counted from 0, of the page with that URL.
	Page  string `json:"page,omitempty"`
	Index int    `json:"index"`
	// Last is the Content-ID of the entity before it, and Modified its time in
	// Unix seconds.
	Last     string `json:"last_content_id,omitempty"`
	Modified int64  `json:"last_modified,omitempty"`
	// Snapshot says what place in a snapshot is read before that, if any is.
	Snapshot string `json:"snapshot,omitempty"`
	// Searching says what is being looked for, if anything is.
	Searching string `json:"searching,omitempty"`
}

// Describe says what place a cursor of this source means.
func Describe(c feed.Cursor) (Place, error) {
	cur, err := decodeCursor(c)
	if err != nil {
		return Place{}, err
	}
	p := Place{Page: cur.Page, Index: cur.Index, Last: cur.Last, Modified: cur.Modified}
	switch {
	case cur.Snapshot != nil:
		p.Snapshot = cur.Snapshot.String()
	case cur.Search != nil:
		p.Searching = cur.Search.String()
	}
	return p, nil
}

// ParseCursor returns the cursor for a position that a person names: one that
// [ParseStart] reads, or a cursor as it is stored.
func ParseCursor(position string) (feed.Cursor, error) {
	if strings.HasPrefix(position, "{") {
		if _, err := decodeCursor(feed.Cursor(position)); err != nil {
			return nil, err
		}
		return feed.Cursor(position), nil
	}
	start, err := ParseStart(position)
	if err != nil {
		return nil, err
	}
	cur := startCursor(start)
	cur.Search.Start = "" // it stays, whatever start the configuration has
	return cur.encode(), nil
}
