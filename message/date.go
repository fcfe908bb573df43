package message

import (
	"net/http"
	"strings"
	"time"
)

// longestDate limits the length of a date with its comments, in bytes.
const longestDate = 200

// ParseDate parses a date of a feed. It reads the three forms of RFC 9110, those
// of RFC 822 and its successors, RFC 3339 and W3C-DTF, which has shorter ones. It
// accepts the variants that feeds contain: lower case, days and hours of one
// digit, a missing or wrong weekday, no seconds, a fraction of a second, numeric
// zones, a blank for the T, an offset without a colon, a leap second, a year of two digits. A
// date without a zone is in UTC; a zone whose name is ambiguous is an error.
//
// The time is in UTC. wrongWeekday reports that the date names the weekday of
// another day.
func ParseDate(s string) (t time.Time, wrongWeekday, ok bool) {
	if t, wrongWeekday, ok = parseFixdate(s); ok {
		return t, wrongWeekday, ok
	}
	if s = trimSpace(s); len(s) > longestDate {
		return time.Time{}, false, false
	}
	leap := strings.Contains(s, ":59:60") // which package time does not read
	if leap {
		s = strings.Replace(s, ":59:60", ":59:59", 1)
	}
	if IsISODate(s) {
		t, ok = parseISO(s)
	} else {
		t, wrongWeekday, ok = parseMail(s)
	}
	if leap {
		t = t.Add(time.Second)
	}
	if t = t.UTC(); !ok || t.Year() < 0 || t.Year() > 9999 { // such a year could not be written
		return time.Time{}, false, false
	}
	return t, wrongWeekday, true
}

// IsISODate reports whether a date is written in the manner of ISO 8601, with the
// year first, which is not a form of HTTP.
func IsISODate(s string) bool {
	s = trimSpace(s)
	return len(s) >= 4 && strings.Trim(s[:4], "0123456789") == "" && (len(s) == 4 || s[4] == '-')
}

// FormatDate returns t in the form of HTTP, in whole seconds.
func FormatDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// parseFixdate parses the one form that is sent today, as in
// "Sun, 06 Nov 1994 08:49:37 GMT". It exists because every entity has such a date.
func parseFixdate(s string) (t time.Time, wrongWeekday, ok bool) {
	if len(s) != len(http.TimeFormat) {
		return time.Time{}, false, false
	}
	t, err := time.Parse(http.TimeFormat, s)
	return t, err == nil && !isWeekday(s[:3], t.Weekday()), err == nil
}

// isoLayouts are the forms of a date with the year first. A fraction may follow the seconds.
var isoLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07",
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02T15:04Z0700", "2006-01-02T15:04Z07",
	time.DateOnly, "2006-01", "2006",
}

// parseISO reads a date with the year first.
func parseISO(s string) (t time.Time, ok bool) {
	s = strings.ToUpper(s)
	if len(s) > len(time.DateOnly) { // there may be a blank in place of the T, and one before the zone
		day, clock := s[:len(time.DateOnly)], s[len(time.DateOnly):]
		if clock[0] == ' ' {
			clock = "T" + clock[1:]
		}
		s = day + strings.Replace(clock, " ", "", 1)
	}
	return parseLayouts(s, isoLayouts...)
}

// parseLayouts parses a date that has one of the layouts.
func parseLayouts(s string, layouts ...string) (t time.Time, ok bool) {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// parseMail parses [weekday] day month year hour:minute[:second] [zone], with
// hyphens in the date as in 06-Nov-94, or weekday month day hour:minute:second
// year (asctime).
func parseMail(s string) (t time.Time, wrongWeekday, ok bool) {
	s, _, _ = strings.Cut(s, "(") // a comment
	weekday, rest, ok := strings.Cut(s, ",")
	if !ok {
		weekday, rest = "", s
	}
	fields := strings.Fields(rest)
	if len(fields) > 0 && strings.Trim(fields[0][:1], "0123456789") != "" { // no comma behind the weekday
		weekday, fields = fields[0], fields[1:]
		if len(fields) == 4 && strings.Contains(fields[2], ":") { // asctime
			fields = []string{fields[1], fields[0], fields[3], fields[2]}
		}
	}
	if len(fields) > 0 && strings.Count(fields[0], "-") == 2 {
		fields = append(strings.Split(fields[0], "-"), fields[1:]...)
	}
	if len(fields) == 4 {
		fields = append(fields, "UTC")
	}
	if len(fields) != 5 || len(fields[1]) < 3 {
		return time.Time{}, false, false
	}
	month, year, zone := fields[1][:3], fields[2], strings.Replace(fields[4], ":", "", 1)
	switch {
	case len(year) != 2:
	case year < "50": // RFC 5322, section 4.3
		year = "20" + year
	default:
		year = "19" + year
	}
	if offset, known := zones[strings.ToUpper(zone)]; known {
		zone = offset
	} else if len(zone) == len("+01") {
		zone += "00"
	}
	text := strings.Join([]string{fields[0], month, year, fields[3], zone}, " ")
	t, ok = parseLayouts(text, "2 Jan 2006 15:04:05 -0700", "2 Jan 2006 15:04 -0700")
	name := t.Month().String()
	ok = ok && strings.EqualFold(fields[1], name[:min(len(name), len(fields[1]))])
	return t, ok && weekday != "" && !isWeekday(trimSpace(weekday), t.Weekday()), ok
}

// isWeekday reports whether s is the English name of a weekday, or at least the
// first three letters of it.
func isWeekday(s string, day time.Weekday) bool {
	name := day.String()
	return len(s) >= 3 && len(s) <= len(name) && strings.EqualFold(s, name[:len(s)])
}

// zones are the offsets of the names of RFC 822. Its letters are those
// of no zone any more, because it had their signs wrong (RFC 5322, section 4.3).
// Other names are ambiguous, and so is a date with one.
var zones = map[string]string{
	"UT": "+0000", "UTC": "+0000", "GMT": "+0000", "Z": "+0000",
	"EST": "-0500", "EDT": "-0400", "CST": "-0600", "CDT": "-0500", "MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
}
