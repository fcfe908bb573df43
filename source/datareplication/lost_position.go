package datareplication

import "github.com/feedbridge/feedbridge/feed"

// lostPosition reports that the position in the cursor is not in the feed any
// more.
type lostPosition struct {
	violation feed.Violation
	// forGood reports that a search for the position would end like this again.
	forGood bool
	// certain reports that a lagging server cannot cause this, so that the loss needs no
	// confirmation.
	certain bool
}

func (l *lostPosition) Error() string { return l.violation.Error() }

func newLostPosition(kind, page, format string, args ...any) *lostPosition {
	return &lostPosition{violation: feed.NewViolation(kind, page, format, args...)}
}

func lostForGood(kind, page, format string, args ...any) *lostPosition {
	return &lostPosition{violation: feed.NewViolation(kind, page, format, args...), forGood: true}
}

func (l *lostPosition) forCertain() *lostPosition {
	l.certain = true
	return l
}
