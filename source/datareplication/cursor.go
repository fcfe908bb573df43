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
// page is gone (specification §5.2). Its stored form is JSON with a version.
type cursor struct {
	Version int    `json:"v"`
	Page    string `json:"page,omitempty"`
	Index   int    `json:"index,omitempty"`
	// Came is the page whose next link led to Page, while nothing of Page has
	// been read.
	Came string `json:"came,omitempty"`
	// Digest is over the first Index entities of Page, in hex.
	Digest digest `json:"digest,omitempty"`
	// ETag is that of Page when all of it had been read.
	ETag string `json:"etag,omitempty"`

	// Last is the Content-ID of the entity before the place, wherever it
	// stood, Modified its time in Unix seconds, and Ties are the newest of
	// the Content-IDs before it with that same second.
	Last     string   `json:"last,omitempty"`
	Modified int64    `json:"modified,omitempty"`
	Ties     []string `json:"ties,omitempty"`

	// Search says what is being looked for, while the place where reading
	// starts is not known.
	Search *search `json:"search,omitempty"`
	// Gone is a page that was gone although the place before it had just
	// been looked for and found. It is empty again once an entity was read.
	Gone string `json:"gone,omitempty"`
}

const cursorVersion = 1

// maxTies bounds Ties. A second with more entities than that is bounded by the
// sink's memory of IDs.
const maxTies = 100

func decodeCursor(c feed.Cursor) (cursor, error) {
	if len(c) == 0 {
		return cursor{Version: cursorVersion}, nil
	}
	var cur cursor
	if err := json.Unmarshal(c, &cur); err != nil {
		return cursor{}, feed.Permanent(fmt.Errorf("read the cursor: %w", err))
	}
	if cur.Version != cursorVersion {
		return cursor{}, feed.Permanent(fmt.Errorf("the cursor has version %d and this program reads version %d", cur.Version, cursorVersion))
	}
	if cur.Index < 0 || cur.Page == "" && cur.Search == nil {
		return cursor{}, feed.Permanent(errors.New("the cursor names no place"))
	}
	return cur, nil
}

func (cur cursor) encode() feed.Cursor {
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
	cur.Came, cur.ETag, cur.Gone = "", "", ""
	at := e.Modified.Unix()
	switch {
	case cur.Last == "" || at != cur.Modified:
		cur.Ties = nil
	case len(cur.Ties) < 2*maxTies:
		cur.Ties = append(cur.Ties, cur.Last)
	default:
		// A fresh slice now and then, for cursors that were handed out share
		// the old one.
		cur.Ties = append(slices.Clone(cur.Ties[maxTies+1:]), cur.Last)
	}
	cur.Last, cur.Modified = e.ID, at
}

// trim shortens what advance lets grow.
func (cur *cursor) trim() {
	if over := len(cur.Ties) - maxTies; over > 0 {
		cur.Ties = cur.Ties[over:]
	}
}

// turn moves the place from the end of Page to the start of the page after it.
func (cur *cursor) turn(next string) {
	cur.Came, cur.Page, cur.Index = cur.Page, next, 0
	cur.Digest, cur.ETag = 0, ""
}

// knows says whether the cursor names id as read.
func (cur *cursor) knows(id string) bool {
	return id == cur.Last || slices.Contains(cur.Ties, id)
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
	if cur.Search != nil {
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
	sr := newSearch(start)
	sr.Start = "" // it stays, whatever start the configuration has
	return cursor{Version: cursorVersion, Search: sr}.encode(), nil
}
