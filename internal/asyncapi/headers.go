package asyncapi

import (
	"maps"
	"regexp"
	"strings"
	"sync"

	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// headerSet is a set of headers that messages of a kind have. docs/consuming.md describes each.
type headerSet struct {
	// name is the name of its schema.
	name string
	// has reports whether the messages have these headers.
	has     func(messageKind) bool
	headers []header
}

type header struct {
	name   string
	schema object
}

// A value of a header is always text.
var (
	text   = object{"type": "string"}
	number = object{"type": "string", "pattern": "^[0-9]+$"}
)

var headerSets = []headerSet{
	{"entityHeaders", func(messageKind) bool { return true }, []header{
		{message.ContentID, text},
		{message.Operation, text},
		{message.Time, object{"type": "string", "format": "date-time"}},
		{message.OperationType, text},
		{message.LastModified, text},
		{message.ContentType, text},
		{message.FeedName, text},
		{message.Page, text},
		{message.Names, text},
		{message.Made, text},
	}},
	{"entryHeaders", func(m messageKind) bool { return m.isEntry }, []header{
		{"Feed-Format", object{"type": "string", "enum": []string{"rss2", "rss09", "rss1", "atom03", "jsonfeed"}}},
		{"Feed-Id", text},
		{"Feed-Title", text},
		{"Feed-Author", text},
		{"Content-Location", text},
		{"Id-Source", text},
		{"Late", object{"type": "string", "const": "true"}},
	}},
	{"deadLetterHeaders", func(m messageKind) bool { return m.isDead }, []header{
		{message.Operation, object{"type": "string", "enum": []feed.Operation{feed.Put, feed.Patch, feed.Delete}}},
		{message.DeadReason, text},
		{message.DeadLength, number},
	}},
	{"natsEventHeaders", func(m messageKind) bool { return m.isEvent() && m.feed.To.Kafka == nil }, eventHeaders("ce-", "ce-datacontenttype")},
	{"kafkaEventHeaders", func(m messageKind) bool { return m.isEvent() && m.feed.To.Kafka != nil }, eventHeaders("ce_", "content-type")},
}

// eventHeaders returns the attributes of a CloudEvent.
func eventHeaders(prefix, contentType string) []header {
	return []header{
		{prefix + "specversion", object{"type": "string", "const": "1.0"}},
		{prefix + "id", text},
		{prefix + "source", object{"type": "string", "format": "uri-reference"}},
		{prefix + "type", text},
		{prefix + "subject", text},
		{prefix + "time", object{"type": "string", "format": "date-time"}},
		{prefix + "sequence", object{"type": "string", "pattern": "^[0-9]{20}$"}},
		{contentType, text},
	}
}

// schema returns the schema of the set.
func (s headerSet) schema() object {
	properties := map[string]object{}
	for _, h := range s.headers {
		properties[h.name] = maps.Clone(h.schema)
		properties[h.name]["description"] = headerDescriptions()[h.name]
	}
	return object{"type": "object", "properties": properties}
}

var (
	// headerRow matches the row of one or several headers, or of an attribute of events: their names and their content.
	headerRow  = regexp.MustCompile("(?m)^\\| (`.*?) \\| (.*) \\|$")
	headerName = regexp.MustCompile("`([A-Za-z-]+)`")
)

// headerDescriptions returns the contents of headers by their names, as docs/consuming.md has them, and those of
// attributes of events, as docs/consuming-cloudevents.md does.
var headerDescriptions = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	for _, row := range headerRow.FindAllStringSubmatch(docs.CloudEvents, -1) {
		name, description := docs.Plain(row[1]), docs.Plain(row[2])
		found["ce-"+name], found["ce_"+name] = description, description
	}
	for _, row := range headerRow.FindAllStringSubmatch(docs.Consuming, -1) {
		for _, name := range headerName.FindAllStringSubmatch(row[1], -1) {
			found[name[1]] = strings.TrimSpace(docs.Plain(row[2]))
		}
	}
	return found
})
