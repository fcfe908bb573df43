package serve

import (
	"cmp"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/xmlcopy"
	"github.com/feedbridge/feedbridge/message"
)

// contentLength is a header of every entity of a feed. The others are those of
// package message.
const contentLength = "Content-Length"

// messageKey is the header that has the key of a message. Only the key identifies the
// thing that a tombstone deletes, and often that of other programs' messages. Other
// messages of feedbridge do not have the header, because they identify it themselves.
const (
	messageKey = "Message-Key"
	// longestKey limits the length of the header, because readers limit headers.
	longestKey = 4 << 10
)

// entryID is the header that has the ID of an entry of Atom or RSS, of which the
// entity is one version. A datareplication feed has it because each version has a
// Content-ID of its own there.
const entryID = "Entry-Id"

// entity is a message as a feed has it.
type entity struct {
	position uint64
	id       string // as the message has it, or made of its position
	// entryID is the ID of the entry of Atom or RSS that the entity is a version of,
	// and equals id if it is none.
	entryID string
	op      feed.Operation
	// modified is the entity's Last-Modified, and taken when the bus took it.
	modified, taken time.Time
	// published is the Last-Modified that the message has, unless that is later than taken; zero for
	// entries of Atom and RSS, which have dates of their own.
	published   time.Time
	contentType string
	untyped     bool // the message has no Content-Type
	// header has the fields that a feed can carry, the standard fields as the message
	// has them.
	header feed.Header
	body   []byte
	// changes reports whether the ID belongs to an entry that is published again with the
	// same ID when it changes.
	changes bool
	// page is the URL of the page or document that the entity was on.
	page string
	// timeMade reports that feedbridge made the time of the message.
	timeMade bool
}

// decoder reads the messages of a topic.
type decoder struct {
	name    string // of the feed
	busTime bool   // see [Config.Snapshot]
}

// decodeRecord reads a message, which may come from any program: every message is an entity.
// It appends the entity's header to header[:0].
func (d decoder) decodeRecord(epoch string, r feed.Record, header feed.Header) entity {
	m := message.Decode(r.Header, header[:0])
	e := entity{position: r.Position, body: r.Body, taken: r.Time.UTC(), changes: m.Mark != "", page: m.Page, timeMade: strings.Contains(m.Made, message.LastModified)}
	if !isServedTime(r.Time) {
		e.taken = time.Unix(0, 0).UTC()
	}
	operation, modified := e.setHeader(m.Header)
	if e.id == "" {
		e.id = strconv.FormatUint(r.Position, 10) + "." + epoch + "@" + d.name
	}
	e.keepOrigin()
	if e.untyped = e.contentType == ""; e.untyped {
		e.contentType = "application/octet-stream"
	}
	if r.Key != nil && (m.Foreign || r.Tombstone) {
		e.addKey(r.Key)
	}
	e.limitHeader()
	e.op, _ = message.ParseOperation(operation)
	switch {
	case e.op == "" && r.Tombstone:
		e.op = feed.Delete
	case e.op == "":
		e.op = feed.Put
	}
	// Entries of Atom and RSS come in any order of their times. And no entity was
	// modified later than the bus had it.
	e.modified = e.taken
	if !e.changes {
		own, _, _ := message.ParseDate(modified)
		if isServedTime(own) && (own.Before(e.taken) || r.Time.IsZero()) {
			e.published = own
			if !d.busTime {
				e.modified = own
			}
		}
	}
	e.modified = e.modified.Truncate(time.Second)
	return e
}

// setHeader sets the header to those of the fields that a page can contain, in the same array, and
// the values of standard fields. It returns the values of Operation-Type and Last-Modified.
func (e *entity) setHeader(fields feed.Header) (operation, modified string) {
	e.header = fields[:0]
	for _, field := range fields {
		if v := field.Value; v != "" && (v[0] <= ' ' || v[len(v)-1] <= ' ') {
			field.Value = strings.Trim(v, " \t")
		}
		if !fitsHeader(field) || len(field.Value) > longestValue && isNeeded(field.Name) {
			continue
		}
		switch value := field.Value; {
		case message.IsNamed(field.Name, message.ContentID):
			e.id = cmp.Or(e.id, value)
		case message.IsNamed(field.Name, message.ContentType):
			e.contentType = cmp.Or(e.contentType, value)
		case message.IsNamed(field.Name, message.LastModified):
			modified = cmp.Or(modified, value)
		case message.IsNamed(field.Name, message.OperationType):
			operation = cmp.Or(operation, value)
		case message.IsNamed(field.Name, entryID):
			e.entryID = cmp.Or(e.entryID, value)
		}
		e.header = append(e.header, field)
	}
	return operation, modified
}

// firstUnserved is the first time whose year has five digits, which dates on a page cannot have.
var firstUnserved = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)

