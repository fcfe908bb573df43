package datareplication

import (
	"errors"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// One answer of an upstream may be older than what was read before: behind one
// URL there may be several replicas, and some of them lag. In such an answer
// the newest pages are missing, a page has fewer entities than were read of it,
// or a page has no next link yet. A feed that has lost entities looks the same.
// So the source acts on such a finding only after it was made confirmLooks
// times in a row, over at least confirmFor. Until then each call of Next
// returns a transient error and leaves the cursor where it is.
//
// A process that restarts starts to count again.
const (
	confirmLooks = 3
	confirmFor   = 10 * time.Second
)

// finding counts how often in a row the same was found.
type finding struct {
	since time.Time // of the first look; zero if nothing was found
	looks int
}

// add counts a look, and reports whether the finding is confirmed.
func (f *finding) add() bool {
	if f.looks++; f.looks == 1 {
		f.since = time.Now()
	}
	return f.confirmed()
}

func (f *finding) confirmed() bool {
	return f.looks >= confirmLooks && time.Since(f.since) >= confirmFor
}

// UnconfirmedError reports a finding that a lagging server may be the cause of,
// and that is checked again before anything is done about it. It is transient,
// and does not match what Cause matches: neither does it need a person, nor is
// it a violation yet that anyone should count.
type UnconfirmedError struct {
	// Cause is a [*feed.Violation] if the finding would be one.
	Cause error
}

func (e *UnconfirmedError) Error() string {
	return e.Cause.Error() + "; a lagging server answers like that, too, so this is checked again before anything is done about it"
}

func unconfirmed(err error) error {
	if v := violationOf(err); v != nil {
		err = v
	}
	return &UnconfirmedError{err}
}

// violationOf returns the violation that err is about, or nil.
func violationOf(err error) *feed.Violation {
	if l, ok := errors.AsType[*lostPosition](err); ok {
		return &l.violation
	}
	v, _ := errors.AsType[*feed.Violation](err)
	return v
}

// mayBeOld reports whether a lagging server may be the cause of an error.
func mayBeOld(err error, cur *cursor) bool {
	if l, ok := errors.AsType[*lostPosition](err); ok {
		return !l.certain
	}
	if v, ok := errors.AsType[*feed.Violation](err); ok {
		return v.Kind == MissingNext
	}
	// A page of a snapshot, or its index once that has been read.
	return isGone(err) && cur.Snapshot != nil && cur.Snapshot.ID != ""
}
