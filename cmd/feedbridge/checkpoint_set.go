package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// checkpointSetCommand returns the command "checkpoint set", which moves the cursor of a feed.
func checkpointSetCommand(a *app) *cobra.Command {
	var yes bool
	cmd := a.configurable(&cobra.Command{
		Use:   "set FEED POSITION",
		Short: "Set the position of a feed",
		Long: `Set sets the position from which a feed is read. POSITION is one of
  beginning, now, or a time such as 2026-01-01T00:00:00Z
  id:<content-id>@<time>      after that entity; only in datareplication feeds
  after:<id>                  after that event; only in http-feeds
  snapshot:<url of its index> a snapshot; only in datareplication feeds
  a cursor from the output of 'checkpoint show --json'
The command shows the effect and asks, unless --yes is given.

After a move back, entities that the topic has are not published again: in Atom
and RSS all that are unchanged, in datareplication feeds those among the newest
dedupe_window entities. After a move forward, the skipped entities are never
published. A paused feed stays paused.`,
		Example:           `  feedbridge checkpoint set -c feedbridge.yaml orders 2026-01-01T00:00:00Z`,
		Args:              exactArgs("FEED", "POSITION"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			return moveCheckpoint(cmd.Context(), a, args[0], args[1], yes)
		},
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// checkpointResetCommand returns the command "checkpoint reset", which moves the cursor of a
// feed to its configured start.
func checkpointResetCommand(a *app) *cobra.Command {
	var yes bool
	cmd := a.configurable(&cobra.Command{
		Use:   "reset FEED",
		Short: "Set the position of a feed to its configured start",
		Long: `Reset sets the position of a feed to its configured start. The topic keeps its
messages. The command shows the effect and asks, unless --yes is given.`,
		Args:              exactArgs("FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			return moveCheckpoint(cmd.Context(), a, args[0], "", yes)
		},
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// errUnchanged is part of each error that leaves the checkpoint unchanged.
var errUnchanged = errors.New("aborted, and the checkpoint is unchanged")

// moveCheckpoint stores a checkpoint with the cursor of a position, once the user has agreed.
// Without a position the checkpoint has no cursor.
func moveCheckpoint(ctx context.Context, a *app, name, position string, yes bool) error {
	t, err := openTopic(ctx, a, name)
	if err != nil {
		return err
	}
	defer t.close()
	old, broken, err := t.checkpoint(ctx)
	if err != nil {
		return err
	}
	kind, to, err := t.resolveCursor(ctx, old, position)
	if err != nil {
		return err
	}
	p := &printer{w: a.out, redact: a.redact}
	switch {
	case broken != nil:
		p.printLine("now    %v", broken)
	case old.IsZero():
		p.printLine("now    nothing has been published")
	default:
		p.printLine("now    %d entities are published; reading continues %s", old.Count, cursorText(old.Source, old.Cursor, t.Start))
		if err := old.Check(name, kind); err != nil {
			p.printLine("       but the topic belongs to the feed %s (%s), and will belong to %s", old.Feed, old.Source, name)
		}
	}
	p.printLine("then   reading continues %s", cursorText(kind, to, t.Start))
	repeated := fmt.Sprintf("entities among its newest %d", t.DedupeWindow)
	if kind == syndication.Kind {
		repeated = "versions of entries that it has"
	}
	p.printLine("       topic %s on bus %s keeps its messages; %s are not published again", t.To.Topic, t.To.Bus, repeated)
	if p.err != nil {
		return p.err
	}
	if !yes {
		if err := confirm(ctx, a, "Move the position?"); err != nil {
			return err
		}
	}
	paused := false
	err = t.store.Overwrite(ctx, func(old checkpoint.Checkpoint) checkpoint.Checkpoint {
		paused = old.IsPaused()
		// A daemon may have published since the checkpoint was shown.
		return checkpoint.Checkpoint{Feed: name, Source: kind, Cursor: to, Count: old.Count, At: time.Now(), Writer: daemon.WriterName(), Moved: time.Now(), Paused: old.Paused}
	})
	switch {
	case errors.Is(err, checkpoint.ErrConflict):
		return fmt.Errorf("%w: %w, as a running daemon does while it catches up; stop it first", errUnchanged, err)
	case err != nil:
		return err
	case paused:
		p.printLine("moved; the feed stays paused: 'feedbridge resume %s' continues there", name)
		return p.err
	}
	p.printLine("moved; a running daemon continues there within half a minute, or within 5 minutes if the feed is halted")
	return p.err
}

// resolveCursor returns the cursor of a position, and its kind: the configured kind, or
// that of the checkpoint, or else the detected one. A reset has no cursor, and keeps the kind
// of the checkpoint.
func (t *topic) resolveCursor(ctx context.Context, old checkpoint.Checkpoint, position string) (kind string, to feed.Cursor, err error) {
	kind = cmp.Or(t.Format.Kind(), old.Kind())
	if position == "" {
		kind = cmp.Or(kind, old.Source)
	}
	if kind == "" {
		sources, err := daemon.NewSources(t.Feed, daemon.SourceOptions{Version: programVersion(), IDs: sink.NewIDs(1), Redact: t.redact}, t.log)
		if err != nil {
			return "", nil, err
		}
		format, err := sources.DetectFormat(ctx)
		if err != nil {
			return "", nil, fmt.Errorf("detect the format of the feed: %w; set its format in the configuration to skip the detection", err)
		}
		kind = format.Kind()
	}
	if position != "" {
		if to, err = daemon.ParseCursor(kind, position); err != nil {
			err = &usageError{err}
		}
	}
	return kind, to, err
}

// checkpoint returns the topic's checkpoint. If it cannot be read and another one would cure
// that, broken is the error of reading it.
func (t *topic) checkpoint(ctx context.Context) (cp checkpoint.Checkpoint, broken, err error) {
	cp, err = t.store.Checkpoint(ctx)
	if errors.Is(err, checkpoint.ErrMissing) || errors.Is(err, checkpoint.ErrUnreadable) || errors.Is(err, checkpoint.ErrLost) || errors.Is(err, feed.ErrNoTopic) {
		return checkpoint.Checkpoint{}, err, nil
	}
	return cp, nil, err
}

// confirm asks a question and returns an error unless the answer is yes. The
// question goes to standard error, as standard output may be a file.
func confirm(ctx context.Context, a *app, question string) error {
	answer, err := ask(ctx, a, question+" [y/N]")
	switch {
	case errors.Is(err, errNoAnswer):
		return fmt.Errorf("%w: %w; --yes answers in advance", errUnchanged, err)
	case err == nil && slices.Contains([]string{"y", "yes"}, strings.ToLower(answer)):
		return nil
	}
	return errUnchanged
}

// errNoAnswer is the error about a question that standard input has no answer to.
var errNoAnswer = errors.New("there was no answer on standard input")

// ask asks a question on standard error, and returns the answer, a line of standard input.
func ask(ctx context.Context, a *app, question string) (string, error) {
	fmt.Fprint(a.err, question+" ")
	answers := make(chan string, 1)
	if a.answers == nil {
		a.answers = bufio.NewReader(a.in)
	}
	go func() {
		answer, err := a.answers.ReadString('\n')
		if err == nil || answer != "" {
			answers <- answer
		}
		close(answers)
	}()
	select {
	case answer, ok := <-answers:
		if !ok {
			fmt.Fprintln(a.err)
			return "", errNoAnswer
		}
		return strings.TrimSpace(answer), nil
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return "", ctx.Err()
	}
}
