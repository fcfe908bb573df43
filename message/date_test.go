package message

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

func TestParseDate(t *testing.T) {
	t.Parallel()
	utc := func(year, month, day, hour, minute, second, nanosecond int) time.Time {
		return time.Date(year, time.Month(month), day, hour, minute, second, nanosecond, time.UTC)
	}
	usual := utc(2003, 12, 13, 18, 30, 2, 0)
	tests := []struct {
		name, in string
		want     time.Time // zero: no date
	}{
		{"RFC 3339", "2003-12-13T18:30:02Z", usual},
		{"a fraction", "2003-12-13T18:30:02.25Z", usual.Add(250 * time.Millisecond)},
		{"case 103: nanoseconds and +00:00", "2003-12-13T18:30:02.024552394+00:00", usual.Add(24552394)},
		{"finer than nanoseconds", "2003-12-13T18:30:02.0000000019Z", usual.Add(1)},
		{"an offset", "2003-12-13T19:30:02+01:00", usual},
		{"a negative offset", "2003-12-13T13:00:02-05:30", usual},
		{"an offset without a colon", "2003-12-13T19:30:02+0100", usual},
		{"an offset in hours", "2003-12-13T19:30:02+01", usual},
		{"lower case", "2003-12-13t18:30:02z", usual},
		{"a blank for the T", "2003-12-13 18:30:02 +0000", usual},
		{"no zone", "2003-12-13T18:30:02", usual},
		{"no seconds", "2003-12-13T18:30Z", usual.Truncate(time.Minute)},
		{"a day", "2003-12-13", utc(2003, 12, 13, 0, 0, 0, 0)},
		{"a month", "2003-12", utc(2003, 12, 1, 0, 0, 0, 0)},
		{"a year", "2003", utc(2003, 1, 1, 0, 0, 0, 0)},
		{"case 59: far off", "2099-01-01T00:00:00Z", utc(2099, 1, 1, 0, 0, 0, 0)},
		{"white space around it", "\n 2003-12-13T18:30:02Z\t", usual},
		{"a leap second", "2005-12-31T23:59:60Z", utc(2006, 1, 1, 0, 0, 0, 0)},
		{"a leap second with a fraction, in another zone", "2016-12-31T23:59:60.5-01:30", utc(2017, 1, 1, 1, 30, 0, 500_000_000)},
		{"no such day", "2003-02-29T00:00:00Z", time.Time{}},
		{"no such month", "2003-13-01T00:00:00Z", time.Time{}},
		{"month 0", "2003-00-01", time.Time{}},
		{"minute 60", "2003-12-13T18:60:02Z", time.Time{}},
		{"second 61", "2003-12-13T18:30:61Z", time.Time{}},
		{"a point without digits", "2003-12-13T18:30:02.Z", time.Time{}},
		{"more behind it", "2003-12-13T18:30:02Z and on", time.Time{}},
		{"half of it", "2003-12-13T", time.Time{}},

		{"RFC 822", "Sat, 13 Dec 03 18:30:02 GMT", usual},
		{"four digits", "Sat, 13 Dec 2003 18:30:02 GMT", usual},
		{"year 49", "Sat, 13 Dec 49 18:30:02 GMT", utc(2049, 12, 13, 18, 30, 2, 0)},
		{"year 50", "Wed, 13 Dec 50 18:30:02 GMT", utc(1950, 12, 13, 18, 30, 2, 0)},
		{"year 99", "Mon, 13 Dec 99 18:30:02 GMT", utc(1999, 12, 13, 18, 30, 2, 0)},
		{"no weekday", "13 Dec 2003 18:30:02 GMT", usual},
		{"a wrong weekday", "Mon, 13 Dec 2003 18:30:02 GMT", usual},
		{"a whole weekday", "Saturday, 13 December 2003 18:30:02 GMT", usual},
		{"a weekday without a comma", "Sat 13 Dec 2003 18:30:02 GMT", usual},
		{"RFC 850", "Saturday, 13-Dec-03 18:30:02 GMT", usual},
		{"no seconds, RFC 822", "Sat, 13 Dec 2003 18:30 GMT", usual.Truncate(time.Minute)},
		{"one digit", "Wed, 3 Dec 2003 8:30:02 GMT", utc(2003, 12, 3, 8, 30, 2, 0)},
		{"EST", "Sat, 13 Dec 2003 13:30:02 EST", usual},
		{"PDT", "Sat, 13 Dec 2003 11:30:02 PDT", usual},
		{"UT", "Sat, 13 Dec 2003 18:30:02 UT", usual},
		{"Z", "Sat, 13 Dec 2003 18:30:02 Z", usual},
		{"lower case, RFC 822", "sat, 13 dec 2003 18:30:02 gmt", usual},
		{"a numeric zone", "Sat, 13 Dec 2003 19:30:02 +0100", usual},
		{"a comment", "Sat, 13 Dec 2003 19:30:02 +0100 (CET)", usual},
		{"no zone, RFC 822", "Sat, 13 Dec 2003 18:30:02", usual},
		{"a zone that could be several", "Sat, 13 Dec 2003 18:30:02 IST", time.Time{}},
		{"no such month, RFC 822", "Sat, 13 Dez 2003 18:30:02 GMT", time.Time{}},
		{"a month with more behind it", "Sat, 13 Decxyz 2003 18:30:02 GMT", time.Time{}},
		{"no such day, RFC 822", "Wed, 31 Nov 2003 18:30:02 GMT", time.Time{}},
		{"a sign for a digit", "Sat, +3 Dec 2003 18:30:02 GMT", time.Time{}},
		{"no time", "Sat, 13 Dec 2003", time.Time{}},
		{"nothing", "", time.Time{}},
		{"a comma", ",", time.Time{}},
		{"a word", "yesterday", time.Time{}},
		{"too long", "Sat, 13 Dec 2003 18:30:02 GMT" + strings.Repeat(" ", 200) + "(a comment)", time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _, ok := ParseDate(tt.in)
			if ok != !tt.want.IsZero() || !got.Equal(tt.want) || ok && got.Location() != time.UTC {
				t.Errorf("ParseDate(%q) = %v, %v", tt.in, got, ok)
			}
		})
	}
}

func TestParseDateAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { ParseDate("2003-12-13T18:30:02.25+01:00") }); n != 0 {
		t.Errorf("got %v allocations", n)
	}
}

func FuzzDate(f *testing.F) {
	for _, s := range []string{
		"2003-12-13T18:30:02.25+01:00", "2003-12-13t24:00z", "2003-12", "2003-12-13 18:30:60 -0530",
		"Sat, 13 Dec 2003 18:30:02 GMT", "Saturday, 13-Dec-03 18:30 +0100 (x)", "3 December 103 8:30 EST",
		"Thu, 5 Oct 2023 03:00:13 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "thu, 05 oct 2023 03:00 utc",
		"1 OCt 00 0:00 AAT GMT", "1 OCt 00 0:00 AAT0 GMT", "SundAY, 01-Nov-+0 0:00:00 GMT", "Sunday, 01-Nov--0 00:00:00 GMT",
		"1 OCt 60 0:00 GMT", "1 Oct 60 0:00 GMT", "Saturday, 01-Oct-60 00:00:00 GMT", "Sat, 1 Oct 1960 08:00 -0530", "2003-12-13 18:30:02",
	} {
		f.Add(s)
	}
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, s string) {
		cputime.CheckRepeated(t, s, func(s string) { ParseDate(s) })
		got, wrongWeekday, ok := ParseDate(s)
		if ok {
			// A date that was read can be written, and is the same again.
			if again, _, ok := ParseDate(got.Format(time.RFC3339Nano)); !ok || !again.Equal(got) {
				t.Fatalf("%q: %v reads back as %v, %v", s, got, again, ok)
			}
			if again, wrong, ok := ParseDate(FormatDate(got)); !ok || wrong || !again.Equal(got.Truncate(time.Second)) {
				t.Fatalf("%q: %v reads back as %v, %v, %v", s, got, again, wrong, ok)
			}
		}
		// The parsers of the standard library guess or ignore parts that they do not know,
		// so they are asked only about dates that they would write with the same bytes.
		for _, layout := range dateLayouts {
			want, err := time.Parse(layout, s)
			if err != nil || want.Format(layout) != s {
				continue
			}
			if _, offset := want.Zone(); offset <= -24*3600 || offset >= 24*3600 {
				continue // RFC 3339 section 5.6 has none of a day or more
			}
			if year := want.Year(); !strings.Contains(layout, "2006") && year >= 2050 {
				continue // RFC 5322 section 4.3 has the years 50 to 68 in the last century
			}
			if !ok || wrongWeekday || !got.Equal(want) {
				t.Fatalf("%q: got %v, %v, %v; time has %v", s, got, wrongWeekday, ok, want)
			}
			weekday := want.Weekday().String()[:3]
			if rest, named := strings.CutPrefix(s, weekday+","); named {
				other := want.AddDate(0, 0, 1).Weekday().String()[:3] + "," + rest
				if got, wrongWeekday, ok := ParseDate(other); !ok || !wrongWeekday || !got.Equal(want) {
					t.Fatalf("%q: got %v, %v, %v; want a wrong weekday", other, got, wrongWeekday, ok)
				}
			}
		}
	}))
}

// dateLayouts are forms of RFC 9110, RFC 5322 and RFC 3339 in which [time.Time.Format] writes
// dates.
var dateLayouts = []string{
	http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC,
	time.RFC1123Z, "Mon, 2 Jan 2006 15:04 -0700", "2 Jan 2006 15:04:05 -0700", "2 Jan 06 15:04 GMT",
	time.RFC3339Nano, "2006-01-02T15:04Z07:00", time.DateTime, time.DateOnly, "2006-01", "2006",
}
