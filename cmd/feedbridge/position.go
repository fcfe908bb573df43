package main

import (
	"fmt"
	"io"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// position is the checkpoint of a topic as it is shown. An empty topic has none
// of what is optional.
type position struct {
	Topic    string                 `json:"topic"`
	Bus      string                 `json:"bus"`
	Feed     string                 `json:"feed,omitempty"` // that the topic belongs to
	Source   string                 `json:"source,omitempty"`
	Entities uint64                 `json:"entities"`
	At       time.Time              `json:"at,omitzero"`
	Writer   string                 `json:"writer,omitempty"`
	GoesOn   string                 `json:"goes_on"`
	Place    *datareplication.Place `json:"place,omitempty"`
	Cursor   string                 `json:"cursor,omitempty"`
}

func newPosition(cp checkpoint.Checkpoint, f config.Feed) position {
	p := position{
		Topic: f.To.Topic, Bus: f.To.Bus, Feed: cp.Feed, Source: cp.Source,
		Entities: cp.Count, At: cp.At, Writer: cp.Writer, GoesOn: inWords(cp.Cursor, f.Start), Cursor: string(cp.Cursor),
	}
	if place, err := datareplication.Describe(cp.Cursor); err == nil && len(cp.Cursor) > 0 {
		p.Place = &place
	}
	return p
}

// print writes the position for a person.
func (p position) print(w io.Writer) error {
	to := &printer{w: w}
	to.line("topic      %s on bus %s", p.Topic, p.Bus)
	if p.Feed == "" {
		to.line("feed       none so far: nothing has been published")
	} else {
		to.line("feed       %s (%s)", p.Feed, p.Source)
		to.line("entities   %d", p.Entities)
		to.line("committed  %s by %s", p.At.Format(time.RFC3339), p.Writer)
	}
	to.line("goes on    %s", p.GoesOn)
	return to.err
}

// inWords says where reading goes on.
func inWords(c feed.Cursor, start datareplication.Start) string {
	if len(c) == 0 {
		return "at the configured start (" + start.String() + ")"
	}
	place, err := datareplication.Describe(c)
	switch {
	case err != nil:
		return "at a place that cannot be told: " + err.Error()
	case place.Snapshot != "":
		return "at " + place.Snapshot
	case place.Searching != "":
		return "at " + place.Searching + ", which has yet to be found"
	case place.Last == "":
		return fmt.Sprintf("in front of entity %d of %s", place.Index, place.Page)
	}
	return fmt.Sprintf("after %s of %s, in front of entity %d of %s",
		place.Last, time.Unix(place.Modified, 0).UTC().Format(time.RFC3339), place.Index, place.Page)
}
