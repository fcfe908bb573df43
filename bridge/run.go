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
	"github.com/feedbridge/feedbridge/retry"
)

const (
	// Waits after transient errors double from the first to the second.
	minBackoff = 500 * time.Millisecond
	maxBackoff = time.Minute
	// Waits after permanent errors double likewise. They are short, so that the feed goes
	// on soon after a person has acted.
	minHalt = 15 * time.Second
	maxHalt = 5 * time.Minute
	// A copy that lost a race leaves the feed to the winner for twice the poll interval,
	// within these bounds.
	minStandby = time.Second
	maxStandby = 30 * time.Second
	// The largest interval between two reads of the checkpoint by an idle copy.
	recheck = 30 * time.Second
	// The longest wait between polls that an upstream can request.
	maxFresh = time.Hour
	// After the bus is reachable again, its feeds retry at random times within this time,
	// so that thousands of them do not retry at once.
	spread = time.Second
	// The interval at which a cursor is stored that differs from the stored one only in
	// data that saves work. Each commit takes a write on every replica, and a position of
	// the topic.
	storeEquivalent = time.Minute
	// The interval of log lines during a long read.
	progress = 10 * time.Second
)

// Bridge copies one feed to one topic. Its fields are set before Run is called and not
// changed after that.
type Bridge struct {
	// Feed is the feed's name. A topic whose checkpoint names another feed is refused.
	Feed string
	// Writer names this copy in the checkpoints that it makes.
	Writer string

	// Open returns the source and its kind. Its argument is the kind of the checkpoint's
	// cursor, or empty if there is none. If Open returns another kind, the topic is
	// refused. Open is called in each session. Its errors are handled like those of the
	// source.
	Open func(ctx context.Context, kind string) (source Source, of string, err error)
	Sink Sink

	// Every is the interval between polls when there is nothing new.
	Every time.Duration
	// Limits bounds commits of several batches. A single batch that is larger is committed
	// as it is.
	Limits Limits
	// ReadAhead is the number of bytes of entities that may be held until they are
	// committed, besides one batch. Batches are joined to commits of up to half of it.
	ReadAhead int
	// Share is the feed's share of the budget for the entities that all feeds hold. Nil
	// means that ReadAhead is the only bound.
	Share *Share

	// Reconnected returns a channel that is closed when the sink's bus is next reachable
	// again after an outage. That ends a wait after an error of the sink. If Reconnected is
	// nil, waits take their full time.
	Reconnected func() <-chan struct{}

	Log      *slog.Logger
	Observer Observer

	commands commandQueue

	// The rest is owned by the goroutine in Run.

	// turn is the present one.
	turn *turn
	// failing is set from the first session that ended in an error to the next one that
	// committed or found nothing new.
	failing bool
	// failures and halts count the sessions that ended in a transient and in a permanent error
	// since failing was set, or since the bus was last found reachable again.
	failures, halts int
	// source and kind are the source of the session, or of the last one, and its kind.
	// source is nil after it was released.
	source Source
	kind   string
	// last is the newest checkpoint that this copy has seen.
	last checkpoint.Checkpoint
	// unstored is a newer cursor that is equivalent to that of last, or nil.
	unstored feed.Cursor
	// For the log: the pause that was logged last, zero if the feed is not paused.
	paused time.Time
	// For the log: when the current read began or was last logged, and the number of
	// entities published since.
	stretch time.Time
	moved   int
}

// Run copies until ctx ends, and returns nil after the commit in flight has ended. Errors
// are reported to the Observer, which logs them, and retried without limit.
func (b *Bridge) Run(ctx context.Context) error {
	b.setState(Status{State: Starting})
	defer func() {
		b.commands.stop(b.turn)
		b.setState(Status{State: Stopped})
	}()
	for ctx.Err() == nil {
		b.turn = b.commands.beginTurn(ctx, b.turn)
		b.runTurn(b.turn.ctx)
		b.turn.end()
	}
	return nil
}

// runTurn runs a session and the wait after its error, until ctx ends.
func (b *Bridge) runTurn(ctx context.Context) {
	// Taken before the session, so that a reconnect at any time from here on ends the wait
	// after its error.
	reconnected := b.reconnected()
	err := b.session(ctx)
	if err != nil && ctx.Err() == nil {
		b.turn.failPauses(err)
	}
	for errors.Is(err, checkpoint.ErrConflict) && ctx.Err() == nil {
		err = b.waitForTurn(ctx, err)
	}
	if err != nil && ctx.Err() == nil {
		b.waitAfterError(ctx, err, reconnected)
	}
}

func (b *Bridge) reconnected() <-chan struct{} {
	if b.Reconnected == nil {
		return nil
	}
	return b.Reconnected()
}

// sinkError marks an error of the sink, as opposed to one of the source.
type sinkError struct {
	error
	resume bool // it is one of Resume
}

func (e *sinkError) Unwrap() error { return e.error }

// resumeSink calls the sink's Resume.
func (b *Bridge) resumeSink(ctx context.Context) (checkpoint.Checkpoint, error) {
	cp, err := b.Sink.Resume(ctx)
	if err != nil {
		return cp, &sinkError{err, true}
	}
	return cp, nil
}

