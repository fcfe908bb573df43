package syndication

import (
	"strings"
	"time"
)

// Date is a date of a document.
type Date struct {
	// Time is in UTC; zero if there is no date or it cannot be read. Nothing is
	// ever made up in its place.
	Time time.Time
	// Raw is the date as written, and From the local name of the element that
	// it was written in.
	Raw, From string
}

// parseDate reads the forms of RFC 3339 and of W3C-DTF, which has shorter ones,
// and those of RFC 822 and its successors. It takes what is met in the field:
// lower case, a blank for the T, an offset without a colon, a second 60, an hour
// 24, a weekday that is missing or wrong, a year of two digits. A date without
// a zone is taken for UTC.
func parseDate(s string) (time.Time, bool) {
	s = trim(s)
	if len(s) >= 4 && number(s[:4]) >= 0 && (len(s) == 4 || s[4] == '-') {
		return parseISO(s)
	}
	return parseMail(s)
}

// parseISO reads year[-month[-day[Thour:minute[:second[.fraction]][zone]]]].
func parseISO(s string) (time.Time, bool) {
	p := dateParser{rest: s, ok: true}
	year, month, day := p.digits(4), 1, 1
	if p.next('-') {
		month = p.digits(2)
		if p.next('-') {
			day = p.digits(2)
		}
	}
	if !p.ok || p.rest == "" {
		return p.date(year, month, day, clock{})
	}
	if !p.next('T') && !p.next('t') {
		p.expect(' ')
	}
	c := p.clock(2)
	switch blank := p.next(' '); {
	case p.rest == "" && !blank:
	case p.next('Z') || p.next('z'):
	default:
		c.zone = p.offset()
	}
	return p.date(year, month, day, c)
}

// parseMail reads [weekday] day month year hour:minute[:second] [zone].
func parseMail(s string) (time.Time, bool) {
	if i := strings.IndexByte(s, ','); i >= 0 {
		s = s[i+1:]
	}
	if i := strings.IndexByte(s, '('); i >= 0 { // a comment
		s = s[:i]
	}
	fields := strings.Fields(s)
	// A weekday without a comma, and days as in 06-Nov-94.
	if len(fields) > 0 && (fields[0][0] < '0' || fields[0][0] > '9') {
		fields = fields[1:]
	}
	if len(fields) > 0 && strings.Count(fields[0], "-") == 2 {
		fields = append(strings.Split(fields[0], "-"), fields[1:]...)
	}
	if len(fields) < 4 || len(fields) > 5 || len(fields[0]) > 2 {
		return time.Time{}, false
	}
	day, month, year := number(fields[0]), monthOf(fields[1]), number(fields[2])
	switch len(fields[2]) {
	case 4:
	case 3: // RFC 5322, section 4.3
		year += 1900
	case 2:
		if year += 1900; year < 1950 {
			year += 100
		}
	default:
		return time.Time{}, false
	}
	p := dateParser{rest: fields[3], ok: day >= 0 && month > 0 && number(fields[2]) >= 0}
	c := p.clock(1)
	if p.rest != "" {
		return time.Time{}, false
	}
	if len(fields) == 5 {
		offset, known := zones[strings.ToUpper(fields[4])]
		c.zone = offset * 60
		if !known {
			p.rest = fields[4]
			c.zone = p.offset()
		}
	}
	return p.date(year, month, day, c)
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

// dateParser reads a date from the left. What it finds is good only if ok is.
type dateParser struct {
	rest string
	ok   bool
}

func (p *dateParser) next(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *dateParser) expect(c byte) { p.ok = p.next(c) && p.ok }

// digits reads a number of n digits.
func (p *dateParser) digits(n int) int {
	if len(p.rest) < n {
		p.ok = false
		return 0
	}
	v := number(p.rest[:n])
	p.rest, p.ok = p.rest[n:], p.ok && v >= 0
	return v
}

// clock reads hour:minute[:second[.fraction]]. The hour has least digits or two.
func (p *dateParser) clock(least int) (c clock) {
	n := 2
	if least == 1 && len(p.rest) > 1 && p.rest[1] == ':' {
		n = 1
	}
	c.hour = p.digits(n)
	p.expect(':')
	c.minute = p.digits(2)
	if !p.next(':') {
		return c
	}
	c.second = p.digits(2)
	if p.next('.') || p.next(',') {
		unit, read := 100_000_000, 0
		for p.rest != "" && p.rest[0] >= '0' && p.rest[0] <= '9' {
			c.nanosecond += int(p.rest[0]-'0') * unit
			unit /= 10
			read++
			p.rest = p.rest[1:]
		}
		p.ok = p.ok && read > 0
	}
	return c
}

// offset reads a numeric zone: +01:00, +0100 or +01, in minutes.
func (p *dateParser) offset() int {
	sign := 1
	if p.next('-') {
		sign = -1
	} else {
		p.expect('+')
	}
	minutes := p.digits(2) * 60
	if p.rest != "" {
		p.next(':')
		m := p.digits(2)
		p.ok = p.ok && m < 60
		minutes += m
	}
	p.ok = p.ok && minutes <= 24*60
	return sign * minutes
}

func (p *dateParser) date(year, month, day int, c clock) (time.Time, bool) {
	midnight := c.hour == 24 && c.minute == 0 && c.second == 0 && c.nanosecond == 0
	if !p.ok || p.rest != "" || month < 1 || month > 12 || day < 1 || c.hour > 23 && !midnight || c.minute > 59 || c.second > 60 {
		return time.Time{}, false
	}
	if day > 28 && time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() != day {
		return time.Time{}, false
	}
	return time.Date(year, time.Month(month), day, c.hour, c.minute-c.zone, c.second, c.nanosecond, time.UTC), true
}

// number reads decimal digits, nine at most; it is negative if there is anything
// else.
func number(s string) int {
	if s == "" || len(s) > 9 {
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
