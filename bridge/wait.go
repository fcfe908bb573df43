package bridge

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/retry"
)

const (
	// A copy that lost a race leaves the feed to the winner for twice the poll interval,
	// within these bounds.
	minStandby = time.Second
	maxStandby = 30 * time.Second
	// The time from a hint to the read of the checkpoint. A hint may come before the commit is
	// stored, and several commits in this time need one read.
	hintDelay = time.Second
	// The longest wait between polls that an upstream can request.
	maxFresh = time.Hour
	// After the bus is reachable again, its feeds retry at random times within this time, or
	// later if their Pacer delays them, so that many of them do not retry at once.
	spread = time.Second
)

// waiter decides how long the bridge waits between two steps, and in which state. It is owned by
// the steps.
//
// During a wait the checkpoint is read now and then, because a person or another copy may have
// moved it. What that read means is decided by continueWait, for each state.
type waiter struct {
	schedule pollSchedule
	spacing  func() time.Duration // that of the Bridge
	pacer    *Pacer
	wakeStep func() // makes the next step begin

	known    *knownCheckpoint
	failures *failures
	report   *reporter

	// wait is the present one, or the last one.
	wait wait
}

// wait is a wait between two steps. The zero wait is over.
type wait struct {
	status Status
	// next is when the next step is due. If that is before status.Until, it reads the
	// checkpoint, which may end the wait, unless the bus has confirmed it meanwhile. In the
	// states Standby and Paused only the checkpoint ends the wait.
	next time.Time
	// reconnected ends a wait after an error of the sink when it ends; nil for any other.
	reconnected context.Context
	// forget keeps reconnected from beginning the next step; nil if there is no reconnected.
	forget func() bool
}

// isOver reports whether the wait is over without regard to the checkpoint.
func (w *waiter) isOver() bool {
	s := w.wait.status
	return s.State != Standby && s.State != Paused && !time.Now().Before(s.Until)
}

// timeLeft returns the time until the next step is due.
func (w *waiter) timeLeft() time.Duration {
	if reconnected := w.wait.reconnected; reconnected != nil && reconnected.Err() != nil {
		// Each time the bus is reachable, even for a second, there is an attempt at once.
		w.failures.restartBackoff()
		w.wait.reconnected = nil
		// Feeds that failed together would try again together, so all of them get a time.
		w.wait.next = time.Now().Add(max(rand.N(spread), w.pacer.delay()))
		w.wait.status.Until = w.wait.next
	}
	left := time.Until(w.wait.next)
	if left <= 0 && !w.isOver() && w.isConfirmable() && !w.known.invalid {
		w.continueFor(w.recheckAfter())
		left = time.Until(w.wait.next)
	}
	return left
}

// continueFor makes the next step of the wait due after d, or at its end.
func (w *waiter) continueFor(d time.Duration) {
	w.wait.next = time.Now().Add(d)
	if until := w.wait.status.Until; w.wait.status.State != Paused && until.Before(w.wait.next) {
		w.wait.next = until
	}
}

// beginStart returns the time until the feed may start, because too many others are starting. If
// that is zero, the slot must be released after the step. A feed that has started may
// always go on.
func (w *waiter) beginStart() (start *limit.Slot, left time.Duration) {
	if w.wait.status.State != Starting {
		return nil, 0
	}
	if start, left = w.pacer.begin(); left > 0 {
		until := time.Now().Add(left)
		w.startWait(Status{State: Starting, Until: until}, until)
	}
	return start, left
}

// startWait enters the state and waits until next.
func (w *waiter) startWait(s Status, next time.Time) {
	w.endWait()
	w.wait = wait{status: s, next: next}
	w.report.enterState(s)
}

// endWait ends the wait.
func (w *waiter) endWait() {
	if w.wait.forget != nil {
		w.wait.forget()
	}
	w.wait = wait{}
}

// waitForPoll waits until the next poll. fresh is how long upstream wants not to be asked.
func (w *waiter) waitForPoll(fresh time.Duration) {
	every := w.schedule.every
	if w.spacing != nil {
		fresh = max(fresh, w.spacing())
	}
	if fresh = min(fresh, maxFresh); fresh > every {
		// Feeds of a host that were polled together would be polled together for ever.
		w.waitFor(Status{State: Idle}, fresh+rand.N(max(min(every, fresh/4), 1)))
		return
	}
	now, most := time.Now(), min(every, recheck)
	w.waitFor(Status{State: Idle}, w.schedule.nextPoll(now).Sub(now)+retry.Jitter(most)-most)
}

