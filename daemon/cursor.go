package daemon

import (
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// DescribeCursor returns the description of a cursor, as a value for JSON: a
// [syndication.CursorInfo] or a [datareplication.CursorInfo]. kind is that of the source that made the
// cursor. It returns nil without a cursor.
func DescribeCursor(kind string, c feed.Cursor) (any, error) {
	switch {
	case len(c) == 0:
		return nil, nil
	case kind == syndication.Kind:
		return syndication.Describe(c)
	}
	return datareplication.Describe(c)
}

// ParseCursor returns the cursor for a position that a person names, for a source of that
// kind.
func ParseCursor(kind, position string) (feed.Cursor, error) {
	if kind == syndication.Kind {
		return syndication.ParseCursor(position)
	}
	return datareplication.ParseCursor(position)
}
