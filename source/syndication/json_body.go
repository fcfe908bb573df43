package syndication

import (
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// encodeBody replaces the body of an entity by JSON, if the configuration has no other. The mark and the ID stay
// as they are.
func (s *decider) encodeBody(d *document, e *feed.Entity) {
	if s.cfg.Body.isOwn() || e.Length > 0 {
		return // a dead letter has the beginning of the entry
	}
	if d.meta.Format == feedxml.JSON {
		s.encodeItem(d, e)
		return
	}
	a, ok := &entry.Entry{ID: e.ID}, true
	if len(e.Body) > 0 {
		a, ok = entry.Read(e.Body, s.cfg.Redact.URL(d.meta.URL))
	}
	if !ok {
		a = &entry.Entry{ID: e.ID, XML: string(e.Body)}
	}
	if a.ID == "" {
		a.ID = e.ID
	}
	if e.Op == feed.Delete && a.Updated == "" {
		a.Updated = e.Modified.Format(time.RFC3339Nano)
	}
	if e.Op == feed.Put {
		a.Feed = s.feedOf(d)
	}
	if e.Op == feed.Put && ok && a.Authors == nil {
		if a.Source != nil {
			a.Authors = a.Source.Authors
		}
		if a.Authors == nil {
			a.Authors = authorsOf(d)
		}
	}
	e.Body = a.Encode(e.ID)
	if i := slices.IndexFunc(e.Header, func(f feed.Field) bool { return f.Name == message.ContentType }); i >= 0 {
		e.Header[i].Value = entry.ContentType
	} else {
		e.Header = append(e.Header, feed.Field{Name: message.ContentType, Value: entry.ContentType})
	}
}

// encodeItem is encodeBody for an item of a JSON Feed.
func (s *decider) encodeItem(d *document, e *feed.Entity) {
	a := entry.ReadItem(e.Body, s.cfg.Redact.URL(d.meta.URL))
	if a.ID != e.ID && a.ID != "" {
		a.OriginalID = a.ID
	}
	a.ID = e.ID
	a.Feed = s.feedOf(d)
	if a.Authors == nil {
		a.Authors = authorsOf(d)
	}
	e.Body = a.Marshal()
}

// recordBody records the format of the bodies of messages. It reports whether an earlier one differs.
func (s *Source) recordBody(cur *cursor) (changed bool) {
	now := s.cfg.Body
	if now.isOwn() {
		now = "" // xml and source are the same
	}
	changed = cur.MessageBody != now && cur.Dialect != ""
	cur.MessageBody = now
	return changed
}

// reportBody logs a change of the body once. A feed that cannot be read has no new cursor, so each start would log it.
func (s *Source) reportBody() {
	if !s.bodyReported {
		s.bodyReported = true
		s.log.Info("messages have another body from now on; those in the topic stay as they are, and nothing is published again", "body", string(s.cfg.Body))
	}
}

// authorsOf returns the authors of the feed, which entries without authors inherit.
func authorsOf(d *document) (authors []entry.Person) {
	for _, author := range d.meta.Authors {
		authors = append(authors, entry.ReadPerson(author))
	}
	return authors
}

// feedOf returns the properties of the feed that are in the body of each entry.
func (s *decider) feedOf(d *document) *entry.Feed {
	short := func(text string) string {
		if text = strings.Join(strings.Fields(text), " "); len(text) > longestFeedHeader {
			return ""
		}
		return text
	}
	f := &entry.Feed{ID: short(d.meta.ID), Title: short(d.meta.Title), URL: short(s.cfg.Redact.URL(d.meta.URL))}
	for _, l := range d.meta.Links {
		if l.Rel == "alternate" && f.HomePageURL == "" {
			f.HomePageURL = short(s.cfg.Redact.URL(l.Href))
		}
	}
	return f
}
