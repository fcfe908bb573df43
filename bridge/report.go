package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// logInterval is the interval of log lines during a long read.
const logInterval = 10 * time.Second

// reporter reports the steps to the observer, to the log, and to people who have requested a poll.
// It is owned by the steps.
type reporter struct {
	log      *slog.Logger
	observer Observer
	commands *commandQueue
	known    *knownCheckpoint

	// paused is the pause that was logged last, zero if the feed is not paused.
	paused time.Time
	// readSince is when the current read began or was last logged, and readCount the number of
	// entities published since.
	readSince time.Time
	readCount int
}

// enterState reports a change of the state. It adds the time and the known checkpoint.
func (r *reporter) enterState(s Status) {
	s.Since = time.Now()
	s.Checkpoint = r.known.last
	if s.State != Stopped { // an observer that keeps the last state does not keep the sink
		s.Confirmed = r.known.confirmedAt
	}
	r.observer.Entered(s)
	r.commands.answerPolls(s)
}

// batchSkipped reports a batch that needed no commit.
func (r *reporter) batchSkipped(batch feed.Batch) {
	r.commands.turn.duplicates += batch.Duplicates
	r.observer.Processed(batch, 0)
	r.logPublished(false)
}

// batchCommitted reports a batch whose commit took a time, and has stored the known checkpoint.
// published is the number of its entities that are in the topic.
func (r *reporter) batchCommitted(batch feed.Batch, published int, took time.Duration) {
	if r.readSince.IsZero() {
		r.readSince = r.known.last.At
	}
	r.readCount += published
	r.commands.turn.published += published
	r.commands.turn.duplicates += batch.Duplicates
	r.observer.Processed(batch, took)
	r.log.Debug("committed", "entities", published, "dead", len(batch.Entities)-published, "bytes", batch.Bytes, "count", r.known.last.Count, "took", took)
	r.logPublished(batch.More)
}

// logPublished logs the number of published entities at the end of a read, and in intervals
// during a long one.
func (r *reporter) logPublished(more bool) {
	took := time.Since(r.readSince)
	if more && took < logInterval {
		return
	}
	if r.readCount > 0 {
		r.log.Info("published", "entities", r.readCount, "count", r.known.last.Count, "took", took.Round(time.Millisecond), "caught_up", !more)
	}
	r.readSince, r.readCount = time.Time{}, 0
	if more {
		r.readSince = time.Now()
	}
}

// logPause logs that the feed was paused or resumed, once.
func (r *reporter) logPause(cp checkpoint.Checkpoint) {
	switch {
	case cp.Paused.Equal(r.paused):
	case cp.IsPaused():
		r.log.Info("the feed is paused", "since", cp.Paused)
	default:
		r.log.Info("the feed is resumed")
	}
	r.paused = cp.Paused
}

// logStandby logs that another copy has committed.
func (r *reporter) logStandby(lost error) {
	r.log.Info("another copy has committed to the topic; standing by", "error", lost)
}

// logRetry logs the wait after an error. The observer logs the error itself, when the state changes.
func (r *reporter) logRetry(s Status, wait time.Duration) {
	r.logPanic(s.Err)
	r.log.Debug("the feed is tried again later", "state", string(s.State), "error", s.Err, "attempt", s.Attempt, "next_attempt_in", wait)
}

// logPanic logs the stack of an error, if it was a panic.
func (r *reporter) logPanic(err error) {
	if p, ok := errors.AsType[*PanicError](err); ok {
		r.log.Error("a source or a sink has panicked; the feed is halted", "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
	}
}
