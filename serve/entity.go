package serve

import (
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
// anyone.
func (f *Feed) entity(epoch string, r feed.Record) entity {
	e := entity{position: r.Position, body: r.Body, taken: r.Time.UTC(), header: make(feed.Header, 0, len(r.Header)+4)}
	if r.Time.IsZero() || r.Time.Year() > 9999 {
		e.taken = time.Unix(0, 0).UTC()
	}
	var own time.Time
	for _, field := range r.Header {
		switch {
		case hasPrefixFold(field.Name, escape):
			field.Name = field.Name[len(escape):]
		case strings.EqualFold(field.Name, markHeader):
			e.changes = true
			continue
		case hasPrefixFold(field.Name, ours) || hasPrefixFold(field.Name, natsServer):
			continue
		}
		field.Value = strings.Trim(field.Value, " \t")
		if !fits(field) {
			continue
		}
		switch value := field.Value; {
		case strings.EqualFold(field.Name, contentID):
			first(&e.id, value)
		case strings.EqualFold(field.Name, contentType):
			first(&e.contentType, value)
		case strings.EqualFold(field.Name, "Feed-Format"):
			first(&e.format, value)
		case strings.EqualFold(field.Name, lastModified) && own.IsZero():
			own, _ = parseDate(value)
		case strings.EqualFold(field.Name, operationType) && e.op == "":
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

func first(at *string, value string) {
	if *at == "" {
		*at = value
	}
}

// fits says whether a field can stand in a page. Those of Kafka may have any
// bytes, such as a line that would be another field.
func fits(field feed.Field) bool {
	if field.Name == "" || !utf8.ValidString(field.Value) {
		return false
	}
	for i := range len(field.Name) {
		if !isToken(field.Name[i]) {
			return false
		}
	}
	for i := range len(field.Value) {
		if c := field.Value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken says whether c may be part of a header's name (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

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

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// hash is that of all that makes two messages the same.
func (e *entity) hash() uint64 {
	var sum xxhash.Digest
	sum.Reset()
	_, _ = sum.WriteString(string(e.op))
	for _, f := range e.header {
		// Neither has a line end in it.
		_, _ = sum.WriteString("\n" + f.Name + ":")
		_, _ = sum.WriteString(f.Value)
	}
	_, _ = sum.WriteString("\n\n")
	_, _ = sum.Write(e.body)
	return sum.Sum64()
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
}

func newSifter(before summary) *sifter {
	return &sifter{before: before, own: summary{ids: map[string]uint64{}}}
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
	hash := e.hash()
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