// waitFor enters the state and waits for d. Meanwhile the checkpoint is read when it may have
// changed.
func (w *waiter) waitFor(s Status, d time.Duration) {
	s.Until = time.Now().Add(d)
	w.startWait(s, s.Until)
	if d > recheck {
		w.continueFor(w.recheckAfter())
	}
}

// waitAfterError reports the error and waits before the next attempt. After an error of the
// sink the wait ends when reconnected ends.
func (w *waiter) waitAfterError(err error, reconnected context.Context) {
	err = w.failures.keepCause(err)
	state, backoff := w.failures.countFailure(err)
	s, d := Status{State: state, Err: err, Attempt: w.failures.attempts()}, jitter(backoff)
	w.report.logRetry(s, d)
	w.waitFor(s, d)
	if reconnected == nil || !IsSinkError(err) {
		return // otherwise upstream may have requested the wait
	}
	w.wait.reconnected, w.wait.forget = reconnected, context.AfterFunc(reconnected, w.wakeStep)
}

// waitInStandby waits as long as another copy, which won the race, moves the checkpoint.
func (w *waiter) waitInStandby(lost error) {
	if w.wait.status.State != Standby {
		w.report.logStandby(lost)
	}
	until := time.Now().Add(retry.Jitter(min(max(2*w.schedule.every, minStandby), maxStandby)))
	w.startWait(Status{State: Standby, Err: lost, Until: until}, until)
}

// waitWhilePaused waits as long as the checkpoint is paused. The source has been released.
func (w *waiter) waitWhilePaused(cp checkpoint.Checkpoint) {
	w.known.set(cp)
	w.startWait(Status{State: Paused}, time.Now().Add(w.known.lifetime))
}

// takeHint moves the next read of the checkpoint forward. In Standby the other copy is expected to
// commit.
func (w *waiter) takeHint() {
	if state := w.wait.status.State; state == "" || state == Starting || state == Standby {
		return
	}
	delay := retry.Jitter(hintDelay)
	if w.isConfirmable() && !w.known.invalid {
		// Also if the next step was due sooner: it could read the checkpoint before the commit.
		w.continueFor(delay)
	} else if next := time.Now().Add(delay); next.Before(w.wait.next) {
		w.wait.next = next
	}
	w.known.invalidate()
}

// isConfirmable reports whether the wait needs no read of the checkpoint as long as the bus confirms
// it. After an error the read shows whether the topic works again.
func (w *waiter) isConfirmable() bool {
	return w.wait.status.State == Idle || w.wait.status.State == Paused
}

// recheckAfter returns the time until the checkpoint is read again, unless the bus has confirmed it
// by then.
func (w *waiter) recheckAfter() time.Duration {
	if w.isConfirmable() {
		return w.known.lifetime - time.Since(w.known.confirmedAt())
	}
	return retry.Jitter(recheck)
}

// continueWait decides, after Resume has returned cp or err, whether the wait goes on. If the
// checkpoint is not the one that this copy has seen last, another copy has committed or a person
// has moved it. Then the sink would accept a commit that continues from an older cursor, so the
// wait does not go on as it is.
func (w *waiter) continueWait(cp checkpoint.Checkpoint, err error) (again bool, _ error) {
	now, changed := &w.wait, err == nil && w.known.differsFrom(cp)
	switch state := now.status.State; {
	case w.isOver():
		return false, err
	case state == Retrying || state == Halted:
		// A stream can come back without a reconnect, so a Resume that works ends the wait
		// after an error of Resume.
		if changed || err == nil && isResumeError(now.status.Err) {
			return false, nil
		}
	case err != nil:
		return false, err
	case state == Standby:
		if !changed {
			return false, nil
		}
		w.known.set(cp)
		w.waitInStandby(now.status.Err)
		return true, nil
	case state == Paused:
		switch {
		case !cp.IsPaused() || cp.Feed != w.schedule.feed:
			return false, nil
		case changed:
			w.waitWhilePaused(cp)
			return true, nil
		}
		w.known.confirmLast()
	case changed && !w.known.isSuccessor(cp):
		return false, nil
	case changed:
		// Another copy has published entities. This one polls at its own time, from the new cursor.
		w.known.set(cp)
		w.report.enterState(now.status)
	default:
		w.known.confirmLast()
	}
	w.continueFor(w.recheckAfter())
	return true, nil
}

// jitter returns a random duration near d, unless that is long.
func jitter(d time.Duration) time.Duration {
	if d > recheck {
		return d
	}
	return retry.Jitter(d)
}
