// Package bridge copies one feed to one topic: all entities, in order, each once.
//
// A [Bridge] has a [feed.Source], which reads the feed from a cursor, and a [Sink], which appends
// entities to the topic together with the checkpoint that has the next cursor. All state is
// on the bus. The loop gets the checkpoint from the sink, reads on from its cursor and
// commits. After any error, a lost answer, a conflict with another copy or a crash, it gets
// the checkpoint again. Starting and recovering are the same code.
//
// The topic may go back to an earlier state while copies hold newer knowledge. The bridge
// trusts only what Resume returns; the sink's fence compares more than a number.
//
// # Rules
//
// A test covers each of them. The others are where they are implemented.
//
//   - An empty batch that does not move the cursor is not committed: the commits of idle
//     copies would invalidate the fence of the busy one again and again.
//   - A batch that says More without moving the cursor is the end of the feed for now.
//   - Reading ahead has ended before Resume is called again, and before a wait begins. Batches
//     that were read and not committed are dropped with their session.
//   - A bridge works in steps. A step ends when there is nothing to do until a time, and leaves
//     no goroutine, channel or batch behind: a timer, a command, a hint or a stop begins the next
//     one.
//   - A stop lets the commit in flight finish. Otherwise the next start would have to find out
//     whether it took place.
//   - A command of a person (pause, resume, poll) ends the session or the wait, and never a commit
//     in flight. It is carried out after Resume, like everything else.
//   - A feed waits for budget in three ways, so that feeds never wait for each other. A poll
//     reads without budget until it has found 64 KiB. A feed with a backlog that holds no
//     batch waits a second, keeping its place in the queue, and then reads one without. Of the
//     feeds that wait within an entity, one at a time continues without. Batches that are held
//     can be committed, and commits need no budget.
//
// # Files
//
// Read bridge.go first: its step and advance are the loop. The other files have one part each and
// know the parts below them only:
//
//	bridge.go            the steps, in order; Start, Poll, SetPaused and Hint
//	  wait.go            how long to wait, in which state, and whether a wait goes on
//	  pump.go            from the source to the sink, until there is nothing new
//	    prefetch.go      reads ahead of the commits
//	    commit_size.go   how large the next commit may be
//	  report.go          to the observer, the log, and people who wait for a poll
//	  known_checkpoint.go, failures.go
//	                     what the parts above share: the checkpoint as this copy knows it, and
//	                     the failures in a row
//	  command.go         commands of people, and the turns that they end
//	  work.go            what the running step waits for, for people who wait for it
//	  pause.go           the commit that pauses a feed
//	  stepper.go         calls the steps, without a goroutine while it waits
//	  pacer.go, poll_schedule.go
//	                     when: after starts and outages, after polls
//	  sink.go, status.go the interfaces Sink and Observer, and their errors
//
// # Goroutines
//
// One goroutine at a time runs a step, so the state of the steps needs no lock: the stepper's mutex
// orders a step before the next one. The step calls the source for the first batch of a read. If
// there are more, the prefetcher has a goroutine that calls it; the pump waits for its end before
// the step ends.
//
// Other goroutines reach a bridge through commandQueue, hinted, stepper and work only. What they hand over
// is stored before the stepper is woken, by a hint itself and by a command through the end of the
// turn's context, so the step that follows finds it. No source, sink or observer is called while
// a mutex is held. The prefetcher's mutex may be held while that of the budget is acquired, and
// never the other way round; apart from that, the bridge holds no two together.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
)

// Bridge copies one feed to one topic. Its fields are set before Start is called and not
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
	Open func(ctx context.Context, kind string) (source feed.Source, of string, err error)
	Sink Sink

	// Every is the interval between polls when there is nothing new.
	Every time.Duration
	// Limits bounds commits of several batches. A single batch that is larger is committed
	// as it is. Commits to a slow bus are smaller.
	Limits feed.Limits
	// ReadAhead is the number of bytes of entities that may be held until they are
	// committed, besides one batch. Batches are joined to commits of up to three
	// quarters of it.
	ReadAhead int
	// Share is the feed's share of the budget for the entities that all feeds hold. Nil
	// means that ReadAhead is the only bound.
	Share *readahead.Share

	// Reconnected returns a context that ends when the sink's bus is next reachable
	// again after an outage. That ends a wait after an error of the sink. If Reconnected is
	// nil, or returns nil, waits take their full time.
	Reconnected func() context.Context

	// Unchanged returns when the bus last showed that the checkpoint that Sink last returned or
	// stored is still the newest one; the zero time if that is not known. Such a confirmation
	// replaces a read of the checkpoint. Any goroutine calls it. Nil means that only reads
	// confirm.
	Unchanged func() time.Time

	// Pacer delays the start, and the next attempt after a reconnect of the bus. Feeds of a
	// process share it. Nil means no delay.
	Pacer *Pacer
	// Host is the host of the feed, and StartGap the time between the starts of two of its feeds. Zero means that
	// they do not wait for each other.
	Host     string
	StartGap time.Duration
	// Spacing returns the time between two polls that the host demands at least; nil means none.
	Spacing func() time.Duration

	Log      *slog.Logger
	Observer Observer

	// Any goroutine uses these.
	commands commandQueue
	hinted   atomic.Bool // Hint was called since the last step
	stepper  stepper
	work     work

	// The rest is owned by the steps.

	// ctx ends when the bridge is to stop.
	ctx      context.Context
	sink     Sink // Sink, whose calls are noted as work
	known    knownCheckpoint
	failures failures
	report   reporter
	waiter   waiter
	pump     pump
}

