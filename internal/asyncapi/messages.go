package asyncapi

import (
	"strings"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// messageKind is a kind of messages that a feed has in a topic.
type messageKind struct {
	feedName string
	feed     config.Feed
	isEntry  bool // of Atom, RSS or JSON Feed
	isDead   bool
	op       feed.Operation // "" for all, in dead letters
}

// messageKinds returns the kinds of messages of a feed in its topic, or in that of its dead letters. The format
// auto has those of all formats, as it is not known before the first poll.
func messageKinds(name string, f config.Feed, isDead bool) (kinds []messageKind) {
	for _, op := range []feed.Operation{feed.Put, feed.Patch, feed.Delete, ""} {
		for _, kind := range []string{datareplication.Kind, syndication.Kind} {
			isEntry, known := kind == syndication.Kind, f.Format.Kind()
			if isDead == (op == "") && (op != feed.Patch || !isEntry) && (known == "" || (known == syndication.Kind) == isEntry) {
				kinds = append(kinds, messageKind{name, f, isEntry, isDead, op})
			}
		}
	}
	return kinds
}

// isEvent reports whether the messages are CloudEvents.
func (m messageKind) isEvent() bool { return m.feed.To.CloudEvents && !m.isDead }

// isGuess reports whether the format of the feed is detected.
func (m messageKind) isGuess() bool { return m.feed.Format.Kind() == "" }

// key returns the key of the messages in their channel.
func (m messageKind) key() string {
	key := strings.ToLower(string(m.op))
	if m.isDead {
		key = "dead"
	}
	if m.isGuess() {
		key = map[bool]string{false: datareplication.Kind, true: "entry"}[m.isEntry] + "-" + key
	}
	if m.feed.To.Kafka != nil && m.feed.To.Kafka.Shared {
		key = m.feedName + "-" + key
	}
	return key
}

// describe returns the description of the messages, and adds the schemas that it refers to.
func (m messageKind) describe(d *Document, topic string) object {
	contentType, payload := m.describeBody(d)
	described := object{
		"name":    topic + "-" + m.key(),
		"headers": m.describeHeaders(d, contentType),
		"payload": payload,
		"summary": map[feed.Operation]string{
			feed.Put: "Create or replace an entity.", feed.Patch: "Change an entity, as the provider of the feed defines it.",
			feed.Delete: "Delete an entity.", "": "An entity that the bus does not take.",
		}[m.op],
	}
	if contentType != "" {
		described["contentType"] = contentType
	}
	if m.isGuess() {
		described["description"] = "The feed has the format auto, which is detected at the first poll. It has this message if it is " +
			map[bool]string{false: "datareplication.", true: "Atom, RSS or JSON Feed."}[m.isEntry]
	}
	if m.feed.To.Kafka != nil {
		described["bindings"] = object{"kafka": object{"key": m.kafkaKey(), "bindingVersion": kafkaVersion}}
	}
	return described
}

// describeHeaders returns the schema of the headers: the sets that the messages have, and constant values.
func (m messageKind) describeHeaders(d *Document, contentType string) object {
	constants, required := object{}, []string{message.ContentID, message.FeedName}
	set := func(name, value string) { constants[name] = object{"type": "string", "const": value} }
	set(message.FeedName, m.feedName)
	if m.isDead {
		required = append(required, message.DeadReason, message.DeadLength)
	} else {
		set(message.Operation, string(m.op))
		required = append(required, message.Operation, message.OperationType)
	}
	if contentType != "" {
		set(message.ContentType, contentType)
		required = append(required, message.ContentType)
	}
	headers := object{"type": "object", "properties": constants}
	if m.isGuess() && m.isEntry {
		required = append(required, message.Mark)
	} else if m.isGuess() {
		headers["not"] = object{"required": []string{message.Mark}} // a message has the form of one kind only
	}
	var sets []object
	for _, s := range headerSets {
		if s.has(m) {
			d.Components.Schemas[s.name] = s.schema()
			sets = append(sets, ref("components", "schemas", s.name))
		}
	}
	headers["required"], headers["allOf"] = required, sets
	return headers
}

// describeBody returns the type of the bodies, "" if it is not known, and their schema.
func (m messageKind) describeBody(d *Document) (contentType string, payload object) {
	isJSON := m.isEntry && !m.isDead && m.feed.Syndication.Body == "json"
	if format := feedxml.Format(m.feed.Format); isJSON {
		contentType = entry.ContentType
	} else if m.isEntry && m.op == feed.Put && !m.isGuess() {
		contentType = format.ContentType()
	}
	switch {
	case m.isDead:
		payload = object{"description": "The body of the entity, or only its beginning: " + message.DeadLength + " is the length of all of it."}
	case m.op == feed.Delete && m.feed.To.Kafka != nil && m.feed.To.Kafka.Delete == kafka.DeleteTombstone:
		payload = object{"type": "null", "description": "A tombstone: a null value under the key."}
	case isJSON:
		payload = d.addEntrySchema()
	case m.isEntry && m.feed.Format == config.Format(feedxml.JSON):
		payload = object{"type": "object", "description": "The item as the feed has it."}
	case m.isEntry:
		payload = object{"type": "string", "description": "The entry or tombstone as the feed has it, in XML. A DELETE may have no body."}
	default:
		payload = object{"description": "The body of the entity as the feed has it. Content-Type has its type."}
	}
	return contentType, payload
}

// kafkaKey returns the schema of the key.
func (m messageKind) kafkaKey() object {
	if m.isDead || m.feed.Key == "" {
		return object{"type": "null"}
	}
	key := object{"type": "string", "description": "The value in the body at " + string(m.feed.Key) + "."}
	if header, ok := strings.CutPrefix(string(m.feed.Key), "header:"); ok {
		key["description"] = "The header " + strings.TrimSpace(header) + "."
	}
	if m.feed.To.Kafka.MissingKey == kafka.KeyNull {
		key["type"] = []string{"string", "null"}
	}
	return key
}
