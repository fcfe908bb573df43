package daemon

import (
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// DescribeCursor returns a readable form of a cursor, which is marshaled as JSON: a
// [syndication.CursorInfo], a [httpfeed.CursorInfo] or a [datareplication.CursorInfo]. kind is that of
// the source that made the cursor. It returns nil without a cursor.
func DescribeCursor(kind string, c feed.Cursor) (any, error) {
	switch {
	case len(c) == 0:
		return nil, nil
	case kind == syndication.Kind:
		return syndication.Describe(c)
	case kind == httpfeed.Kind:
		return httpfeed.Describe(c)
	}
	return datareplication.Describe(c)
}

// ParseCursor returns the cursor for a position that a person names, for a source of that
// kind.
func ParseCursor(kind, position string) (feed.Cursor, error) {
	switch kind {
	case syndication.Kind:
		return syndication.ParseCursor(position)
	case httpfeed.Kind:
		return httpfeed.ParseCursor(position)
	}
	return datareplication.ParseCursor(position)
}
