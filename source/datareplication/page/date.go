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
	return t.Truncate(time.Second), true, weekdayWrong
}

// parseDigits parses up to 18 decimal digits. For anything else it returns -1.
func parseDigits(s string) int {
	if s == "" || len(s) > 18 {
		return -1
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}
