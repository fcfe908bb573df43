package admin

import "time"

const (
	// longestError limits an error, in characters. The errors of this program have at most
	// about 300 of their own, and end with their cure; the rest are URLs and IDs, which
	// [safetext.Clip] shortens first.
	longestError = 2000
	// longestDetail is how many characters of a violation's page and detail are kept.
	longestDetail = 300
	// longestName limits a name that another copy has stored, in characters.
	longestName = 200
	// longestTitle limits the title of a feed, in characters.
	longestTitle = 120
	// longestText limits any text of an answer, in characters. An explanation has an error
	// and less than 1000 characters besides.
	longestText = longestError + 1000
)

// formatTime returns a time as answers show it: in UTC, to the millisecond; nil for the zero time.
func formatTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}
