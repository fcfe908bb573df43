package main

import (
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

var _ admin.Lacking = syndication.Place{}

// placeOf puts a cursor of a kind of source into a form that JSON can hold; it is
// nil without a cursor.
func placeOf(kind string, c feed.Cursor) (any, error) {
	switch {
	case len(c) == 0:
		return nil, nil
	case kind == syndication.Kind:
		return syndication.Describe(c)
	}
	return datareplication.Describe(c)
}

// parsePosition returns the cursor for a position that a person names.
func parsePosition(kind, position string) (feed.Cursor, error) {
	if kind == syndication.Kind {
		return syndication.ParseCursor(position)
	}
	return datareplication.ParseCursor(position)
}

// checkPosition returns an error if no kind of source can read a position.
func checkPosition(position string) error {
	_, err := parsePosition(datareplication.Kind, position)
	if err == nil {
		return nil
	}
	if _, other := parsePosition(syndication.Kind, position); other == nil {
		return nil
	}
	return err
}

// inWords says where reading goes on.
func inWords(kind string, c feed.Cursor, start datareplication.Start) string {
	if len(c) == 0 {
		return "at the configured start (" + start.String() + ")"
	}
	place, err := placeOf(kind, c)
	if err != nil {
		return "at a place that cannot be told: " + err.Error()
	}
	switch p := place.(type) {
	case syndication.Place:
		return syndicationInWords(p)
	case datareplication.Place:
		switch {
		case p.Snapshot != "":
			return "at " + p.Snapshot
		case p.Searching != "":
			return "at " + p.Searching + ", which has yet to be found"
		case p.Last == "":
			return fmt.Sprintf("in front of entity %d of %s", p.Index, p.Page)
		}
		return fmt.Sprintf("after %s of %s, in front of entity %d of %s",
			p.Last, time.Unix(p.Modified, 0).UTC().Format(time.RFC3339), p.Index, p.Page)
	}
	return "at a place that cannot be told"
}

func syndicationInWords(p syndication.Place) string {
	switch {
	case p.Start != "":
		return "at the start (" + p.Start + ")"
	case p.Page != "":
		return "with the page " + p.Page
	case p.Publishing:
		return fmt.Sprintf("in the middle of a document (%s, %s)", p.Format, p.Dialect)
	case p.Dialect == "":
		return "with the whole of the feed"
	}
	text := fmt.Sprintf("with what the next poll finds changed (%s, %s", p.Format, p.Dialect)
	if p.Archives > 0 {
		text += fmt.Sprintf(", behind %s", count(p.Archives, "older document", "older documents"))
	}
	if n := len(p.Gaps); n > 0 {
		text += fmt.Sprintf(", %s missing", count(n, "archive is", "archives are"))
	}
	if p.DeletesHeld {
		text += fmt.Sprintf(", %s held until %s", count(p.HeldDeletes, "delete is", "deletes are"), p.HeldUntil.Format(time.RFC3339))
	}
	return text + ")"
}
