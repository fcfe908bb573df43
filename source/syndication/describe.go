package syndication

import (
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// CursorInfo describes a cursor in a readable form.
type CursorInfo struct {
	// Dialect and Format are the detected properties of the feed.
	Dialect Dialect        `json:"dialect,omitempty"`
	Format  feedxml.Format `json:"format,omitempty"`
	// Start is what reading will start with, if it has not.
	Start string `json:"start,omitempty"`
	// URL is where the feed has moved to for good.
	URL string `json:"moved_to,omitempty"`
	// Archives is how many published archives are remembered; Newest is the
	// URL of the newest.
	Archives int    `json:"archives,omitempty"`
	Newest   string `json:"newest_archive,omitempty"`
	// Gaps are the archives that are missing.
	Gaps []string `json:"gaps,omitempty"`
	// Publishing reports that a document is published in part.
	Publishing bool `json:"publishing,omitempty"`
	// DeletesHeld reports that deletes are held back, HeldDeletes how many, and
	// HeldSince and HeldUntil between which times: they are published if the
	// same entries are missing then.
	DeletesHeld bool      `json:"deletes_held,omitempty"`
	HeldDeletes int       `json:"held_deletes,omitempty"`
	HeldSince   time.Time `json:"held_since,omitzero"`
	HeldUntil   time.Time `json:"held_until,omitzero"`
	// Page is the page that is asked for next in mode tail.
	Page string `json:"page,omitempty"`
}

// Lacks returns how many archives are missing, and how many deletes are held back.
func (p CursorInfo) Lacks() (gaps, deletes int) { return len(p.Gaps), p.HeldDeletes }

// Describe returns the place that a cursor of this source means.
func Describe(c feed.Cursor) (CursorInfo, error) {
	cur, err := decodeCursor(c, Start{})
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

// ParseCursor returns the cursor for a position: one that [ParseStart] reads, or a
// cursor as it is stored. From the beginning, everything that can be reached is read
// again; versions that the topic already holds are not published again.
func ParseCursor(position string) (feed.Cursor, error) {
	if strings.HasPrefix(position, "{") {
		if _, err := decodeCursor(feed.Cursor(position), Start{}); err != nil {
			return nil, err
		}
		return feed.Cursor(position), nil
	}
	start, err := ParseStart(position)
	if err != nil {
		return nil, err
	}
	cur := cursor{Version: cursorVersion, Start: start.String()}
	return cur.encodeCursor(), nil
}
