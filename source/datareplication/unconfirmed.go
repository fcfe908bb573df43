package datareplication

import (
	"errors"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// An answer may be older than the answers before it, because one URL may be served by
// several replicas of which some lag. In an older answer the newest pages are missing, a
// page has fewer entities, or a page has no next link yet. A feed that has lost entities
// looks the same. Therefore the source acts on such a finding only after it was made
// confirmLooks times in a row, over at least confirmFor. Until then each call of Next
// returns a transient error and leaves the cursor unchanged. After a restart of the
// process the count starts at zero.
const (
	confirmLooks = 3
	confirmFor   = 10 * time.Second
)

// finding counts how often in a row the same thing was found.
type finding struct {
	since time.Time // first time; zero if nothing was found
	looks int
}

// countFinding counts a finding, and reports whether the finding is confirmed.
func (f *finding) countFinding() bool {
	if f.looks++; f.looks == 1 {
		f.since = time.Now()
	}
	return f.confirmed()
}

func (f *finding) confirmed() bool {
	return f.looks >= confirmLooks && time.Since(f.since) >= confirmFor
}

// UnconfirmedError reports a finding that may be caused by a lagging server and is checked
// again before the source acts on it. It is transient. It does not match the errors that
// Cause matches, so it neither halts the feed nor counts as a violation.
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

// violationOf returns the violation that err reports, or nil.
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
		return v.Kind == kindMissingNext
	}
	// A page of a snapshot, or its index once that has been read.
	return isGone(err) && cur.Snapshot != nil && cur.Snapshot.ID != ""
}
