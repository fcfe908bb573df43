package page

import (
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestParseDate(t *testing.T) {
	t.Parallel()
	usual := time.Date(2023, 10, 5, 3, 0, 13, 0, time.UTC)
	old := time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)
	tests := []struct {
		name, in     string
		want         time.Time // zero: no date
		weekdayWrong bool
	}{
		{"the usual form", "Thu, 05 Oct 2023 03:00:13 GMT", usual, false},
		{"case 45: one-digit day", "Thu, 5 Oct 2023 03:00:13 GMT", usual, false},
		{"case 46: RFC 850", "Sunday, 06-Nov-94 08:49:37 GMT", old, false},
		{"case 46: asctime", "Sun Nov  6 08:49:37 1994", old, false},
		{"case 46: asctime with a two-digit day", "Wed Nov 16 08:49:37 1994", old.AddDate(0, 0, 10), false},
		{"case 47: wrong weekday", "Fri, 05 Oct 2023 03:00:13 GMT", usual, true},
		{"case 47: wrong weekday, one-digit day", "Fri, 5 Oct 2023 03:00:13 GMT", usual, true},
		{"case 47: wrong weekday, RFC 850", "Monday, 06-Nov-94 08:49:37 GMT", old, true},
		{"case 47: wrong weekday, asctime", "Mon Nov  6 08:49:37 1994", old, true},
		{"case 47: ISO 8601", "2023-10-05T03:00:13Z", time.Time{}, false},
		{"case 47: ISO 8601 with a blank", "2023-10-05 03:00:13 +0000", time.Time{}, false},
		{"case 48: +0000", "Thu, 05 Oct 2023 03:00:13 +0000", usual, false},
		{"case 48: UTC", "Thu, 05 Oct 2023 03:00:13 UTC", usual, false},
		{"another zone", "Thu, 05 Oct 2023 05:00:13 +0200", usual, false},
		{"another zone with a colon", "Thu, 05 Oct 2023 05:00:13 +02:00", usual, false},
		{"the weekday is that of the zone", "Fri, 06 Oct 2023 01:30:00 +0200", time.Date(2023, 10, 5, 23, 30, 0, 0, time.UTC), false},
		{"a zone of RFC 822", "Wed, 04 Oct 2023 22:00:13 EST", usual, false},
		{"a zone that could be several", "Thu, 05 Oct 2023 03:00:13 IST", time.Time{}, false},
		{"no zone", "Thu, 05 Oct 2023 03:00:13", usual, false},
		{"no weekday", "05 Oct 2023 03:00:13 GMT", usual, false},
		{"no seconds", "Thu, 05 Oct 2023 03:00 GMT", usual.Truncate(time.Minute), false},
		{"lower case", "thu, 05 oct 2023 03:00:13 gmt", usual, false},
		{"a fraction is cut off", "Thu, 05 Oct 2023 03:00:13.999 GMT", usual, false},
		{"white space around it", " Thu, 05 Oct 2023 03:00:13 GMT ", usual, false},
		{"29 February", "Thu, 29 Feb 2024 00:00:00 GMT", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), false},
		{"no such 29 February", "Wed, 29 Feb 2023 00:00:00 GMT", time.Time{}, false},
		{"no such 31 April", "Mon, 31 Apr 2023 00:00:00 GMT", time.Time{}, false},
		{"day 0", "Mon, 00 Apr 2023 00:00:00 GMT", time.Time{}, false},
		{"minute 60", "Thu, 05 Oct 2023 03:60:13 GMT", time.Time{}, false},
		{"no such month", "Thu, 05 anF 2023 03:00:13 GMT", time.Time{}, false},
		{"no such weekday", "unM, 05 Oct 2023 03:00:13 GMT", usual, true},
		{"a sign for a digit", "Thu, +5 Oct 2023 03:00:13 GMT", time.Time{}, false},
		{"nothing", "", time.Time{}, false},
		{"a word", "yesterday", time.Time{}, false},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, ok, weekdayWrong := parseDate(tt.in)
			if ok != !tt.want.IsZero() || !got.Equal(tt.want) || weekdayWrong != tt.weekdayWrong {
				t.Errorf("parseDate(%q) = %v, %v, %v", tt.in, got, ok, weekdayWrong)
			}
			if ok && got.Location() != time.UTC {
				t.Errorf("parseDate(%q) is in %v", tt.in, got.Location())
			}
		})
	}
}

func TestParseDateOfTheUsualFormAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { parseDate("Thu, 05 Oct 2023 03:00:13 GMT") }); n != 0 {
		t.Errorf("got %v allocations", n)
	}
}
