package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

func (a *app) checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show and move the stored position of a feed",
		Long: `Checkpoint shows and moves the position up to which a feed has been published.
The position lies on the bus, beside the entities. A daemon may be running: it
takes up a position that was moved within half a minute.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.checkpointShow(), a.checkpointSet(), a.checkpointReset())
	return cmd
}

// position is a checkpoint as it is shown.
type position struct {
	Feed     string                 `json:"feed"`
	Source   string                 `json:"source"`
	Entities uint64                 `json:"entities"`
	At       time.Time              `json:"at"`
	Writer   string                 `json:"writer"`
	Place    *datareplication.Place `json:"place"`
	Cursor   string                 `json:"cursor"`
}

func newPosition(cp checkpoint.Checkpoint) (position, error) {
	p := position{Feed: cp.Feed, Source: cp.Source, Entities: cp.Count, At: cp.At, Writer: cp.Writer, Cursor: string(cp.Cursor)}
	if len(cp.Cursor) == 0 {
		return p, nil
	}
	place, err := datareplication.Describe(cp.Cursor)
	p.Place = &place
	return p, err
}

// inWords says where reading goes on.
func inWords(cp checkpoint.Checkpoint, start datareplication.Start) string {
	if len(cp.Cursor) == 0 {
		return "at the configured start (" + start.String() + ")"
	}
	place, err := datareplication.Describe(cp.Cursor)
	switch {
	case err != nil:
		return "at a place that cannot be read: " + err.Error()
	case place.Searching != "":
		return "at " + place.Searching + ", which is being looked for"
	case place.Last == "":
		return fmt.Sprintf("in front of entity %d of %s", place.Index, place.Page)
	}
	return fmt.Sprintf("after %s of %s, in front of entity %d of %s", place.Last, time.Unix(place.Modified, 0).UTC().Format(time.RFC3339), place.Index, place.Page)
}

// openTopic connects to the topic of a feed.
func (a *app) openTopic(ctx context.Context, name string) (f config.Feed, s *nats.Sink, closeBuses func(), err error) {
	cfg, f, err := a.configuredFeed(name)
	if err != nil {
		return f, nil, nil, err
	}
	// Only the feed's own bus matters here.
	cfg.Buses = map[string]config.Bus{f.To.Bus: cfg.Buses[f.To.Bus]}
	b, err := openBuses(ctx, cfg, true, newLog(a.err, config.Log{Level: "error"}))
	if err != nil {
		return f, nil, nil, err
	}
	if err := b.conns[f.To.Bus].Check(ctx); err != nil {
		b.close()
		return f, nil, nil, fmt.Errorf("bus %s: %w", f.To.Bus, err)
	}
	return f, b.sink(name, f), b.close, nil
}

func (a *app) checkpointShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show FEED",
		Short: "Show how far a feed has been published",
		Args:  exactly("FEED"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, s, done, err := a.openTopic(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer done()
			cp, err := s.Checkpoint(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				shown, err := newPosition(cp)
				if err != nil {
					return err
				}
				encoder := json.NewEncoder(a.out)
				encoder.SetIndent("", "  ")
				encoder.SetEscapeHTML(false)
				return encoder.Encode(shown)
			}
			p := &printer{w: a.out}
			if cp.IsZero() {
				p.line("nothing has been published to topic %s; reading will start at: %s", f.To.Topic, f.Start)
				return p.err
			}
			p.line("feed       %s (%s), to topic %s on bus %s", cp.Feed, cp.Source, f.To.Topic, f.To.Bus)
			p.line("entities   %d", cp.Count)
			p.line("committed  %s by %s", cp.At.Format(time.RFC3339), cp.Writer)
			p.line("goes on    %s", inWords(cp, f.Start))
			return p.err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) checkpointSet() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "set FEED POSITION",
		Short: "Move the position of a feed",
		Long: `Set makes reading go on at POSITION: beginning, now,
2026-01-01T00:00:00Z, id:<content-id>@<time> (behind that entity), or the cursor
that 'checkpoint show --json' has printed. It shows what will happen and asks,
unless --yes is given.

Moving back publishes nothing twice as far as the topic's newest IDs reach
(dedupe_window); moving forward leaves entities out of the topic for good.`,
		Example: `  feedbridge checkpoint set -c feedbridge.yaml orders 2026-01-01T00:00:00Z`,
		Args:    exactly("FEED", "POSITION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cursor, err := datareplication.ParseCursor(args[1])
			if err != nil {
				return &usageError{err}
			}
			return a.move(cmd.Context(), args[0], cursor, yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) checkpointReset() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset FEED",
		Short: "Forget the position of a feed, so that it is read from its configured start",
		Long: `Reset makes reading go on at the start that is configured for the feed. The
topic keeps what it holds. It shows what will happen and asks, unless --yes is
given.`,
		Args: exactly("FEED"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.move(cmd.Context(), args[0], nil, yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// move stores a checkpoint with that cursor, after a person has agreed.
func (a *app) move(ctx context.Context, name string, to feed.Cursor, yes bool) error {
	f, s, done, err := a.openTopic(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	old, err := s.Checkpoint(ctx)
	p := &printer{w: a.out}
	switch {
	case errors.Is(err, checkpoint.ErrMissing), errors.Is(err, checkpoint.ErrUnreadable):
		p.line("now        %v", err)
	case err != nil:
		return err
	case old.IsZero():
		p.line("now        nothing has been published")
	default:
		p.line("now        %d entities; goes on %s", old.Count, inWords(old, f.Start))
		if err := old.Check(name, datareplication.Kind); err != nil {
			p.line("           it was made for feed %s of kind %s", old.Feed, old.Source)
		}
	}
	cp := checkpoint.Checkpoint{Feed: name, Source: datareplication.Kind, Cursor: to, Count: old.Count, At: time.Now(), Writer: writerName()}
	p.line("then       goes on %s", inWords(cp, f.Start))
	p.line("           what topic %s on bus %s holds stays; entities among its newest %d are not published again", f.To.Topic, f.To.Bus, f.DedupeWindow)
	if p.err != nil {
		return p.err
	}
	if !yes {
		agreed, err := a.ask("Move the position?")
		if err != nil {
			return err
		}
		if !agreed {
			return errors.New("nothing was changed")
		}
	}
	if err := s.Overwrite(ctx, cp); err != nil {
		return err
	}
	p.line("moved; a running daemon takes it up within half a minute")
	return p.err
}

// ask asks a question whose answer is yes or no. No answer is no.
func (a *app) ask(question string) (bool, error) {
	if _, err := fmt.Fprintf(a.out, "%s [y/N] ", question); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && answer == "" {
		return false, errors.New("no answer on standard input: nothing was changed; --yes answers in advance")
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}
