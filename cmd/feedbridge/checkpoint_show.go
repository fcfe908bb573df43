package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// checkpointShowCommand returns the command "checkpoint show", which prints the checkpoints of feeds.
func checkpointShowCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := a.configurable(&cobra.Command{
		Use:               "show FEED",
		Short:             "Show the stored position of a feed",
		Args:              exactArgs("FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := openTopic(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			defer t.close()
			cp, err := t.store.Checkpoint(cmd.Context())
			if err != nil {
				return err
			}
			p := newCheckpointReport(cp, t.Feed)
			if asJSON {
				return printJSON(a.out, p)
			}
			return p.printText(a.out, a.redact)
		},
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// checkpointReport is the checkpoint of a topic as it is shown. The optional fields are empty for an
// empty topic.
type checkpointReport struct {
	Topic    string    `json:"topic"`
	Bus      string    `json:"bus"`
	Feed     string    `json:"feed,omitempty"` // whose topic it is
	Source   string    `json:"source,omitempty"`
	Entities uint64    `json:"entities"`
	At       time.Time `json:"at,omitzero"`
	Writer   string    `json:"writer,omitempty"`
	Paused   time.Time `json:"paused,omitzero"` // since when
	// Continues is the cursor in words, and CursorInfo is what /status has as the cursor. Cursor
	// is the stored one, which checkpoint set takes.
	Continues  string `json:"continues"`
	CursorInfo any    `json:"cursor_info,omitempty"`
	Cursor     string `json:"cursor,omitempty"`
}

func newCheckpointReport(cp checkpoint.Checkpoint, f config.Feed) checkpointReport {
	p := checkpointReport{
		Topic: f.To.Topic, Bus: f.To.Bus, Feed: cp.Feed, Source: cp.Source,
		Entities: cp.Count, At: cp.At, Writer: cp.Writer, Paused: cp.Paused, Continues: cursorText(cp.Source, cp.Cursor, f.Start), Cursor: string(cp.Cursor),
	}
	if info, err := daemon.DescribeCursor(cp.Source, cp.Cursor); err == nil {
		p.CursorInfo = info
	}
	return p
}

// printText writes the report as text.
func (p checkpointReport) printText(w io.Writer, redact *safetext.Redactor) error {
	to := &printer{w: w, redact: redact}
	to.printLine("topic      %s on bus %s", p.Topic, p.Bus)
	if p.Feed == "" {
		to.printLine("feed       none so far: nothing has been published")
	} else {
		to.printLine("feed       %s (%s)", p.Feed, p.Source)
		to.printLine("entities   %d", p.Entities)
		to.printLine("committed  %s by %s", p.At.Format(time.RFC3339), p.Writer)
	}
	if !p.Paused.IsZero() {
		to.printLine("paused     since %s, until 'feedbridge resume %s'", p.Paused.Format(time.RFC3339), p.Feed)
	}
	to.printLine("continues  %s", p.Continues)
	return to.err
}
