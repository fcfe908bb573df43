package main

import (
	"fmt"
	"time"

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

// cursorText returns in words where reading continues.
func cursorText(kind string, c feed.Cursor, start source.Start) string {
	if len(c) == 0 {
		return "at the configured start (" + start.String() + ")"
	}
	info, err := daemon.DescribeCursor(kind, c)
	if err != nil {
		return "at a position that cannot be described: " + err.Error()
	}
	switch p := info.(type) {
	case syndication.CursorInfo:
		return syndicationText(p)
	case httpfeed.CursorInfo:
		switch {
		case p.Start != "":
			return "at the start (" + p.Start + ")"
		case p.Last == "":
			return "with the first event"
		}
		return "behind the event " + p.Last
	case datareplication.CursorInfo:
		switch {
		case p.Snapshot != "":
			return "at " + p.Snapshot
		case p.Searching != "":
			return "at " + p.Searching + ", which is still being searched for"
		case p.Last == "":
			return fmt.Sprintf("before entity %d of %s", p.Index, p.Page)
		}
		return fmt.Sprintf("after %s of %s, before entity %d of %s",
			p.Last, time.Unix(p.Modified, 0).UTC().Format(time.RFC3339), p.Index, p.Page)
	}
	return "at a position that cannot be described"
}

func syndicationText(p syndication.CursorInfo) string {
	switch {
	case p.Start != "":
		return "at the start (" + p.Start + ")"
	case p.Page != "":
		return "with the page " + p.Page
	case p.Publishing:
		return fmt.Sprintf("in the middle of a document (%s, %s)", p.Format, p.Dialect)
	case p.Dialect == "":
		return "with the whole feed"
	}
	text := fmt.Sprintf("with the changes that the next poll finds (%s, %s", p.Format, p.Dialect)
	if p.Archives > 0 {
		text += fmt.Sprintf(", after %s", withNoun(p.Archives, "older document", "older documents"))
	}
	if n := len(p.Gaps); n > 0 {
		text += fmt.Sprintf(", %s missing", withNoun(n, "archive is", "archives are"))
	}
	if p.DeletesHeld {
		text += fmt.Sprintf(", %s held until %s", withNoun(p.HeldDeletes, "delete is", "deletes are"), p.HeldUntil.Format(time.RFC3339))
	}
	return text + ")"
}
