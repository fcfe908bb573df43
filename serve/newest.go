package serve

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// NewestMessage is a message of a topic as people see it. Its texts have no characters that are not visible, and
// their length is bounded. They are text, and no HTML.
type NewestMessage struct {
	ID        string         `json:"id"`
	Operation feed.Operation `json:"operation"`
	Modified  time.Time      `json:"modified"`
	FeedTitle string         `json:"feed_title,omitempty"`
	Title     string         `json:"title,omitempty"`
	Text      string         `json:"text,omitempty"`
	stored    time.Time
}

// The limits of Newest. Between the messages of a topic there may be positions of others.
const (
	newestPositions = 16
	newestText      = 300
)

// Newest returns the last messages of a topic, at most so many, the newest first. It reads a few positions, which may
// have none.
func Newest(ctx context.Context, topic Log, most int) ([]NewestMessage, error) {
	span, err := topic.Span(ctx)
	if err != nil {
		return nil, err
	}
	newest := []NewestMessage{}
	for r, err := range topic.Read(ctx, max(span.First, span.End-min(span.End, newestPositions)), span.End) {
		if err != nil {
			return nil, err
		}
		e := decoder{}.decodeRecord(span.Epoch, r, nil)
		shown := newShownEntity(&e)
		m := NewestMessage{ID: shown.ID, Operation: e.op, Modified: e.modified, Title: shown.Title, Text: strings.TrimSpace(shownText(shown.Body, newestText)), FeedTitle: e.headerValue("Feed-Title"), stored: e.taken}
		if d, ok := e.document(); ok && d.Feed != nil {
			m.FeedTitle = cmp.Or(m.FeedTitle, d.Feed.Title)
		}
		m.FeedTitle = shownText(m.FeedTitle, shownName)
		newest = append([]NewestMessage{m}, newest[:min(len(newest), most-1)]...)
	}
	return newest, nil
}

// Stored is when the bus took the message.
func (m NewestMessage) Stored() time.Time { return m.stored }
