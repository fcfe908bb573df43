package serve

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// jsonFeedHeadAndTail returns the bytes around the items of a document of JSON Feed 1.1. Its next_url leads to the page
// with older items, so readers see a paged feed. Pages that are full never change.
func jsonFeedHeadAndTail(c *Config, p *page) (head, tail []byte) {
	head = fmt.Appendf(nil, `{"version":"https://jsonfeed.org/version/1.1","title":%s`, quoteJSON(c.Title))
	for _, l := range p.relations(c) {
		switch {
		case l[0] == "current" && c.PublicURL != "": // a relative one would be another from page to page
			head = fmt.Appendf(head, `,"feed_url":%s`, quoteJSON(l[1]))
		case l[0] == "prev-archive":
			head = fmt.Appendf(head, `,"next_url":%s`, quoteJSON(l[1]))
		}
	}
	return append(head, `,"items":[`...), []byte("\n]}\n")
}

func quoteJSON(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a text is always valid
	}
	return b
}

// appendJSONItem appends an entity as an item, with a comma before it. A DELETE is nothing, because JSON Feed has none:
// the entry is not in this document. A message without an entry becomes the content of an item, and is in the item
// byte for byte.
func appendJSONItem(b []byte, e *entity) []byte {
	if e.op == feed.Delete {
		return b
	}
	d, ok := e.document()
	if !ok {
		return append(append(b, ",\n"...), otherItem(e)...)
	}
	if d.Authors == nil {
		d.Authors = feedAuthors(e)
	}
	if d.Feed == nil && d.Source == nil {
		d.Feed = originFeed(e)
	}
	return append(append(b, ",\n"...), d.Item()...)
}

// otherItem returns the item of a message that has no entry.
func otherItem(e *entity) []byte {
	custom := map[string]any{"operation": e.op, "content_type": e.contentType}
	item := map[string]any{"id": e.entryID, "date_modified": e.modified.UTC().Format(time.RFC3339Nano), "_feedbridge": custom}
	switch media := e.mediaType(); {
	case media == "text/html" && xmlcopy.IsText(e.body):
		item["content_html"] = string(e.body)
	case xmlcopy.IsText(e.body) && (isTextual(media) || isXML(media)):
		item["content_text"] = string(e.body)
	default:
		item["content_text"] = fmt.Sprintf("%d bytes of %s", len(e.body), media)
		custom["body_base64"] = e.body
	}
	b, err := json.Marshal(item)
	if err != nil {
		panic(err) // it has texts and bytes only
	}
	return b
}
