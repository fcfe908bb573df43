package syndication

import (
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// newEntity makes an entity of an entry.
func (d *document) newEntity(it *item, op feed.Operation, redact *safetext.Redactor) feed.Entity {
	m := fingerprint{
		deleted: op == feed.Delete, updated: instantOf(it.Updated.Time), document: d.asOf(),
		hash: it.shortHash(), page: hashKey(d.url).pageNumber(),
	}
	e := feed.Entity{ID: it.ID, Op: op, Body: it.Body, Length: it.Length, Page: d.url, Mark: m.String()}
	d.setModified(&e, it.Updated.Time, it.Published.Time)
	// Markup that is cut is no XML any more.
	repair := d.repair && it.Length == 0 && d.meta.Format != feedxml.JSON
	if it.Undefined != "" && repair {
		// The mark in the topic has the hash of the original entry.
		e.Body = feedxml.ReplaceUndefined(e.Body)
	}
	if repair && op == feed.Put {
		body, prefixes := feedxml.DeclarePrefixes(e.Body)
		if e.Body = body; prefixes != nil {
			d.seen.addViolation(feedxml.UndeclaredPrefix, d.url, "entry %s uses the prefix %s, which the document does not declare; its message declares it", feedxml.Excerpt(it.ID), feedxml.Excerpt(prefixes[0]))
		}
	}
	contentType := d.meta.Format.ContentType()
	if op == feed.Delete {
		contentType = "application/atomdeleted+xml"
	}
	e.Header = entityHeader(e, contentType)
	add := func(name, value string) { e.Header = append(e.Header, feed.Field{Name: name, Value: value}) }
	if format := d.feedFormat(it); format != "" && op == feed.Put {
		add("Feed-Format", format)
	}
	if it.IDFrom.Weak() || it.ID != it.own {
		add("Id-Source", it.idSource())
	}
	if d.late {
		add("Late", "true")
	}
	if op == feed.Put {
		e.Header = append(e.Header, d.originHeaders(redact)...)
	}
	return e
}

// vanishedEntity returns the DELETE of an entry that is no longer in a complete feed.
func (d *document) vanishedEntity(id string) feed.Entity {
	m := fingerprint{deleted: true, document: d.updated, page: hashKey(d.url).pageNumber()}
	e := feed.Entity{ID: id, Op: feed.Delete, Page: d.url, Mark: m.String()}
	d.setModified(&e, time.Time{}, time.Time{})
	e.Header = entityHeader(e, "")
	return e
}

func entityHeader(e feed.Entity, contentType string) feed.Header {
	h := make(feed.Header, 0, 7)
	h = append(h, feed.Field{Name: message.ContentID, Value: e.ID})
	if contentType != "" {
		h = append(h, feed.Field{Name: message.ContentType, Value: contentType})
	}
	return append(h,
		feed.Field{Name: message.LastModified, Value: message.FormatDate(e.Modified)},
		feed.Field{Name: message.OperationType, Value: message.FormatOperation(e.Op)},
	)
}

// setModified sets the time at which an entry was changed: its own update time, else that of its
// document, else its date of publication, else the server's clock. The times of the document and of
// the server are made for the entry, and differ at the next reading.
func (d *document) setModified(e *feed.Entity, updated, published time.Time) {
	switch {
	case instantOf(updated) != 0:
		e.Modified = updated.UTC()
	case d.updated != 0:
		e.Modified, e.Made = time.Unix(0, int64(d.updated)).UTC(), message.LastModified
	case instantOf(published) != 0:
		e.Modified = published.UTC()
	default:
		e.Modified, e.Made = d.response.Date.UTC(), message.LastModified
	}
}

// feedFormat returns the format of an entry's body; "" for Atom 1.0.
func (d *document) feedFormat(it *item) string {
	switch {
	case d.meta.Format == feedxml.Atom && (it.Updated.From == "modified" || strings.Contains(startTag(it.Body), feedxml.Atom03Namespace)):
		return "atom03"
	case d.meta.Format == feedxml.RDF:
		return "rss1"
	case d.meta.Format == feedxml.RSS && strings.HasPrefix(d.meta.Version, "0.9"):
		return "rss09"
	case d.meta.Format == feedxml.RSS:
		return "rss2"
	case d.meta.Format == feedxml.JSON:
		return "jsonfeed"
	}
	return ""
}

// startTag returns the start tag of a body, or its first 1000 bytes.
func startTag(body []byte) string {
	tag, _, _ := strings.Cut(string(body[:min(len(body), 1000)]), ">")
	return tag
}

// longestFeedHeader is the maximum length of a header that describes the feed, in
// bytes.
const longestFeedHeader = 1 << 10

// originHeaders returns properties of the feed that an entry does not contain: the ID,
// title and authors of its feed, and the base of its relative references if that is not
// the URL of its document. They are not part of the body or of its hash, so that an
// entry does not change with its feed.
func (d *document) originHeaders(redact *safetext.Redactor) (h feed.Header) {
	add := func(name, value string) {
		value = message.SafeValue(strings.Join(strings.Fields(value), " "))
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
