package serve

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/feedbridge/feedbridge/feed"
)

// The headers that every entity of a feed has. They are written once, whatever
// the message has.
const (
	contentID     = "Content-ID"
	contentType   = "Content-Type"
	contentLength = "Content-Length"
	lastModified  = "Last-Modified"
	operationType = "Operation-Type"
)

// What buses and feedbridge add to a message does not belong to its entity.
// escape stands before the names of headers that a bus would obey.
const (
	ours       = "Feedbridge-"
	escape     = "Feedbridge-Header-"
	markHeader = "Feedbridge-Mark"
	natsServer = "Nats-"
)

// messageKey is the header that has the key of a message. A tombstone says by that
// alone what it deletes, and what others wrote may say nowhere else what it is about.
// Of what feedbridge wrote only tombstones have it, as the rest says so itself.
const (
	messageKey = "Message-Key"
	// longestKey is how long the header can be. Readers limit headers.
	longestKey = 4 << 10
)

// entity is a message as a feed has it.
type entity struct {
	position uint64
	id       string // as the message has it, or made of its position
	op       feed.Operation
	// modified is the entity's Last-Modified, and taken when the bus took it.
	modified, taken time.Time
	contentType     string
	// header has what a feed can carry, the standard fields as the message has
	// them.
	header feed.Header
	body   []byte
	// changes says that the ID is that of something which changes, and comes
	// again with every change.
	changes bool
	// format is what the body is written in, if it is not Atom (Feed-Format).
	format string
}

// entity reads a message. Whatever it is, there is an entity: it may come from
// anyone. Its header is put into the given one, if there is room.
func (f *Feed) entity(epoch string, r feed.Record, header feed.Header) entity {
	e := entity{position: r.Position, body: r.Body, taken: r.Time.UTC(), header: header[:0]}
	if r.Time.IsZero() || r.Time.Year() > 9999 {
		e.taken = time.Unix(0, 0).UTC()
	}
	var own time.Time
	foreign := true
	for _, field := range r.Header {
		switch {
		case hasPrefixFold(field.Name, escape):
			field.Name = field.Name[len(escape):]
		case named(field.Name, markHeader):
			e.changes = true
			continue
		case hasPrefixFold(field.Name, ours):
			foreign = false
			continue
		case hasPrefixFold(field.Name, natsServer):
			continue
		}
		if v := field.Value; v != "" && (v[0] <= ' ' || v[len(v)-1] <= ' ') {
			field.Value = strings.Trim(v, " \t")
		}
		if !fits(field) {
			continue
		}
		switch value := field.Value; {
		case named(field.Name, contentID):
			first(&e.id, value)
		case named(field.Name, contentType):
			first(&e.contentType, value)
		case named(field.Name, "Feed-Format"):
			first(&e.format, value)
		case named(field.Name, lastModified) && own.IsZero():
			own, _ = parseDate(value)
		case named(field.Name, operationType) && e.op == "":
			e.op, _ = parseOperation(value)
		}
		e.header = append(e.header, field)
	}
	if e.id == "" {
		e.id = strconv.FormatUint(r.Position, 10) + "." + epoch + "@" + f.cfg.Name
	}
	if e.contentType == "" {
		e.contentType = "application/octet-stream"
	}
	if r.Key != nil && (foreign || r.Tombstone) {
		e.addKey(r.Key)
	}
	switch {
	case e.op == "" && r.Tombstone:
		e.op = feed.Delete
	case e.op == "":
		e.op = feed.Put
	}
	// Entries of Atom and RSS come in any order of their times. And no entity was
	// modified later than the bus had it.
	e.modified = e.taken
	if !own.IsZero() && !e.changes && !f.cfg.BusTime && (own.Before(e.taken) || r.Time.IsZero()) {
		e.modified = own
	}
	e.modified = e.modified.Truncate(time.Second)
	return e
}

// addKey adds the header with a key, unless the message has one of its own. What is
// not visible ASCII is written as in URLs, and so is the percent sign: a key may
// have any bytes, and can be read back.
func (e *entity) addKey(key []byte) {
	if _, ok := e.header.Get(messageKey); ok || len(key) > longestKey {
		return
	}
	text := make([]byte, 0, len(key))
	for _, c := range key {
		if c <= ' ' || c >= 0x7f || c == '%' {
			text = fmt.Appendf(text, "%%%02X", c)
		} else {
			text = append(text, c)
		}
	}
	if len(text) <= longestKey {
		e.header = append(e.header, feed.Field{Name: messageKey, Value: string(text)})
	}
}

// named says whether a field's name is that one, which is ASCII. Most differ in length
// or not at all, which is faster to see.
func named(name, want string) bool {
	return len(name) == len(want) && (name == want || strings.EqualFold(name, want))
}

func first(at *string, value string) {
	if *at == "" {
		*at = value
	}
}

// fits says whether a field can stand in a page. Those of Kafka may have any
// bytes, such as a line that would be another field.
func fits(field feed.Field) bool {
	if field.Name == "" {
		return false
	}
	var seen class
	for i := range len(field.Name) {
		seen |= classes[field.Name[i]]
	}
	if seen != token {
		return false
	}
	for i := range len(field.Value) {
		seen |= classes[field.Value[i]]
	}
	return seen&control == 0 && (seen&high == 0 || utf8.ValidString(field.Value))
}

// class is what a byte may be part of (RFC 9110, sections 5.5 and 5.6.2).
type class uint8

const (
	token   class = 1 << iota // a header's name
	visible                   // its value alone, as are spaces and tabs
	high                      // a value, if it is UTF-8
	control                   // neither
)