// isServedTime reports whether a page can contain t, and t is set.
func isServedTime(t time.Time) bool { return !t.IsZero() && t.Before(firstUnserved) }

// keepOrigin adds the headers that make the copy of an entry as good as the entry: its
// ID, and the URL of the document that its relative references start from. Of a copy,
// it restores that URL.
func (e *entity) keepOrigin() {
	if e.entryID == "" && !e.changes {
		e.entryID = e.id
		return
	}
	location := e.headerValue(contentLocation)
	switch {
	case e.entryID == "":
		e.entryID = e.id
		e.header = append(e.header, feed.Field{Name: entryID, Value: e.id})
		if location == "" && e.page != "" && len(e.page) <= longestValue && fitsHeader(feed.Field{Name: contentLocation, Value: e.page}) {
			e.header = append(e.header, feed.Field{Name: contentLocation, Value: e.page})
		}
	case location != "":
		e.page = location
	}
}

const (
	// largestHeader limits the header of a part, in bytes. Readers, including our own,
	// refuse 64 KiB and more and stop reading. 1 KiB is left for fields that a message need
	// not have.
	largestHeader = 63 << 10
	// longestValue limits the value of a field that readers need, in bytes.
	longestValue = 8 << 10
)

// isNeeded reports whether readers need the field to identify an entity.
func isNeeded(name string) bool {
	return standard(name) >= 0 || message.IsNamed(name, entryID) || message.IsNamed(name, contentLocation) || message.IsNamed(name, messageKey)
}

// limitHeader removes the fields that readers do not need and that have no room behind those
// before them, so that the header is no larger than largestHeader.
func (e *entity) limitHeader() {
	size := func(f feed.Field) int { return len(f.Name) + len(": ") + len(f.Value) + len("\r\n") }
	all, left := 0, largestHeader
	for _, f := range e.header {
		all += size(f)
	}
	if all <= largestHeader {
		return
	}
	for _, f := range e.header {
		if isNeeded(f.Name) {
			left -= size(f)
		}
	}
	e.header = slices.DeleteFunc(e.header, func(f feed.Field) bool {
		n := size(f)
		if isNeeded(f.Name) || n > left {
			return !isNeeded(f.Name)
		}
		left -= n
		return false
	})
}

// contentLocation is the header that has the URL of the document that an entry is from.
const contentLocation = "Content-Location"

// addKey adds the header with a key, unless the message has one of its own. Bytes
// that are not visible ASCII, and the percent sign, are escaped as in URLs: a key may
// have any bytes and can be restored.
func (e *entity) addKey(key []byte) {
	if _, ok := e.header.Get(messageKey); ok || len(key) > longestKey {
		return
	}
	text := message.PercentEncode(string(key), func(r rune) bool { return r > ' ' && r < 0x7f && r != '%' })
	if len(text) <= longestKey {
		e.header = append(e.header, feed.Field{Name: messageKey, Value: text})
	}
}

// fitsHeader reports whether a page can contain a field. The fields of Kafka may have any
// bytes, such as a line that would be another field.
func fitsHeader(field feed.Field) bool {
	return httpguts.ValidHeaderFieldName(field.Name) && httpguts.ValidHeaderFieldValue(field.Value) && utf8.ValidString(field.Value)
}

// updateTime returns the update time of an entry without one: the time when the bus stored
// its message, with the position in the digits after the millisecond. So a later entry is
// newer, also if the bus counts in milliseconds.
func (e *entity) updateTime() time.Time {
	return e.taken.Truncate(time.Millisecond).Add(time.Duration(e.position % 1e6))
}

// mediaType returns the media type of the body. UTF-8 text that has none is text.
func (e *entity) mediaType() string {
	media, _, err := mime.ParseMediaType(e.contentType)
	switch {
	case err == nil && strings.Contains(media, "/") && !e.untyped:
		return media
	case e.untyped && xmlcopy.IsText(e.body):
		return "text/plain"
	}
	return "application/octet-stream"
}

// contentBase returns the base URL of relative references in the body: the document that
// the entity was read from. It is empty if that is unknown.
func (e *entity) contentBase() string {
	return entry.ResolveURL(e.page, e.headerValue(contentLocation))
}

// headerValue returns the value of a header, "" if there is none.
func (e *entity) headerValue(name string) string {
	value, _ := e.header.Get(name)
	return value
}

// headerOf returns the value of a header whose name has that case.
func (e *entity) headerOf(name string) string {
	for _, f := range e.header {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// standards are the fields that every part has.
var standards = [...]string{message.ContentType, message.ContentID, message.LastModified, message.OperationType, contentLength}

// standard returns the index of a name in standards, -1 if it is not there.
func standard(name string) int {
	return slices.IndexFunc(standards[:], func(s string) bool { return message.IsNamed(name, s) })
}
