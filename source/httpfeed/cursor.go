package httpfeed

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
)

// startNow is the start behind all events that the feed has.
const startNow = "now"

// cursor is a position in a feed. It is stored as JSON with a version.
type cursor struct {
	Version int `json:"v"`
	// Last is the ID of the last event that was read, and First the hash of the first one.
	Last string `json:"last,omitempty"`
	// Before is the ID of the event before Last.
	Before string `json:"before,omitempty"`
	First  string `json:"first,omitempty"`
	// Start is startNow or a time, while events before it are skipped.
	Start string `json:"start,omitempty"`
	// Moved reports that a person has moved the position, so that the topic may have events behind it, until the end of
	// the feed.
	Moved bool `json:"moved,omitempty"`
	// Halted reports that the server did not continue behind Last. Reading goes on when it sends Last behind Before,
	// which proves that it knows the IDs. Any other answer may have skipped events.
	Halted bool `json:"halted,omitempty"`
}

const cursorVersion = 1

func decodeCursor(c feed.Cursor, start source.Start) (cur cursor, err error) {
	if len(c) == 0 {
		return startCursor(start), nil
	}
	if err := json.Unmarshal(c, &cur); err != nil {
		return cursor{}, feed.Permanent(fmt.Errorf("read the cursor: %w", err))
	}
	if cur.Version != cursorVersion {
		return cursor{}, feed.Permanent(fmt.Errorf("the cursor has version %d and this program reads version %d; run the feedbridge that wrote it, or a newer one", cur.Version, cursorVersion))
	}
	return cur, nil
}

func startCursor(start source.Start) cursor {
	switch {
	case start.Now:
		return cursor{Start: startNow}
	case !start.At.IsZero():
		return cursor{Start: start.At.UTC().Format(time.RFC3339Nano)}
	}
	return cursor{Last: start.ID, Moved: start.ID != ""}
}

func (c *cursor) encode() feed.Cursor {
	c.Version = cursorVersion
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // it has texts only
	}
	return b
}

// skips reports whether an event of that time is before the start.
func (c *cursor) skips(at time.Time) bool {
	from, err := time.Parse(time.RFC3339Nano, c.Start)
	return c.Start == startNow || err == nil && at.Before(from)
}

// reachEnd records that the feed has no event behind the cursor. Whatever comes is new.
func (c *cursor) reachEnd() {
	if c.Moved = false; c.Start == startNow {
		c.Start = ""
	}
}

// hashID returns a hash of an ID that is short enough for the cursor.
func hashID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// CursorInfo is a readable form of a cursor.
type CursorInfo struct {
	// Last is the ID of the last event that was read.
	Last string `json:"last,omitempty"`
	// Start is the start position, while it is searched for.
	Start string `json:"start,omitempty"`
}

// Describe returns the readable form of a cursor of this source.
func Describe(c feed.Cursor) (CursorInfo, error) {
	cur, err := decodeCursor(c, source.Start{})
	return CursorInfo{Last: cur.Last, Start: cur.Start}, err
}

// ParseCursor returns the cursor for a position that a person names: beginning, now, a time such as
// 2026-01-01T00:00:00Z, after: and the ID of an event, or a stored cursor. Events that the topic has already are not
// published again.
func ParseCursor(position string) (feed.Cursor, error) {
	if strings.HasPrefix(position, "{") {
		stored, err := decodeCursor(feed.Cursor(position), source.Start{})
		if err != nil {
			return nil, err
		}
		cur := cursor{Last: stored.Last, Start: stored.Start, Moved: true}
		return cur.encode(), nil
	}
	start, err := source.ParseStart(position)
	if err != nil || position == "" || start.Snapshot != "" || start.ID != "" && !start.IsEvent() {
		return nil, fmt.Errorf("position %q: want beginning, now, a time such as 2026-01-01T00:00:00Z, or after: and the id of an event", position)
	}
	cur := startCursor(start)
	cur.Moved = true
	return cur.encode(), nil
}