var classes = func() (of [256]class) {
	for c := range of {
		switch {
		case c >= utf8.RuneSelf:
			of[c] = high
		case c < ' ' && c != '\t' || c == 0x7f:
			of[c] = control
		default:
			of[c] = visible
		}
	}
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		of[c] = token
	}
	return of
}()

func parseOperation(s string) (feed.Operation, bool) {
	s = unquote(s)
	if name, value, ok := strings.Cut(s, "="); ok && strings.EqualFold(strings.TrimSpace(name), "http-equiv") {
		s = unquote(value)
	}
	switch op := feed.Operation(strings.ToUpper(s)); op {
	case feed.Put, feed.Patch, feed.Delete:
		return op, true
	}
	return "", false
}

func unquote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = strings.TrimSpace(s[1 : len(s)-1])
	}
	return s
}

// parseDate reads the forms that feeds use: those of HTTP, those of mail, which
// have days of one digit and numeric zones, and RFC 3339.
func parseDate(s string) (time.Time, bool) {
	if t, ok := parseHTTPDate(s); ok {
		return t, true
	}
	for _, parse := range []func(string) (time.Time, error){
		http.ParseTime, mail.ParseDate,
		func(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) },
	} {
		if t, err := parse(s); err == nil {
			t = t.UTC()
			return t, t.Year() > 0 && t.Year() < 10_000
		}
	}
	return time.Time{}, false
}

// parseHTTPDate reads what appendDate wrote, and nearly all feeds write: page by
// page, [http.ParseTime] takes longer than all else that is done with a header.
func parseHTTPDate(s string) (time.Time, bool) {
	if len(s) != len(http.TimeFormat) || s[3:5] != ", " || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' || s[19] != ':' || s[22] != ':' || s[25:] != " GMT" {
		return time.Time{}, false
	}
	month := strings.Index(months, s[8:11])
	var n [6]int
	for i, at := range [...]int{5, 12, 14, 17, 20, 23} {
		tens, ones := s[at]-'0', s[at+1]-'0'
		if tens > 9 || ones > 9 {
			return time.Time{}, false
		}
		n[i] = int(10*tens + ones)
	}
	day, year, hour, minute, second := n[0], 100*n[1]+n[2], n[3], n[4], n[5]
	t := time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC)
	// The 30th of February is none, nor is hour 24.
	ok := month >= 0 && month%3 == 0 && t.Day() == day && minute < 60 && second < 60 && year > 0
	return t, ok && weekdays[3*int(t.Weekday()):][:3] == s[:3]
}

const (
	months   = "JanFebMarAprMayJunJulAugSepOctNovDec"
	weekdays = "SunMonTueWedThuFriSat"
)

// appendDate appends a time in the form of HTTP, much faster than its format does.
func appendDate(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, http.TimeFormat)
	}
	hour, minute, second := t.Clock()
	two := func(n int) { b = append(b, byte('0'+n/10), byte('0'+n%10)) }
	b = append(b, weekdays[3*int(t.Weekday()):][:3]...)
	b = append(b, ", "...)
	two(day)
	b = append(b, ' ')
	b = append(b, months[3*int(month-1):][:3]...)
	b = append(b, ' ')
	two(year / 100)
	two(year % 100)
	b = append(b, ' ')
	two(hour)
	b = append(b, ':')
	two(minute)
	b = append(b, ':')
	two(second)
	return append(b, " GMT"...)
}

// hasPrefixFold says whether s begins with a prefix, which begins with a letter.
func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && s[0]|' ' == prefix[0]|' ' && named(s[:len(prefix)], prefix)
}

// hash is that of all that makes two messages the same. It is written to b, which
// is returned for the next one.
func (e *entity) hash(b []byte) (uint64, []byte) {
	b = append(b[:0], e.op...)
	for _, f := range e.header {
		// Neither has a line end in it.
		b = append(b, '\n')
		b = append(b, f.Name...)
		b = append(b, ':')
		b = append(b, f.Value...)
	}
	b = append(b, "\n\n"...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(e.body))
	return xxhash.Sum64(b), b
}

// summary is what a page needs to know of the page in front of it: the newest
// time, and the IDs with a hash of what had them last.
type summary struct {
	newest time.Time
	ids    map[string]uint64
}

// sifter makes what the specification wants of the entities of a page, in their
// order: times do not run back, and an ID is there once. It looks no further than
// to the page in front, because all that a page depends on has to be there as
// long as the page is.
type sifter struct {
	before, own summary
	b           []byte // to hash in
}

// newSifter returns a sifter for about n entities.
func newSifter(n uint64) *sifter {
	return &sifter{own: summary{ids: make(map[string]uint64, min(n, DefaultPageSize))}}
}

// add takes the next message of the page. It is not ok if the message is the
// same as one before it.
func (s *sifter) add(e *entity) bool {
	// The first message stays, whatever it is: a page without any would be none,
	// and nobody could say so before having read it.
	opening := len(s.own.ids) == 0
	at := e.modified
	for _, newest := range []time.Time{s.before.newest, s.own.newest} {
		if e.modified.Before(newest) {
			e.modified = newest
		}
	}
	// The page behind is told the messages' own times. With what they were raised
	// to, a page would depend on all in front of it.
	if s.own.newest.Before(at) {
		s.own.newest = at
	}
	hash, b := e.hash(s.b)
	s.b = b
	was, repeated := s.own.ids[e.id]
	if !repeated {
		was, repeated = s.before.ids[e.id]
	}
	s.own.ids[e.id] = hash
	switch {
	case repeated && was == hash && !opening && !e.changes:
		return false
	case repeated || e.changes:
		e.id += "#" + strconv.FormatUint(e.position, 10)
	}
	return true
}
