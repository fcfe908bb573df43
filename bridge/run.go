package bridge

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

const (
	// Waits after transient errors double from the first to the second.
	minBackoff = 500 * time.Millisecond
	maxBackoff = time.Minute
	// Waits after permanent errors: a person has to act, and will want the
	// feed to go on soon after that.
	minHalt = 15 * time.Second
	maxHalt = 5 * time.Minute
	// How long a copy that lost a race leaves the feed to the winner is twice
	// the poll interval, within these bounds.
	minStandby = time.Second
	maxStandby = 30 * time.Second
	// How old its knowledge of the checkpoint may get while a copy is idle.
	recheck = 30 * time.Second
	// How long an upstream may ask to be left alone.
	maxFresh = time.Hour
	// How often a cursor is stored that differs from the stored one only in what saves
	// work. Each commit takes a write on every replica, and a position of the topic.
	storeEquivalent = time.Minute
	// How often a long stretch of reading is heard of in the log.
	progress = 10 * time.Second
)

// Bridge copies one feed to one topic. Its fields are set before Run is called
// and left alone from then on.
type Bridge struct {
	// Feed is the feed's name. A topic whose checkpoint names another is
	// refused.
	Feed string
	// Writer names this copy in the checkpoints that it makes.
	Writer string

	// Open returns the source to read with, and its kind. The checkpoint's
	// cursor is of the kind that it is given, which is empty if there is none;
	// if the kind that it returns is another, the topic is refused. It is called
	// in each session, and its errors are taken like those of the source.
	Open func(ctx context.Context, kind string) (source Source, of string, err error)
	Sink Sink

	// Every is how long to wait between polls when there is nothing new.
	Every time.Duration
	// Limits is how large a commit may get by joining batches that are at
	// hand. A batch that is larger by itself is committed as it is.
	Limits Limits
	// ReadAhead is how many bytes of entities may wait, read, for earlier
	// commits. One more batch is read beyond it.
	ReadAhead int

	Log      *slog.Logger
	Observer Observer

	// The rest is owned by the goroutine in Run.

	// failures counts the sessions that ended in an error since one got
	// anywhere.
	failures int
	// source is that of the session, and kind its kind.
	source Source
	kind   string
	// last is the newest checkpoint that this copy has seen.
	last checkpoint.Checkpoint
	// unstored is a cursor that is equivalent to that of last and was read behind it,
	// or nil.
	unstored feed.Cursor
	// The current stretch of reading, for the log: when it began or was last
	// reported, and the entities published since.
	stretch time.Time
	moved   int
}

