package datareplication

import (
	"strings"
	"time"
)

// parseDate reads a date of a Last-Modified field: the three forms of RFC 9110
// and what is met beside them, such as a day with one digit (which the
// specification's own examples have), no weekday, no seconds, or a numeric
// zone. It does not read ISO 8601. The time is in UTC and whole seconds;
// weekdayWrong says that the date's weekday is another day's.
//
// Years of two digits are those from 1969 to 2068, as in [time.Parse].
func parseDate(s string) (t time.Time, ok, weekdayWrong bool) {
	if t, ok, weekdayWrong = parseFixdate(s); ok {
		return t, ok, weekdayWrong
	}
	return parseOtherDate(s)
}

// parseFixdate reads the one form that is sent today, as in
// "Sun, 06 Nov 1994 08:49:37 GMT". It stands beside [time.Parse] because every
// entity has such a date.
func parseFixdate(s string) (t time.Time, ok, weekdayWrong bool) {
	const months, weekdays = "JanFebMarAprMayJunJulAugSepOctNovDec", "SunMonTueWedThuFriSat"
	if len(s) != len("Sun, 06 Nov 1994 08:49:37 GMT") ||
		s[3:5] != ", " || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' || s[19] != ':' || s[22] != ':' || s[25:] != " GMT" {
		return time.Time{}, false, false
	}
	weekday, month := strings.Index(weekdays, s[:3]), strings.Index(months, s[8:11])
	day, year := number(s[5:7]), number(s[12:16])
	hour, minute, second := number(s[17:19]), number(s[20:22]), number(s[23:25])
	if weekday < 0 || weekday%3 != 0 || month < 0 || month%3 != 0 || day < 1 || year < 0 ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 {
		return time.Time{}, false, false
	}
	t = time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC)
	if day > 28 && t.Day() != day { // such as 31 April, which time.Date takes for 1 May
		return time.Time{}, false, false
	}
	return t, true, time.Weekday(weekday/3) != t.Weekday()
}

// number reads decimal digits, up to 18 of them; it is negative if there is
// anything else.
func number(s string) int {
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

// The forms of a date, without the zone, that [parseOtherDate] tries.
var dateLayouts = []string{
	"Mon, 2 Jan 2006 15:04:05",
	"Monday, 2-Jan-06 15:04:05", // RFC 850
	"2 Jan 2006 15:04:05",
	"Mon, 2 Jan 2006 15:04",
	"2 Jan 2006 15:04",
}

func parseOtherDate(s string) (t time.Time, ok, weekdayWrong bool) {
	s = strings.Trim(s, " \t")
	if t, err := time.Parse(time.ANSIC, s); err == nil {
		return t.Truncate(time.Second), true, isOtherDay(s, t)
	}
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return time.Time{}, false, false
	}
	offset, ok := parseZone(s[i+1:])
	if !ok {
		return time.Time{}, false, false
	}
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, strings.TrimRight(s[:i], " ")); err == nil {
			return t.Add(-offset).Truncate(time.Second), true, isOtherDay(s, t)
		}
	}
	return time.Time{}, false, false
}

// parseZone reads a zone and returns how far it is ahead of UTC. It knows no
// abbreviations but those of UTC itself: the others are ambiguous, and
// [time.Parse] takes those that it does not know for UTC.
func parseZone(s string) (time.Duration, bool) {
	for _, utc := range []string{"GMT", "UTC", "UT"} {
		if strings.EqualFold(s, utc) {
			return 0, true
		}
	}
	for _, layout := range []string{"-0700", "-07:00"} {
		if t, err := time.Parse(layout, s); err == nil {
			_, seconds := t.Zone()
			return time.Duration(seconds) * time.Second, true
		}
	}
	return 0, false
}

// isOtherDay says whether s starts with a weekday that is not t's.
func isOtherDay(s string, t time.Time) bool {
	named := s[0] < '0' || s[0] > '9'
	return named && !strings.EqualFold(s[:3], t.Weekday().String()[:3])
}