// session gets the checkpoint and copies from its cursor on. It returns nil when the
// checkpoint must be read again, and otherwise the error that ended it.
func (b *Bridge) session(ctx context.Context) (err error) {
	defer func() {
		// The source may hold memory of an earlier session, even if this one ended before
		// its first read.
		if err != nil || ctx.Err() != nil {
			if panicked := b.releaseSource(); panicked != nil {
				err = panicked
			}
		}
	}()
	defer recoverPanic(&err)
	cp, err := b.resumeSink(ctx)
	if err != nil {
		return err
	}
	if cp, err = b.obeyPauses(ctx, cp); err != nil {
		return err
	}
	b.logPause(cp)
	if cp.IsPaused() && cp.Feed == b.Feed {
		if err := b.releaseSource(); err != nil {
			return err
		}
		return b.waitWhilePaused(ctx, cp)
	}
	source, kind, err := b.openSource(ctx, cp)
	if err != nil {
		return err
	}
	if kind != b.kind {
		if err := b.releaseSource(); err != nil {
			return err
		}
	}
	b.source, b.kind = source, kind
	b.last, b.unstored = cp, nil
	if !b.failing {
		// After an error the state does not change until a session works. A state that
		// changes with every attempt would hide the error.
		b.setState(Status{State: Reading})
	}

	p := b.startPrefetching(ctx, cp.Cursor)
	defer p.stop()
	for looked := time.Now(); ctx.Err() == nil && time.Since(looked) < recheck; {
		batch, err := p.nextBatch(ctx)
		if err != nil {
			return err
		}
		moved, err := b.commitBatch(ctx, batch, p.peekEntities)
		if err != nil {
			return err
		}
		p.release()
		if b.failing {
			b.failing, b.failures, b.halts = false, 0, 0
			b.setState(Status{State: Reading})
		}
		if moved {
			looked = time.Now()
		}
		if batch.More {
			continue
		}
		// After waitForRetry has read a newer checkpoint, the sink would accept a commit that
		// continues from an older cursor, so a stale session must end.
		if stale, err := b.waitForRetry(ctx, Status{State: Idle}, max(b.Every, min(batch.Fresh, maxFresh)), nil); stale || err != nil {
			return err
		}
	}
	return nil
}

// releaseSource releases the source of the last session, if that has not been done.
func (b *Bridge) releaseSource() (err error) {
	defer recoverPanic(&err)
	if source := b.source; source != nil {
		b.source = nil
		source.Release()
	}
	return nil
}

// openSource returns the source that continues from the checkpoint.
func (b *Bridge) openSource(ctx context.Context, cp checkpoint.Checkpoint) (Source, string, error) {
	source, kind, err := b.Open(ctx, cp.Kind())
	if err != nil {
		return nil, "", err
	}
	return source, kind, cp.Check(b.Feed, kind)
}

// waitForRetry sets the state and waits for about d, or until early is closed and a random
// part of spread has passed. Meanwhile it reads the checkpoint every recheck. If it is not the one
// that this copy has seen last, another copy has committed or a person has moved it: the
// wait ends, and stale is true. A wait after an error of Resume also ends when Resume
// works again, because a stream can come back without a reconnect.
func (b *Bridge) waitForRetry(ctx context.Context, s Status, d time.Duration, early <-chan struct{}) (stale bool, err error) {
	defer recoverPanic(&err)
	if d <= recheck {
		d = retry.Jitter(d)
	}
	s.Until = time.Now().Add(d)
	b.setState(s)
	for left := d; left > 0; left = time.Until(s.Until) {
		part := left
		if d > recheck {
			part = min(retry.Jitter(recheck), left)
		}
		woken, err := sleepUntil(ctx, part, early)
		if err != nil {
			return false, err
		}
		if woken {
			_, err := sleepUntil(ctx, min(rand.N(spread), max(0, time.Until(s.Until))), nil)
			return false, err
		}
		if d <= recheck {
			return false, nil
		}
		cp, err := b.resumeSink(ctx)
		switch {
		case err != nil && s.State == Idle:
			return false, err
		case err == nil && (!sameCheckpoint(cp, b.last) || ofResume(s.Err)):
			return true, nil
		}
	}
	return false, nil
}

// IsSinkError reports whether an error in a [Status] is one of the sink, and not of the source.
func IsSinkError(err error) bool {
	_, ok := errors.AsType[*sinkError](err)
	return ok
}

func ofResume(err error) bool {
	failed, ok := errors.AsType[*sinkError](err)
	return ok && failed.resume
}

func sameCheckpoint(a, b checkpoint.Checkpoint) bool {
	return bytes.Equal(a.Cursor, b.Cursor) && a.Count == b.Count && a.Moved.Equal(b.Moved) && a.Paused.Equal(b.Paused)
}

