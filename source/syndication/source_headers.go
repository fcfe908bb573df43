package syndication

import (
	"bytes"
	"encoding/xml"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// The bounds of what a message says of the feed that its entry is from.
const (
	mostAuthors       = 10
	longestFeedHeader = 1 << 10 // bytes
)

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

// readAuthor reads an author of a feed: its name with the address of its mail behind
// it, as in "Name <a@b.example>", or the one of them that it has.
func readAuthor(content []byte) string {
	if len(content) > longestFeedHeader {
		return ""
	}
	d := xml.NewDecoder(bytes.NewReader(content))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var name, email, in string
	for {
		token, err := d.RawToken()
		if err != nil {
			break
		}
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local
		case xml.EndElement:
			in = ""
		case xml.CharData:
			switch in {
			case "name":
				name += string(token)
			case "email":
				email += string(token)
			}
		}
	}
	name, email = strings.TrimSpace(name), strings.TrimSpace(email)
	if name != "" && email != "" {
		return name + " <" + email + ">"
	}
	return name + email
}
