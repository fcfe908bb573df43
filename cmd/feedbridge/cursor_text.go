package main

import (
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
)

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