// Run copies until ctx ends, and then returns nil once the commit in flight has
// ended. Whatever goes wrong meanwhile is reported to the Observer and tried
// again; Run never gives up.
func (b *Bridge) Run(ctx context.Context) error {
	b.enter(Status{State: Starting})
	defer func() { b.enter(Status{State: Stopped}) }()
	for {
		err := b.session(ctx)
		for errors.Is(err, checkpoint.ErrConflict) && ctx.Err() == nil {
			err = b.standby(ctx, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			b.fail(ctx, err)
		}
	}
}

// session asks where the topic stands and copies from there on. It returns nil
// when it is time to ask again, and otherwise why it could not go on.
func (b *Bridge) session(ctx context.Context) error {
	cp, err := b.Sink.Resume(ctx)
	if err != nil {
		return err
	}
	if b.source, b.kind, err = b.open(ctx, cp); err != nil {
		return err
	}
	b.last, b.unstored = cp, nil
	if b.failures == 0 {
		// After a failure the state says so until something works: a state
		// that changes with every attempt would hide it from whoever watches.
		b.enter(Status{State: Reading})
	}

	r := b.startReading(ctx, cp.Cursor)
	defer r.stop()
	for looked := time.Now(); ctx.Err() == nil && time.Since(looked) < recheck; {
		batch, err := r.next(ctx)
		if err != nil {
			return err
		}
		moved, err := b.settle(ctx, batch, r.ahead)
		if err != nil {
			return err
		}
		if b.failures > 0 {
			b.failures = 0
			b.enter(Status{State: Reading})
		}
		if moved {
			looked = time.Now()
		}
		if batch.More {
			continue
		}
		// Behind the look of a watch the sink would take a commit that goes on
		// from the old place, so this session must not make one.
		if stale, err := b.watch(ctx, Status{State: Idle}, max(b.Every, min(batch.Fresh, maxFresh))); stale || err != nil {
			return err
		}
	}
	return nil
}

// open returns the source that goes on from the checkpoint.
func (b *Bridge) open(ctx context.Context, cp checkpoint.Checkpoint) (Source, string, error) {
	source, kind, err := b.Open(ctx, cp.Kind())
	if err != nil {
		return nil, "", err
	}
	return source, kind, cp.Check(b.Feed, kind)
}

// watch waits like pause. A wait that is longer than what is known of the
// checkpoint may get old looks at it on the way, and ends early if it is not
// what this copy has seen last: another copy has committed, or a person has
// moved it. What the session knows is stale then.
func (b *Bridge) watch(ctx context.Context, s Status, d time.Duration) (stale bool, err error) {
	if d <= recheck {
		return false, b.pause(ctx, s, d)
	}
	s.Until = time.Now().Add(d)
	b.enter(s)
	for left := d; left > 0; left = time.Until(s.Until) {
		if err := sleep(ctx, min(jittered(recheck), left)); err != nil {
			return false, err
		}
		cp, err := b.Sink.Resume(ctx)
		switch {
		case err != nil && s.State == Idle:
			return false, err
		case err == nil && !sameCheckpoint(cp, b.last):
			return true, nil
		}
	}
	return false, nil
}

func sameCheckpoint(a, b checkpoint.Checkpoint) bool {
	return bytes.Equal(a.Cursor, b.Cursor) && a.Count == b.Count && a.Moved.Equal(b.Moved)
}

// settle commits the batch if it moves anything. What ahead returns is what the
// next batch will have.
func (b *Bridge) settle(ctx context.Context, batch feed.Batch, ahead func() []feed.Entity) (moved bool, err error) {
	if len(batch.Entities) == 0 && (bytes.Equal(batch.Cursor, b.last.Cursor) || b.defers(batch)) {
		// If the process dies here, the feed is asked once more without the validators.
		b.unstored, batch.Cursor = batch.Cursor, b.last.Cursor
		b.Observer.Settled(batch, 0)
		b.report(false)
		return false, nil
	}
	cp := checkpoint.Checkpoint{
		Feed:   b.Feed,
		Source: b.kind,
		Cursor: batch.Cursor,
		Count:  b.last.Count + uint64(len(batch.Entities)),
		At:     time.Now(),
		Writer: b.Writer,
		Moved:  b.last.Moved,
	}
	if b.stretch.IsZero() {
		b.stretch = cp.At
	}
	// The stop of the process does not reach the commit: see the package
	// comment. The sink bounds it in time. If the process dies here, all of
	// the batch is published and cp is stored, or nothing of it is.
	if err := b.commit(context.WithoutCancel(ctx), batch.Entities, cp, ahead); err != nil {
		return false, err
	}
	took := time.Since(cp.At)
	b.last, b.unstored = cp, nil
	b.moved += len(batch.Entities)
	b.Observer.Settled(batch, took)
	b.Log.Debug("committed", "entities", len(batch.Entities), "bytes", batch.Size(), "count", cp.Count, "took", took)
	b.report(batch.More)
	return true, nil
}

// defers reports whether the cursor of a batch without entities can be stored later.
func (b *Bridge) defers(batch feed.Batch) bool {
	if batch.Equivalent == nil || !bytes.Equal(batch.Equivalent, b.last.Cursor) && !bytes.Equal(batch.Equivalent, b.unstored) {
		return false
	}
	age := time.Since(b.last.At)
	return age >= 0 && age < storeEquivalent
}

func (b *Bridge) commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, ahead func() []feed.Entity) error {
	if s, ok := b.Sink.(Stager); ok {
		return s.CommitStaging(ctx, entities, cp, ahead)
	}
	return b.Sink.Commit(ctx, entities, cp)
}

// report logs what was published: at the end of a stretch of reading, and now
// and then within a long one.
func (b *Bridge) report(more bool) {
	took := time.Since(b.stretch)
	if more && took < progress {
		return
	}
	if b.moved > 0 {
		b.Log.Info("published", "entities", b.moved, "count", b.last.Count, "took", took.Round(time.Millisecond), "caught_up", !more)
	}
	b.stretch, b.moved = time.Time{}, 0
	if more {
		b.stretch = time.Now()
	}
}

// standby leaves the feed to the copy that won the race until the checkpoint
// stands still. It returns nil when it is this copy's turn to try.
func (b *Bridge) standby(ctx context.Context, lost error) error {
	wait := min(max(2*b.Every, minStandby), maxStandby)
	seen := b.last
	for first := true; ; first = false {
		if first {
			b.Log.Info("someone else has committed to the topic; standing by", "error", lost)
		}
		if err := b.pause(ctx, Status{State: Standby, Err: lost}, wait); err != nil {
			return err
		}
		cp, err := b.Sink.Resume(ctx)
		if err != nil {
			return err
		}
		b.last = cp
		if sameCheckpoint(cp, seen) {
			return nil
		}
		seen = cp
	}
}

// fail says what went wrong and waits for as long as it makes sense to.
func (b *Bridge) fail(ctx context.Context, err error) {
	state, least, most := Retrying, minBackoff, maxBackoff
	if errors.Is(err, feed.ErrPermanent) {
		state, least, most = Halted, minHalt, maxHalt
	}
	wait := most
	if b.failures < 10 {
		wait = min(least<<b.failures, most)
	}
	b.failures++
	var later RetryLater
	if errors.As(err, &later) {
		wait = max(wait, later.RetryAfter())
	}
	level := slog.LevelWarn
	if state == Halted {
		level = slog.LevelError
	}
	b.Log.Log(ctx, level, "feed "+string(state), "error", err, "attempt", b.failures, "next_attempt_in", wait)
	_, _ = b.watch(ctx, Status{State: state, Err: err}, wait)
}

// pause enters the state and waits for about as long as d, or until ctx ends,
// whose error it returns then.
func (b *Bridge) pause(ctx context.Context, s Status, d time.Duration) error {
	d = jittered(d)
	s.Until = time.Now().Add(d)
	b.enter(s)
	return sleep(ctx, d)
}

// jittered is about d.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Bridge) enter(s Status) {
	s.Since = time.Now()
	s.Checkpoint = b.last
	b.Observer.Entered(s)
}
