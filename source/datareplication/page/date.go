package page

import (
	"time"

	"github.com/feedbridge/feedbridge/message"
)

// parseDate parses a date of a Last-Modified field in every form that package
// message reads, except ISO 8601, which is not a form of HTTP. The time is in UTC
// and whole seconds; weekdayWrong reports that the date names the weekday of
// another day.
func parseDate(s string) (t time.Time, ok, weekdayWrong bool) {
	t, weekdayWrong, ok = message.ParseDate(s)
	if !ok || message.IsISODate(s) {
		return time.Time{}, false, false
	}
	if t.Nanosecond() != 0 {
		t = t.Truncate(time.Second)
	}
	return t, true, weekdayWrong
}
