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
// zones, a blank for the T, an offset without a colon, a second 60, an hour 24, a
// year of two digits. A date without a zone is in UTC; a zone whose name is
// ambiguous is an error.
//
// The time is in UTC. wrongWeekday reports that the date names the weekday of
// another day.
func ParseDate(s string) (t time.Time, wrongWeekday, ok bool) {
	if t, wrongWeekday, ok = parseFixdate(s); ok {
		return t, wrongWeekday, ok
	}
	s = trimSpace(s)
	if len(s) > longestDate {
		return time.Time{}, false, false
	}
	if IsISODate(s) {
		t, ok = parseISO(s)
		return t, false, ok
	}
	return parseMail(s)
}

// IsISODate reports whether a date is written in the manner of ISO 8601, with the
// year first, which is not a form of HTTP.
func IsISODate(s string) bool {
	s = trimSpace(s)
	return len(s) >= 4 && parseNumber(s[:4]) >= 0 && (len(s) == 4 || s[4] == '-')
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

// parseISO reads year[-month[-day[Thour:minute[:second[.fraction]][zone]]]].
func parseISO(s string) (time.Time, bool) {
	p := dateParser{rest: s, ok: true}
	year, month, day := p.readDigits(4), 1, 1
	if p.acceptByte('-') {
		month = p.readDigits(2)
		if p.acceptByte('-') {
			day = p.readDigits(2)
		}
	}
	if !p.ok || p.rest == "" {
		return p.makeTime(year, month, day, clock{})
	}
	if !p.acceptByte('T') && !p.acceptByte('t') {
		p.expectByte(' ')
	}
	c := p.readClock(2)
	switch blank := p.acceptByte(' '); {
	case p.rest == "" && !blank:
	case p.acceptByte('Z') || p.acceptByte('z'):
	default:
		c.zone = p.readOffset()
	}
	return p.makeTime(year, month, day, c)
}

// parseMail parses [weekday] day month year hour:minute[:second] [zone], with
// hyphens in the date as in 06-Nov-94, or weekday month day hour:minute:second
// year (asctime).
func parseMail(s string) (t time.Time, wrongWeekday, ok bool) {
	if i := strings.IndexByte(s, '('); i >= 0 { // a comment
		s = s[:i]
	}
	weekday := ""
	if i := strings.IndexByte(s, ','); i >= 0 {
		weekday, s = trimSpace(s[:i]), s[i+1:]
	}
	fields := strings.Fields(s)
	if len(fields) > 0 && !isDigit(fields[0][0]) { // no comma behind the weekday
		weekday, fields = fields[0], fields[1:]
		if len(fields) == 4 && monthOf(fields[0]) > 0 { // asctime
			fields = []string{fields[1], fields[0], fields[3], fields[2]}
		}
	}
	if len(fields) > 0 && strings.Count(fields[0], "-") == 2 {
		fields = append(strings.Split(fields[0], "-"), fields[1:]...)
	}
	if len(fields) < 4 || len(fields) > 5 || len(fields[0]) > 2 {
		return time.Time{}, false, false
	}
	day, month := parseNumber(fields[0]), monthOf(fields[1])
	year, ok := parseYear(fields[2])
	p := dateParser{rest: fields[3], ok: day >= 0 && month > 0 && ok}
	c := p.readClock(1)
	if p.rest != "" {
		return time.Time{}, false, false
	}
	if len(fields) == 5 {
		offset, known := zones[strings.ToUpper(fields[4])]
		c.zone = offset * 60
		if !known {
			p.rest = fields[4]
			c.zone = p.readOffset()
		}
	}
	t, ok = p.makeTime(year, month, day, c)
	if ok && weekday != "" {
		wrongWeekday = !isWeekday(weekday, time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Weekday())
	}
	return t, wrongWeekday, ok
}

// parseYear parses a year of two to four digits.
func parseYear(s string) (year int, ok bool) {
	year = parseNumber(s)
	if year < 0 {
		return 0, false
	}
	switch len(s) {
	case 4:
		return year, true
	case 3: // RFC 5322, section 4.3
		return 1900 + year, true
	case 2:
		if year < 50 {
			return 2000 + year, true
		}
		return 1900 + year, true
	}
	return 0, false
}

// isWeekday reports whether s is the English name of a weekday, or at least the
// first three letters of it.
func isWeekday(s string, day time.Weekday) bool {
	name := day.String()
	return len(s) >= 3 && len(s) <= len(name) && strings.EqualFold(s, name[:len(s)])
}

// zones are the names of RFC 822, in hours ahead of UTC. Its letters are those
// of no zone any more, because it had their signs wrong (RFC 5322, section 4.3).
// Other names are ambiguous, and so is a date with one.
var zones = map[string]int{
	"UT": 0, "UTC": 0, "GMT": 0, "Z": 0,
	"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}

// monthOf returns the number of a month by its English name or the first three
// letters of it; 0 if it is none.
func monthOf(s string) int {
	if len(s) < 3 {
		return 0
	}
	for m := time.January; m <= time.December; m++ {
		if name := m.String(); len(s) <= len(name) && strings.EqualFold(s, name[:len(s)]) {
			return int(m)
		}
	}
	return 0
}

type clock struct{ hour, minute, second, nanosecond, zone int } // zone in minutes ahead of UTC

// dateParser parses a date from left to right. Its results are valid only if ok is true.
type dateParser struct {
	rest string
	ok   bool
}

func (p *dateParser) acceptByte(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *dateParser) expectByte(c byte) { p.ok = p.acceptByte(c) && p.ok }

// readDigits reads a number of n digits.
func (p *dateParser) readDigits(n int) int {
	if len(p.rest) < n {
		p.ok = false
		return 0
	}
	v := parseNumber(p.rest[:n])
	p.rest, p.ok = p.rest[n:], p.ok && v >= 0
	return v
}

// readClock reads hour:minute[:second[.fraction]]. The hour has least digits or two.
func (p *dateParser) readClock(least int) (c clock) {
	n := 2
	if least == 1 && len(p.rest) > 1 && p.rest[1] == ':' {
		n = 1
	}
	c.hour = p.readDigits(n)
	p.expectByte(':')
	c.minute = p.readDigits(2)
	if !p.acceptByte(':') {
		return c
	}
	c.second = p.readDigits(2)
	if p.acceptByte('.') || p.acceptByte(',') {
		unit, read := 100_000_000, 0
		for p.rest != "" && isDigit(p.rest[0]) {
			c.nanosecond += int(p.rest[0]-'0') * unit
			unit /= 10
			read++
			p.rest = p.rest[1:]
		}
		p.ok = p.ok && read > 0
	}
	return c
}

// readOffset reads a numeric zone: +01:00, +0100 or +01, in minutes.
func (p *dateParser) readOffset() int {
	sign := 1
	if p.acceptByte('-') {
		sign = -1
	} else {
		p.expectByte('+')
	}
	minutes := p.readDigits(2) * 60
	if p.rest != "" {
		p.acceptByte(':')
		m := p.readDigits(2)
		p.ok = p.ok && m < 60
		minutes += m
	}
	p.ok = p.ok && minutes <= 24*60
	return sign * minutes
}

func (p *dateParser) makeTime(year, month, day int, c clock) (time.Time, bool) {
	midnight := c.hour == 24 && c.minute == 0 && c.second == 0 && c.nanosecond == 0
	if !p.ok || p.rest != "" || month < 1 || month > 12 || day < 1 || c.hour > 23 && !midnight || c.minute > 59 || c.second > 60 {
		return time.Time{}, false
	}
	if day > 28 && time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() != day {
		return time.Time{}, false
	}
	at := time.Date(year, time.Month(month), day, c.hour, c.minute-c.zone, c.second, c.nanosecond, time.UTC)
	if year := at.Year(); year < 0 || year > 9999 {
		return time.Time{}, false // it could not be written
	}
	return at, true
}

// parseNumber reads decimal digits, nine at most; it is negative if there is anything
// else.
func parseNumber(s string) int {
	if s == "" || len(s) > 9 {
		return -1
	}
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
