package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// errUnchanged says that a person did not agree.
var errUnchanged = errors.New("nothing was changed")

// move stores a checkpoint with the cursor of a position, once a person has agreed;
// without a position, one with no cursor.
func (a *app) move(ctx context.Context, name, position string, yes bool) error {
	t, err := a.openTopic(ctx, name)
	if err != nil {
		return err
	}
	defer t.close()
	old, broken, err := t.checkpoint(ctx)
	if err != nil {
		return err
	}
	kind, to, err := t.target(ctx, old, position)
	if err != nil {
		return err
	}
	p := &printer{w: a.out, redact: a.redact}
	switch {
	case broken != nil:
		p.line("now    %v", broken)
	case old.IsZero():
		p.line("now    nothing has been published")
	default:
		p.line("now    %d entities are published; reading goes on %s", old.Count, inWords(old.Source, old.Cursor, t.Start))
		if err := old.Check(name, kind); err != nil {
			p.line("       but the topic belongs to the feed %s (%s), and will belong to %s", old.Feed, old.Source, name)
		}
	}
	p.line("then   reading goes on %s", inWords(kind, to, t.Start))
	again := fmt.Sprintf("among its newest %d entities", t.DedupeWindow)
	if kind == syndication.Kind {
		again = "as the topic has it"
	}
	p.line("       topic %s on bus %s keeps what it holds, and gets nothing again that is %s", t.To.Topic, t.To.Bus, again)
	if p.err != nil {
		return p.err
	}
	if !yes {
		if err := a.agree(ctx, "Move the position?"); err != nil {
			return err
		}
	}
	err = overwrite(ctx, t.sink, func(old checkpoint.Checkpoint) checkpoint.Checkpoint {
		// A daemon may have published since what was shown.
		return checkpoint.Checkpoint{Feed: name, Source: kind, Cursor: to, Count: old.Count, At: time.Now(), Writer: writerName(), Moved: time.Now()}
	})
	if err != nil {
		return err
	}
	p.line("moved; a running daemon takes it up within half a minute")
	return p.err
}

// overwriteFor is how long a checkpoint that a person sets is tried beside a daemon that
// publishes at the same time.
const overwriteFor = time.Minute

// overwrite stores what next makes of the checkpoint, and tries again while a daemon commits
// before it.
func overwrite(ctx context.Context, s stored, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	end := time.NewTimer(overwriteFor)
	defer end.Stop()
	for {
		err := s.Overwrite(ctx, next)
		if !errors.Is(err, checkpoint.ErrConflict) {
			return err
		}
		again := time.NewTimer(rand.N(500 * time.Millisecond))
		select {
		case <-again.C:
			continue
		case <-end.C:
		case <-ctx.Done():
		}
		again.Stop()
		return fmt.Errorf("%w: %w, as a running daemon does while it catches up; stop it first", errUnchanged, err)
	}
}

// target returns the cursor of a position, and its kind: the configured one, or
// that of the checkpoint, or else that of what the feed serves. A reset has no
// cursor, and keeps to what the checkpoint says.
func (t *topic) target(ctx context.Context, old checkpoint.Checkpoint, position string) (kind string, to feed.Cursor, err error) {
	kind = cmp.Or(t.Format.Kind(), old.Kind())
	if position == "" {
		kind = cmp.Or(kind, old.Source)
	}
	if kind == "" {
		all, err := newSources(t.Feed, sink.NewIDs(1), source.Options{Redact: t.redact}, t.log)
		if err != nil {
			return "", nil, err
		}
		format, err := all.find(ctx)
		if err != nil {
			return "", nil, fmt.Errorf("find out the format of the feed: %w; with a format in its configuration nobody has to ask", err)
		}
		kind = format.Kind()
	}
	if position != "" {
		to, err = parsePosition(kind, position)
	}
	return kind, to, err
}

// checkpoint returns the topic's checkpoint, or what is wrong with it if that
// can be cured by another one.
func (t *topic) checkpoint(ctx context.Context) (cp checkpoint.Checkpoint, broken, err error) {
	cp, err = t.sink.Checkpoint(ctx)
	if errors.Is(err, checkpoint.ErrMissing) || errors.Is(err, checkpoint.ErrUnreadable) || errors.Is(err, checkpoint.ErrLost) || errors.Is(err, feed.ErrNoTopic) {
		return checkpoint.Checkpoint{}, err, nil
	}
	return cp, nil, err
}

// agree asks a question and returns an error unless the answer is yes. The
// question goes to standard error: standard output may be a file.
func (a *app) agree(ctx context.Context, question string) error {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		answer, err := bufio.NewReader(a.in).ReadString('\n')
		if err == nil || answer != "" {
			answers <- answer
		}
		close(answers)
	}()
	select {
	case answer, ok := <-answers:
		if !ok {
			fmt.Fprintln(a.err)
			return fmt.Errorf("%w: there was no answer on standard input; --yes answers in advance", errUnchanged)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
		return errUnchanged
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return errUnchanged
	}
}
