// Package message is the codec between an entity and the message that carries
// it on a bus. [Header] writes the headers of a message, [Entity] reads them
// back, and [ParseOperation] and [ParseDate] read the values that feeds write in
// many spellings. Sources, sinks, served feeds and verify all use this package,
// so that each of them reads a feed in the same way.
//
// It depends on the standard library and package feed only.
package message

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// The well-known headers of a message. [Header] writes them in this case,
// because many clients look headers up case-sensitively, and adds the ones that
// the feed does not have, except ContentType.
const (
	ContentID     = "Content-ID"
	ContentType   = "Content-Type"
	LastModified  = "Last-Modified"
	OperationType = "Operation-Type"
)

// The headers of feedbridge.
const (
	// Operation is PUT, PATCH or DELETE, and Time the entity's time as RFC 3339 has it, as precisely as
	// the feed has it. They are for consumers: OperationType and LastModified have what the feed wrote.
	Operation = "Feedbridge-Operation"
	Time      = "Feedbridge-Time"
	FeedName  = "Feedbridge-Feed"
	Page      = "Feedbridge-Page"
	Mark      = "Feedbridge-Mark"
	// Made has the names of the entity's headers whose values feedbridge made, separated by
	// blanks: the feed has none. A message has it only if there are such headers.
	Made = "Feedbridge-Made"
	// Event marks a message that is a CloudEvent, so that headers such as ce-id are those of feedbridge and
	// not of the entity. Its value is 1. See [Events].
	Event = "Feedbridge-Event"
	// Names holds the names of the entity's well-known headers in the case that
	// the feed uses, in the order of the headers and separated by blanks. A
	// message has it only if one of these names differs from the canonical one.
	Names = "Feedbridge-Names"
	// DeadReason and DeadLength are in messages of a dead-letter topic only: the reason why the
	// entity is there, as a sentence, and the length of its body in bytes. The message may have
	// only the beginning of the body.
	DeadReason = "Feedbridge-Dead-Reason"
	DeadLength = "Feedbridge-Dead-Length"
	// Escape precedes the name of an entity's header that a bus would obey, or
	// that looks like a header of feedbridge.
	Escape = "Feedbridge-Header-"
)

const (
	ours       = "Feedbridge-"
	natsServer = "Nats-"
)

// Header returns the headers of the message that carries e: the headers of the
// entity, in their order and with all their values, then [ContentID],
// [LastModified] and [OperationType] as far as they are missing, then [Operation], [Time],
// [FeedName], [Page], [Mark], [Made] and [Names] unless they are empty.
func Header(feedName string, e feed.Entity) feed.Header {
	return AppendEvent(make(feed.Header, 0, len(e.Header)+8), feedName, e, nil, 0)
}

// AppendEvent appends to h what [Header] returns, for a message that is a CloudEvent unless events is nil. sequence is the
// number of the entity in its topic, counted from 1. The size of the headers does not depend on it.
func AppendEvent(h feed.Header, feedName string, e feed.Entity, events *Events, sequence uint64) feed.Header {
	h, _ = appendHeader(h, feedName, &e, events, sequence)
	return h
}

// appendHeader is [AppendEvent]. isComplete reports that the entity has an [ID], a
// Last-Modified and an Operation-Type of its own.
func appendHeader(h feed.Header, feedName string, e *feed.Entity, events *Events, sequence uint64) (_ feed.Header, isComplete bool) {
	renamed := false
	var hasID, hasModified, hasOperation bool
	for _, f := range e.Header {
		switch name := canonical(f.Name); {
		case name != "":
			hasID = hasID || name == ContentID && f.Value != ""
			hasModified = hasModified || name == LastModified
			hasOperation = hasOperation || name == OperationType
			renamed = renamed || name != f.Name
			f.Name = name
		case reserved(f.Name), events != nil && isEventHeader(f.Name):
			f.Name = Escape + f.Name
		}
		h = append(h, f)
	}
	add := func(name, value string) { h = append(h, feed.Field{Name: name, Value: value}) }
	if !hasID {
		add(ContentID, e.ID)
	}
	if !hasModified && !e.Modified.IsZero() {
		add(LastModified, FormatDate(e.Modified))
	}
	if !hasOperation && e.Op != "" {
		add(OperationType, FormatOperation(e.Op))
	}
	if e.Op != "" {
		add(Operation, string(e.Op))
	}
	if hasTime(e) {
		add(Time, formatTime(e.Modified))
	}
	if feedName != "" {
		add(FeedName, feedName)
	}
	if e.Page != "" {
		add(Page, e.Page)
	}
	if e.Mark != "" {
		add(Mark, e.Mark)
	}
	if e.Made != "" {
		add(Made, e.Made)
	}
	if renamed {
		add(Names, namesOf(e.Header))
	}
	if events != nil {
		h = events.appendTo(h, e, sequence)
	}
	return h, hasID && hasModified && hasOperation
}