// Start begins to copy, and returns at once. When ctx ends, the bridge stops: the commit in flight
// ends, and then stopped is called. Errors are reported to the Observer, which logs them, and
// retried without limit. A bridge that waits has no goroutine. Start is called once.
func (b *Bridge) Start(ctx context.Context, stopped func()) {
	b.ctx = ctx
	b.sink = workSink{b.Sink, &b.work}
	b.known.unchanged = b.Unchanged
	b.report = reporter{log: b.Log, observer: b.Observer, commands: &b.commands, known: &b.known}
	b.waiter = waiter{
		schedule: b.schedule(), spacing: b.Spacing, pacer: b.Pacer, wakeStep: b.stepper.wake,
		known: &b.known, failures: &b.failures, report: &b.report,
	}
	b.pump = pump{
		feed: b.Feed, writer: b.Writer, source: sourceSlot{open: b.Open}, sink: b.sink,
		prefetch: prefetchOptions{observer: b.Observer, readAhead: b.ReadAhead, share: b.Share},
		known:    &b.known, failures: &b.failures, report: &b.report,
	}
	b.pump.init(b.Limits)
	b.beginTurn()
	starting := Status{State: Starting}
	if delay := b.Pacer.delayStart(b.Host, b.StartGap); delay > 0 && len(b.commands.turn.commands) == 0 {
		starting.Until = time.Now().Add(delay)
	}
	b.waiter.startWait(starting, starting.Until)
	b.stepper.start(b.step, stopped)
}

// Poll makes a running bridge read the checkpoint and poll now, whatever it waits for, and
// returns when the entities that were found are published. A read that is going on is started
// again from the checkpoint; if it does not yield, the error is [ErrBusy]. If ctx ends first, its
// error is returned and the poll continues. It may be called from any goroutine. After the bridge
// has stopped the error is [ErrStopped].
func (b *Bridge) Poll(ctx context.Context) (PollResult, error) {
	r, err := b.commands.send(ctx, &b.work, &command{})
	return r.poll, err
}

// SetPaused pauses a running feed, or resumes it, like the function [SetPaused]. It may be
// called from any goroutine. A bridge that publishes makes the commit between two others, so
// that it never loses a race against itself. If ctx ends first, its error is returned, and it
// is unknown whether the feed was paused. After [ErrBusy] nothing was changed. After the bridge has
// stopped the error is [ErrStopped].
func (b *Bridge) SetPaused(ctx context.Context, pause bool) (PauseResult, error) {
	r, err := b.commands.send(ctx, &b.work, &command{pause: &pause})
	return r.pause, err
}

// Hint reports to a running bridge that the copy writer has committed to the topic. A bridge that
// waits reads the checkpoint about a second later, unless it is the writer. It may be called from any
// goroutine.
//
// A hint only saves time, and any may be lost. It keeps an idle copy up to date about two things:
// that the feed was paused, or its position moved. Without it the copy learns that when it reads
// the checkpoint, 30 to 45 seconds after Unchanged has confirmed it for the last time, or at its next
// commit, which the fence refuses. So a lost hint costs polls, and never an entity.
func (b *Bridge) Hint(writer string) {
	if writer == b.Writer {
		return
	}
	b.hinted.Store(true)
	b.stepper.wake()
}

// NextPoll returns when a feed that was read to its end at a time is polled next. Each feed has a
// fixed offset in Every, so that polls of many feeds stay spread over it whenever they began.
// Feeds differ in it by their names, and the copies of a feed by their writers: they would
// otherwise find the same entities at the same time, and all but one would lose the race. A
// feed reaches its offset with its second poll, after half of Every to one and a half; from then
// on polls are Every apart. It may be called from any goroutine.
func (b *Bridge) NextPoll(polled time.Time) time.Time { return b.schedule().nextPoll(polled) }

// Work returns what the bridge waits for. It may be called from any goroutine.
func (b *Bridge) Work() Work { return b.work.current() }

