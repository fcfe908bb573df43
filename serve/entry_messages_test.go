package serve

import (
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

func as(format Format) func(*Config) { return func(c *Config) { c.Format = format } }

// entryOf is the body of an entry of Atom, as our source reads it.
func entryOf(id string, updated time.Time, content string) string {
	return fmt.Sprintf(`<entry xmlns="http://www.w3.org/2005/Atom"><id>%s</id><title>at: fh:%s</title><updated>%s</updated><content>%s</content></entry>`,
		id, id, updated.Format(time.RFC3339), content)
}

func itemOf(id, content string) string {
	return fmt.Sprintf(`<item><guid isPermaLink="false">%s</guid><title>atom: %s</title><link>http://x.example/%s</link><description>%s</description></item>`, id, id, id, content)
}

// syndicated returns a message with a body as our source for Atom and RSS writes them.
func syndicated(id string, op feed.Operation, taken time.Time, body string, fields ...feed.Field) feed.Record {
	e := feed.Entity{ID: id, Op: op, Modified: taken.Add(-time.Hour), Mark: "1;p;;;00;00", Body: []byte(body), Header: fields}
	return feed.Record{Time: taken, Body: e.Body, Header: message.Header("news", e)}
}

var isAtom = feed.Field{Name: "Content-Type", Value: "application/atom+xml;type=entry"}

var isRSS = []feed.Field{{Name: "Content-Type", Value: "application/xml"}, {Name: "Feed-Format", Value: "rss2"}}

// news appends n entries of Atom. Every third one is a new version of an older entry.
func (t *memoryTopic) news(n int) {
	for range n {
		i := int(t.span.End)
		id := fmt.Sprintf("tag:x.example,2026:%d", i-i%3/2)
		t.add(syndicated(id, feed.Put, later(i), entryOf(id, later(i), fmt.Sprintf("text %d", i)), isAtom))
	}
}
