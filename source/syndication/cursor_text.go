package syndication

import (
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// CursorInfo is a readable form of a cursor.
type CursorInfo struct {
	// Dialect and Format are the detected properties of the feed.
	Dialect Dialect        `json:"dialect,omitempty"`
	Format  feedxml.Format `json:"format,omitempty"`
	// Start is the start position, until the first poll has used it.
	Start string `json:"start,omitempty"`
	// URL is the address to which the feed has moved for good.
	URL string `json:"moved_to,omitempty"`
	// Archives is the number of published archives in the cursor; Newest is the URL of
	// the newest.
	Archives int    `json:"archives,omitempty"`
	Newest   string `json:"newest_archive,omitempty"`
	// Gaps are the archives that are missing.
	Gaps []string `json:"gaps,omitempty"`
	// Publishing reports that a part of a document is published.
	Publishing bool `json:"publishing,omitempty"`
	// DeletesHeld reports that deletes are held back, HeldDeletes is their number, and
	// HeldSince and HeldUntil are the times between which they are held back. They are
	// published if the same entries are missing then.
	DeletesHeld bool      `json:"deletes_held,omitempty"`
	HeldDeletes int       `json:"held_deletes,omitempty"`
	HeldSince   time.Time `json:"held_since,omitzero"`
	HeldUntil   time.Time `json:"held_until,omitzero"`
	// Page is the next page to request in mode tail.
	Page string `json:"page,omitempty"`
}

// Lacks returns the number of missing archives and the number of deletes that are held
// back.
func (p CursorInfo) Lacks() (gaps, deletes int) { return len(p.Gaps), p.HeldDeletes }

// Describe returns the readable form of a cursor of this source.
func Describe(c feed.Cursor) (CursorInfo, error) {
	cur, err := decodeCursor(c, source.Start{})
	if err != nil {
		return CursorInfo{}, err
	}
	p := CursorInfo{
		Dialect: cur.Dialect, Format: cur.Format, Start: cur.Start, URL: cur.URL,
		Archives: len(cur.Archives) / archiveBytes, Newest: cur.Newest,
		Publishing: cur.Doc != nil, DeletesHeld: cur.Held != nil, Page: cur.Tail,
	}
	if h := cur.Held; h != nil {
		p.HeldDeletes, p.HeldSince, p.HeldUntil = h.Vanished, time.Unix(h.Since, 0).UTC(), time.Unix(h.Until, 0).UTC()
	}
	for _, g := range cur.Gaps {
		p.Gaps = append(p.Gaps, g.URL)
	}
	return p, nil
}

// ParseCursor returns the cursor for a position: a start position that [source.ParseStart]
// parses, or a stored cursor. From the beginning, all documents that can be reached are
// read again; versions that the topic already has are not published again.
func ParseCursor(position string) (feed.Cursor, error) {
	if strings.HasPrefix(position, "{") {
		if _, err := decodeCursor(feed.Cursor(position), source.Start{}); err != nil {
			return nil, err
		}
		return feed.Cursor(position), nil
	}
	start, err := parseStart(position)
	if err != nil {
		return nil, err
	}
	cur := cursor{Version: cursorVersion, startPosition: startPosition{Start: start.String()}}
	return cur.encodeCursor(), nil
}

// parseStart parses a start position that entries can have: beginning, now, or a time such as
// 2026-01-01T00:00:00Z.
func parseStart(s string) (source.Start, error) {
	start, err := source.ParseStart(s)
	if err != nil || start.ID != "" || start.Snapshot != "" {
		return source.Start{}, fmt.Errorf("start %q: want beginning, now, or a time such as 2026-01-01T00:00:00Z", s)
	}
	return start, nil
}