func (b *Bridge) schedule() pollSchedule {
	return pollSchedule{feed: b.Feed, writer: b.Writer, every: b.Every}
}

// beginTurn begins a turn, in which the checkpoint is read first.
func (b *Bridge) beginTurn() {
	b.commands.beginTurn(b.ctx)
	context.AfterFunc(b.commands.turn.ctx, b.stepper.wake)
	b.hinted.Store(false) // the checkpoint is read in any case
	b.known.invalidate()
}

// step copies, if the wait is over, and returns the time until the next step. A command or a stop
// ends the turn, and with it the wait.
func (b *Bridge) step() (wait time.Duration, more bool) {
	b.work.begin(ReadingFeed)
	defer b.work.end()
	if b.commands.turn.ctx.Err() != nil {
		b.waiter.endWait()
		if b.ctx.Err() != nil {
			b.stop()
			return 0, false
		}
		b.beginTurn()
	}
	if b.hinted.Swap(false) {
		b.waiter.takeHint()
	}
	if left := b.waiter.timeLeft(); left > 0 {
		return left, true
	}
	start, left := b.waiter.beginStart()
	if left > 0 {
		return left, true
	}
	b.pump.start = start
	defer start.Release()
	turn := b.commands.turn
	// Taken before the bus is used, so that a reconnect at any time from here on ends the wait
	// after an error.
	var reconnected context.Context
	if b.Reconnected != nil {
		reconnected = b.Reconnected()
	}
	err := b.advance(turn.ctx)
	if err != nil {
		b.known.invalidate()
		err = cmp.Or(b.pump.source.release(), err)
	}
	switch {
	case err == nil || turn.ctx.Err() != nil:
	case errors.Is(err, checkpoint.ErrConflict):
		turn.failPauses(err)
		if !b.conflictWasPause(turn.ctx) {
			b.waiter.waitInStandby(err)
		}
	default:
		turn.failPauses(err)
		b.waiter.waitAfterError(err, reconnected)
	}
	return b.waiter.timeLeft(), true
}

// stop is the last step.
func (b *Bridge) stop() {
	b.report.logPanic(b.pump.source.release())
	b.commands.stop()
	b.report.enterState(Status{State: Stopped})
}

// advance goes on after a wait: it reads the checkpoint unless that is known, and continues to
// wait, or copies until there is nothing new and waits for the next poll.
func (b *Bridge) advance(ctx context.Context) (err error) {
	defer recoverPanic(&err)
	if !b.known.isConfirmed() || !b.waiter.isOver() {
		cp, err := resumeSink(ctx, b.sink)
		if again, err := b.waiter.continueWait(cp, err); again || err != nil {
			return err
		}
		if paused, err := b.beginSession(ctx, cp); paused || err != nil {
			return err
		}
	}
	b.waiter.endWait()
	caughtUp, fresh, err := b.pump.copyAll(ctx)
	if caughtUp {
		b.waiter.waitForPoll(fresh)
	}
	return err
}

// beginSession begins a session from the checkpoint, from which the sink has resumed. If the feed is
// paused, it waits and returns true.
func (b *Bridge) beginSession(ctx context.Context, cp checkpoint.Checkpoint) (paused bool, err error) {
	b.waiter.endWait()
	if cp, err = b.applyPauseCommands(ctx, cp); err != nil {
		return false, err
	}
	b.report.logPause(cp)
	if !cp.IsPaused() || cp.Feed != b.Feed {
		return false, b.pump.begin(ctx, cp)
	}
	if err := b.pump.source.release(); err != nil {
		return false, err
	}
	b.failures.end()
	b.waiter.waitWhilePaused(cp)
	return true, nil
}

// applyPauseCommands pauses or resumes the feed, whose checkpoint is cp, as the commands of the turn
// demand. It returns the newest checkpoint. Commands have no result after an error.
func (b *Bridge) applyPauseCommands(ctx context.Context, cp checkpoint.Checkpoint) (_ checkpoint.Checkpoint, err error) {
	b.commands.turn.answer(func(c *command) (commandResult, bool) {
		if c.pause == nil || c.ctx.Err() != nil || err != nil {
			return commandResult{}, false
		}
		var r PauseResult
		if r, err = commitPause(ctx, b.sink, cp, b.Feed, b.Writer, *c.pause); err != nil {
			return commandResult{}, false
		}
		cp = r.Checkpoint
		return commandResult{pause: r}, true
	})
	return cp, err
}

// conflictWasPause reports whether the conflict was with a pause, so that there is no other copy to wait
// for.
func (b *Bridge) conflictWasPause(ctx context.Context) (paused bool) {
	var err error
	defer recoverPanic(&err) // then the next Resume shows it again
	cp, err := resumeSink(ctx, b.sink)
	return err == nil && cp.IsPaused()
}
