package main

import (
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// checkCursorText returns an error if no kind of source can continue from position.
func checkCursorText(position string) error {
	_, err := daemon.ParseCursor(datareplication.Kind, position)
	if err == nil {
		return nil
	}
	for _, kind := range []string{syndication.Kind, httpfeed.Kind} {
		if _, other := daemon.ParseCursor(kind, position); other == nil {
			return nil
		}
	}
	return err
}

// cursorText returns where reading continues: the start, or the cursor as the status shows it.
func cursorText(kind string, c feed.Cursor, start source.Start) string {
	if len(c) == 0 {
		return "at the configured start (" + start.String() + ")"
	}
	info, err := daemon.DescribeCursor(kind, c)
	if err != nil {
		return "at a position that cannot be described: " + err.Error()
	}
	return "at " + formatCursor(info)
}
