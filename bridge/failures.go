package bridge

import (
	"errors"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
)

const (
	// Waits after transient errors double from the first to the second.
	minBackoff = 500 * time.Millisecond
	maxBackoff = time.Minute
	// Waits after permanent errors double likewise. They are short, so that the feed goes
	// on soon after a person has acted.
	minHalt = 15 * time.Second
	maxHalt = 5 * time.Minute
)

// failures counts the sessions in a row that ended in an error. The zero value is none. It is
// owned by the steps.
type failures struct {
	// failing is set from the first session that ended in an error to the next one that
	// committed or found nothing new.
	failing bool
	// transient and permanent count the sessions by the kind of their error, since failing
	// was set, or since the bus was last found reachable again.
	transient, permanent int
	// last is the error of the last session that was counted.
	last error
}

// keepCause returns err, or instead of an error that only shows that no request was made the last one,
// if a person has to act on that.
func (f *failures) keepCause(err error) error {
	if errors.Is(err, feed.ErrNotRequested) && errors.Is(f.last, feed.ErrPermanent) {
		return feed.RetryAfter(f.last, feed.RetryDelay(err))
	}
	return err
}

// countFailure counts a session that ended in err. It returns the state of the bridge and the time until
// the next attempt, without jitter.
func (f *failures) countFailure(err error) (state State, wait time.Duration) {
	state, backoff, count := Retrying, retry.Backoff{Min: minBackoff, Max: maxBackoff}, &f.transient
	if errors.Is(err, feed.ErrPermanent) {
		state, backoff, count = Halted, retry.Backoff{Min: minHalt, Max: maxHalt}, &f.permanent
	}
	wait = max(backoff.After(*count), feed.RetryDelay(err))
	f.failing, f.last = true, err
	*count++
	return state, wait
}

// attempts returns the number of sessions that were counted.
func (f *failures) attempts() int { return f.transient + f.permanent }

// restartBackoff makes the waits begin with the shortest one again.
func (f *failures) restartBackoff() { f.transient, f.permanent = 0, 0 }

// end reports whether the sessions were failing, and makes that end.
func (f *failures) end() (ended bool) {
	ended = f.failing
	*f = failures{}
	return ended
}
