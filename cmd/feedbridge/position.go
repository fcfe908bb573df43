package main

import (
	"io"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/safetext"
)

// position is the checkpoint of a topic as it is shown. An empty topic has none
// of what is optional.
type position struct {
	Topic    string    `json:"topic"`
	Bus      string    `json:"bus"`
	Feed     string    `json:"feed,omitempty"` // that the topic belongs to
	Source   string    `json:"source,omitempty"`
	Entities uint64    `json:"entities"`
	At       time.Time `json:"at,omitzero"`
	Writer   string    `json:"writer,omitempty"`
	GoesOn   string    `json:"goes_on"`
	Place    any       `json:"place,omitempty"`
	Cursor   string    `json:"cursor,omitempty"`
}

func newPosition(cp checkpoint.Checkpoint, f config.Feed) position {
	p := position{
		Topic: f.To.Topic, Bus: f.To.Bus, Feed: cp.Feed, Source: cp.Source,
		Entities: cp.Count, At: cp.At, Writer: cp.Writer, GoesOn: inWords(cp.Source, cp.Cursor, f.Start), Cursor: string(cp.Cursor),
	}
	if place, err := placeOf(cp.Source, cp.Cursor); err == nil {
		p.Place = place
	}
	return p
}

// print writes the position for a person.
func (p position) print(w io.Writer, redact *safetext.Redactor) error {
	to := &printer{w: w, redact: redact}
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