// hasTime reports whether consumers get the time of an entity. A time that feedbridge made is the time of the document
// or of the poll, and no property of the entity; a DELETE has it all the same, as the time at which the entry was gone.
func hasTime(e *feed.Entity) bool {
	isMade := e.Op != feed.Delete && slices.Contains(strings.Fields(e.Made), LastModified)
	return !e.Modified.IsZero() && !isMade
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// namesOf returns the value of [Names]. It lists all well-known headers, because
// a feed may repeat one in another case.
func namesOf(h feed.Header) string {
	var names []string
	for _, f := range h {
		if canonical(f.Name) != "" {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, " ")
}

// canonical returns the well-known name that equals name without regard to case,
// or "". It runs for every header of every entity; most names have another
// length.
func canonical(name string) string {
	var known string
	switch len(name) {
	case len(ContentID):
		known = ContentID
	case len(ContentType):
		known = ContentType
	case len(LastModified):
		known = LastModified
	case len(OperationType):
		known = OperationType
	}
	if known == "" || !IsNamed(name, known) {
		return ""
	}
	return known
}

// IsNamed is [strings.EqualFold] for names in ASCII. Most of them differ in length or not at all,
// which is faster to compare.
func IsNamed(name, want string) bool {
	return len(name) == len(want) && (name == want || strings.EqualFold(name, want))
}

// reserved reports whether a header cannot travel under its own name. A NATS
// server obeys Nats-Rollup, which would purge a stream, and others with that
// prefix. A NATS client takes a message without a body that has a Status for a
// reply of the server, and a KV-Operation for the mark of a deleted key.
func reserved(name string) bool {
	if name == "" {
		return false
	}
	switch name[0] {
	case 'n', 'N', 'f', 'F', 's', 'S', 'k', 'K':
	default:
		return false // nearly all names
	}
	return hasPrefixFold(name, natsServer) || hasPrefixFold(name, ours) ||
		strings.EqualFold(name, "Status") || strings.EqualFold(name, "KV-Operation")
}

// Decoded has the parts of a message. The values are as written and may be invalid; [Entity]
// checks them.
type Decoded struct {
	// Header has the headers of the entity, in the case that the feed uses.
	Header feed.Header
	// ID is the Content-ID, "" if there is none.
	ID string
	// Operation and Modified are the values of the Operation-Type and of the
	// Last-Modified as written, "" if there are none.
	Operation, Modified string
	// Feed, Page, Mark and Made are the values of [FeedName], [Page], [Mark] and [Made].
	Feed, Page, Mark, Made string
	// Foreign reports that no header of feedbridge is there, so that the message
	// was written by another program.
	Foreign bool
}

// Decode separates the headers of a message into those of its entity and those
// of feedbridge and the bus. It accepts the message of any program. The entity's
// headers are appended to into, which may be nil.
func Decode(h feed.Header, into feed.Header) Decoded {
	d := Decoded{Header: into, Foreign: true}
	names := ""
	event, looked := false, false
	for _, f := range h {
		switch {
		case hasPrefixFold(f.Name, ours):
			if len(f.Name) > len(Escape) && hasPrefixFold(f.Name, Escape) {
				f.Name = f.Name[len(Escape):]
				break
			}
			d.Foreign = false
			switch {
			case IsNamed(f.Name, FeedName):
				d.Feed = f.Value
			case IsNamed(f.Name, Page):
				d.Page = f.Value
			case IsNamed(f.Name, Mark):
				d.Mark = f.Value
			case IsNamed(f.Name, Made):
				d.Made = f.Value
			case IsNamed(f.Name, Names):
				names = f.Value
			}
			continue
		case hasPrefixFold(f.Name, natsServer):
			continue
		case isEventHeader(f.Name), f.Name == kafkaType:
			if !looked {
				event, looked = isEvent(h), true
			}
			if event {
				continue
			}
		}
		d.Header = append(d.Header, f)
	}
	if names != "" {
		restoreNames(d.Header[len(into):], names)
	}
	d.ID = ID(d.Header[len(into):])
	for _, f := range d.Header[len(into):] {
		switch canonical(f.Name) {
		case LastModified:
			d.Modified = cmp.Or(d.Modified, f.Value)
		case OperationType:
			d.Operation = cmp.Or(d.Operation, f.Value)
		}
	}
	return d
}

// ID returns the ID of the entity of a part or a message with the header h: the first [ContentID] that
// is not empty, or "" if there is none.
func ID(h feed.Header) string {
	for i := range h {
		if h[i].Value != "" && IsNamed(h[i].Name, ContentID) {
			return h[i].Value
		}
	}
	return ""
}

// restoreNames gives the well-known headers the names in list. A bus may change
// the order of headers with different names, but not of those with the same
// name, so each header gets the first name in the list that is its own.
func restoreNames(h feed.Header, list string) {
	names := strings.Fields(list)
	for i, f := range h {
		known := canonical(f.Name)
		for j, name := range names {
			if known != "" && canonical(name) == known {
				h[i].Name, names[j] = name, ""
				break
			}
		}
	}
}

// Entity is the inverse of [Header]: it returns the entity that a message
// carries. The headers of the bus and of feedbridge are removed, but a
// Content-ID, Last-Modified and Operation-Type that the feed did not have stay.
// ID, Modified and Op are read from these and stay zero where they are missing.
// Modified has whole seconds. It is an error if a value cannot be read.
func Entity(h feed.Header, body []byte) (feed.Entity, error) {
	d := Decode(h, make(feed.Header, 0, len(h)))
	e := feed.Entity{ID: d.ID, Header: d.Header, Body: body, Page: d.Page, Mark: d.Mark, Made: d.Made}
	if d.Operation != "" {
		var ok bool
		if e.Op, ok = ParseOperation(d.Operation); !ok {
			return feed.Entity{}, fmt.Errorf("message %q: %s %q is not PUT, PATCH or DELETE", e.ID, OperationType, d.Operation)
		}
	}
	if d.Modified != "" {
		t, _, ok := ParseDate(d.Modified)
		if !ok {
			return feed.Entity{}, fmt.Errorf("message %q: %s %q is not a date", e.ID, LastModified, d.Modified)
		}
		e.Modified = t.Truncate(time.Second)
	}
	return e, nil
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && s[0]|' ' == prefix[0]|' ' && IsNamed(s[:len(prefix)], prefix)
}
