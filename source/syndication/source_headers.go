package syndication

import (
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// longestFeedHeader is how long a header may be that describes the feed, in bytes.
const longestFeedHeader = 1 << 10

// originHeaders returns what an entry cannot say itself: the ID, title and authors of
// its feed, and the base of its relative references if that is not the URL of its
// document. They are no part of the body or of its hash, so that an entry does not
// change with its feed.
func (d *document) originHeaders(redact *safetext.Redactor) (h feed.Header) {
	add := func(name, value string) {
		value = headerSafe(strings.Join(strings.Fields(value), " "))
		if value != "" && len(value) <= longestFeedHeader {
			h = append(h, feed.Field{Name: name, Value: value})
		}
	}
	add("Feed-Id", d.meta.ID)
	add("Feed-Title", d.meta.Title)
	for _, author := range d.meta.Authors {
		add("Feed-Author", author)
	}
	if d.meta.URL != d.url {
		add("Content-Location", redact.URL(d.meta.URL))
	}
	return h
}
