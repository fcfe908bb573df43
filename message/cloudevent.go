package message

import (
	"fmt"
	"hash/fnv"
	"mime"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/feed"
)

// Events makes each message of a feed a CloudEvent 1.0.2 in binary mode: the attributes are headers, and
// the body stays as it is. A nil *Events adds nothing.
//
// The zero binding is that of NATS, as of version 1.0.3-wip: 1.0.2 has no binary mode for it.
type Events struct {
	// Type is the beginning of the attribute type. A dot and the operation in lower case follow.
	Type string
	// Source is the attribute source, a URI reference, in which [NewEvents] escapes characters that
	// no URI has.
	Source string
	// kafka selects the binding of Kafka.
	kafka bool
}

// NewEvents returns Events for NATS. See [Events.ForKafka].
func NewEvents(typ, source string) *Events {
	return &Events{Type: typ, Source: PercentEncode(source, isURI)}
}

// ForKafka returns the same Events for Kafka.
func (ev *Events) ForKafka() *Events {
	if ev == nil {
		return nil
	}
	return &Events{Type: ev.Type, Source: ev.Source, kafka: true}
}

// IsEventType reports whether s can be the Type of [Events].
func IsEventType(s string) bool { return strings.TrimSpace(s) != "" && PercentEncode(s, isText) == s }

// IsEventSource reports whether s is a URI reference, and so can be the Source of [Events].
func IsEventSource(s string) bool {
	_, err := url.Parse(s)
	return err == nil && s != "" && PercentEncode(s, isURI) == s
}

const (
	// kafkaType is the header of the attribute datacontenttype on Kafka, where names are case-sensitive.
	// The feed's own header is [ContentType].
	kafkaType = "content-type"
	// untyped is the datacontenttype of a message whose Content-Type is no media type. On Kafka many readers
	// would take the latter otherwise.
	untyped = "application/octet-stream"
)

// appendTo appends the headers of the event that is the message of e. sequence is the number of the entity
// in its topic, which is not used again, whatever copy publishes it.
//
// An entity that is a CloudEvent in structured mode already gets no attributes.
func (ev *Events) appendTo(h feed.Header, e *feed.Entity, sequence uint64) feed.Header {
	h = append(h, feed.Field{Name: Event, Value: "1"})
	contentType, isTyped := e.Header.Get(ContentType)
	isStructured := hasPrefixFold(contentType, "application/cloudevents")
	if isTyped && !isStructured && !isMediaType(contentType) {
		contentType = untyped
	}
	if isTyped && ev.kafka {
		h = append(h, feed.Field{Name: kafkaType, Value: contentType})
	}
	if isStructured {
		return h
	}
	add := func(name, value string) {
		if ev.kafka {
			h = append(h, feed.Field{Name: "ce_" + name, Value: value})
			return
		}
		h = append(h, feed.Field{Name: "ce-" + name, Value: PercentEncode(value, isVisible)})
	}
	subject, number := PercentEncode(e.ID, isText), fmt.Sprintf("%020d", sequence)
	add("specversion", "1.0")
	add("id", eventID(e, subject, number))
	add("source", ev.Source)
	add("type", ev.Type+"."+strings.ToLower(string(e.Op)))
	if strings.TrimSpace(subject) != "" {
		add("subject", subject)
	}
	if hasTime(e) {
		add("time", e.Modified.UTC().Format(time.RFC3339Nano))
	}
	if isTyped && !ev.kafka {
		add("datacontenttype", contentType)
	}
	add("sequence", number)
	return h
}

// eventID returns the ID of the event for an entity with the given subject and number. It is the entity's ID,
// unless there are several versions with that ID. Then the number tells apart versions with the same mark, such
// as a state that comes back, and the hash of the mark those with the same number, if the bus has lost the first
// one. So the same ID is never that of two versions.
func eventID(e *feed.Entity, subject, number string) string {
	switch {
	case e.Mark != "":
		return fmt.Sprintf("%s#%s-%016x", subject, number, hash(e.Mark))
	case subject != e.ID: // another ID may have the same subject
		return fmt.Sprintf("%s#%016x", subject, hash(e.ID))
	}
	return subject
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}

func isMediaType(s string) bool {
	if s == "application/json" { // as of Atom and RSS
		return true
	}
	name, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(name, "/") && PercentEncode(s, isText) == s
}

// isEventHeader reports whether a header looks like an attribute of a CloudEvent, on any bus.
func isEventHeader(name string) bool { return hasPrefixFold(name, "ce-") || hasPrefixFold(name, "ce_") }

// isEvent reports whether a message of feedbridge is a CloudEvent.
func isEvent(h feed.Header) bool {
	return slices.ContainsFunc(h, func(f feed.Field) bool { return IsNamed(f.Name, Event) })
}

// PercentEncode encodes the bytes of all characters of s that are not allowed, and those that are no UTF-8.
func PercentEncode(s string, isAllowed func(rune) bool) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isAllowed(r) || r == utf8.RuneError && n == 1 {
			b.WriteString(s[done:i])
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			done = i + n
		}
		i += n
	}
	if done == 0 {
		return s
	}
	return b.String() + s[done:]
}

// isText reports whether an attribute may have the character.
func isText(r rune) bool {
	isControl := r < ' ' || r >= 0x7F && r <= 0x9F
	isNoncharacter := r&0xFFFE == 0xFFFE || r >= 0xFDD0 && r <= 0xFDEF
	return !isControl && !isNoncharacter
}

// isVisible reports whether the binding of NATS has the character as it is.
func isVisible(r rune) bool { return r > ' ' && r <= '~' && r != '"' && r != '%' }

// isURI reports whether a URI may have the character.
func isURI(r rune) bool { return r > ' ' && r <= '~' && !strings.ContainsRune("\"<>\\^`{|}", r) }