// commitBatch commits the batch, unless it has no entities and its cursor need not be
// stored. next returns the entities of the next batch, or nil.
func (b *Bridge) commitBatch(ctx context.Context, batch feed.Batch, next func() []feed.Entity) (moved bool, err error) {
	if len(batch.Entities) == 0 && (bytes.Equal(batch.Cursor, b.last.Cursor) || b.canDeferCursor(batch)) {
		// If the process dies here, the next poll is made without the newest validators.
		b.unstored, batch.Cursor = batch.Cursor, b.last.Cursor
		b.turn.duplicates += batch.Duplicates
		b.Observer.Settled(batch, 0)
		b.logPublished(false)
		return false, nil
	}
	cp := checkpoint.Checkpoint{
		Feed:   b.Feed,
		Source: b.kind,
		Cursor: batch.Cursor,
		// Dead letters do not count: they are not in the topic.
		Count:  b.last.Count + uint64(len(batch.Entities)-feed.CountDead(batch.Entities)),
		At:     time.Now(),
		Writer: b.Writer,
		Moved:  b.last.Moved,
	}
	// A stop of the process does not cancel the commit: see the package comment. The sink
	// bounds its time. If the process dies here, either all of the batch is published and
	// cp is stored, or nothing is.
	if err := b.Sink.Commit(context.WithoutCancel(ctx), batch.Entities, cp, next); err != nil {
		return false, &sinkError{err, false}
	}
	took := time.Since(cp.At)
	published := int(cp.Count - b.last.Count)
	b.last, b.unstored = cp, nil
	if b.stretch.IsZero() {
		b.stretch = cp.At
	}
	b.moved += published
	b.turn.published += published
	b.turn.duplicates += batch.Duplicates
	b.Observer.Settled(batch, took)
	b.Log.Debug("committed", "entities", published, "dead", len(batch.Entities)-published, "bytes", batch.Size(), "count", cp.Count, "took", took)
	b.logPublished(batch.More)
	return true, nil
}

// canDeferCursor reports whether the cursor of a batch without entities can be stored later.
func (b *Bridge) canDeferCursor(batch feed.Batch) bool {
	if batch.Equivalent == nil || !bytes.Equal(batch.Equivalent, b.last.Cursor) && !bytes.Equal(batch.Equivalent, b.unstored) {
		return false
	}
	age := time.Since(b.last.At)
	return age >= 0 && age < storeEquivalent
}

// logPublished logs the number of published entities at the end of a read, and every
// progress during a long one.
func (b *Bridge) logPublished(more bool) {
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

// waitForTurn waits as long as another copy, which won the race, moves the checkpoint. It
// returns nil when this copy should try again.
func (b *Bridge) waitForTurn(ctx context.Context, lost error) (err error) {
	defer recoverPanic(&err)
	wait := min(max(2*b.Every, minStandby), maxStandby)
	seen := b.last
	for first := true; ; first = false {
		if first {
			b.Log.Info("another copy has committed to the topic; standing by", "error", lost)
		}
		if err := b.waitIn(ctx, Status{State: Standby, Err: lost}, wait); err != nil {
			return err
		}
		cp, err := b.resumeSink(ctx)
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

// waitAfterError reports the error and waits before the next attempt. After an error of the
// sink the wait ends when reconnected is closed.
func (b *Bridge) waitAfterError(ctx context.Context, err error, reconnected <-chan struct{}) {
	b.logPanic(err)
	var ofSink *sinkError
	if !errors.As(err, &ofSink) {
		// The error is not one of the bus, and upstream may have requested the wait.
		reconnected = nil
	}
	state, backoff, count := Retrying, retry.Backoff{Min: minBackoff, Max: maxBackoff}, &b.failures
	if errors.Is(err, feed.ErrPermanent) {
		state, backoff, count = Halted, retry.Backoff{Min: minHalt, Max: maxHalt}, &b.halts
	}
	wait := max(backoff.After(*count), feed.RetryDelay(err))
	b.failing = true
	*count++
	b.Log.Debug("the feed is tried again later", "state", string(state), "error", err, "attempt", b.failures+b.halts, "next_attempt_in", wait)
	_, _ = b.waitForRetry(ctx, Status{State: state, Err: err, Attempt: b.failures + b.halts}, wait, reconnected)
	select {
	case <-reconnected:
		// Each time the bus is reachable, even for a second, there is an attempt at once.
		b.failures, b.halts = 0, 0
	default:
	}
}

// waitIn sets the state and waits for about d. If ctx ends first, it returns its error.
func (b *Bridge) waitIn(ctx context.Context, s Status, d time.Duration) error {
	d = retry.Jitter(d)
	s.Until = time.Now().Add(d)
	b.setState(s)
	_, err := sleepUntil(ctx, d, nil)
	return err
}

// sleepUntil waits for d, or until early is closed, which it reports. If ctx ends first, it
// returns its error.
func sleepUntil(ctx context.Context, d time.Duration, early <-chan struct{}) (woken bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-early:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (b *Bridge) setState(s Status) {
	s.Since = time.Now()
	s.Checkpoint = b.last
	b.Observer.Entered(s)
	if b.turn != nil && b.turn.answerPolls(s) {
		b.commands.endPoll()
	}
}
