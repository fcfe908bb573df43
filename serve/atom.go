package serve

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"maps"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/xmlcopy"
	"github.com/feedbridge/feedbridge/message"
)

// feedID is the same in all documents of a topic.
func feedID(c *Config, epoch string) string {
	sum := sha256.Sum256([]byte(c.Name + " " + epoch))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // a UUID of version 8 (RFC 9562)
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// atomHeadAndTail returns the bytes around the entries of a document of an archived feed (RFC
// 5005, section 4): every page that is full is an archive document, and the subscription document
// has the newer entries.
func atomHeadAndTail(c *Config, p *page) (head, tail []byte) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s<feed xmlns=%q>\n<id>%s</id>\n<title>%s</title>\n<updated>%s</updated>\n<author><name>feedbridge</name></author>\n",
		xml.Header, entry.AtomSpace, feedID(c, p.id.epoch), xmlcopy.Escape(c.Title), rfc3339(p.updated()))
	for _, l := range p.relations(c) {
		fmt.Fprintf(&b, "<link rel=\"%s\" href=\"%s\"/>\n", l[0], xmlcopy.Escape(l[1]))
	}
	if p.kind == closedPage {
		fmt.Fprintf(&b, "<fh:archive xmlns:fh=%q/>\n", historySpace)
	}
	return b.Bytes(), []byte("</feed>\n")
}

// appendAtomEntry appends an entity as an entry. An entry of Atom keeps all that it says, and gets the
// elements that make it complete; items of RSS and entries of Atom 0.3 are converted.
// A message of any other type becomes the content of an entry.
func appendAtomEntry(b []byte, e *entity) []byte {
	if e.op == "DELETE" {
		return tombstone(b, e, toIRI(e.entryID), e.entryID)
	}
	e.restoreXML()
	if out, ok := atomFromAtom(b, e); ok {
		return out
	}
	if a, ok := e.readEntry(); ok {
		return appendAtom(b, e, a)
	}
	b = atomEntry(b, e, e.entryID, rfc3339(e.updateTime()))
	return append(appendContent(b, e), "</entry>\n"...)
}

// appendContent appends the body of a message as the content of an entry.
func appendContent(b []byte, e *entity) []byte {
	media := e.mediaType()
	switch {
	case isXML(media):
		if el, _, ok := xmlcopy.Standalone(e.body); ok {
			return fmt.Appendf(b, `<content type="%s">%s</content>`, xmlcopy.Escape(media), el)
		}
	case media == "text/html" && xmlcopy.IsText(e.body):
		return fmt.Appendf(b, `<content type="html">%s</content>`, xmlcopy.Escape(string(e.body)))
	case isTextual(media) && xmlcopy.IsText(e.body):
		if media == "text/plain" || !strings.HasPrefix(media, "text/") {
			media = "text"
		}
		return fmt.Appendf(b, `<content type="%s">%s</content>`, xmlcopy.Escape(media), xmlcopy.Escape(string(e.body)))
	}
	// Content that is neither text nor XML is in base64 and has a summary
	// (RFC 4287, sections 4.1.2 and 4.1.3.3).
	if strings.HasPrefix(media, "text/") || isXML(media) || isTextual(media) {
		media = "application/octet-stream"
	}
	return fmt.Appendf(b, `<summary>%d bytes of %s</summary><content type="%s">%s</content>`, len(e.body), xmlcopy.Escape(media), xmlcopy.Escape(media), inBase64(e.body))
}

// atomEntry begins an entry that we make.
func atomEntry(b []byte, e *entity, title, updated string) []byte {
	b = appendID(append(b, "<entry>"...), "", e.entryID)
	b = fmt.Appendf(b, "<title>%s</title><updated>%s</updated>", xmlcopy.Escape(title), updated)
	if !e.published.IsZero() {
		b = fmt.Appendf(b, "<published>%s</published>", rfc3339(e.published))
	}
	return appendOperation(b, e, "")
}

// appendID appends the ID of an entry. prefix is that of Atom.
func appendID(b []byte, prefix, id string) []byte {
	iri := toIRI(id)
	b = xmlcopy.AppendName(append(b, '<'), prefix, "id")
	if iri != id {
		b = appendExtra(b, [2]string{"id", id})
	}
	return xmlcopy.AppendEnd(xmlcopy.AppendText(append(b, '>'), iri), prefix, "id")
}

// operationScheme is the scheme of the category that marks the entry of a PATCH.
const operationScheme = "https://github.com/feedbridge/feedbridge/operation"

// appendOperation marks the entry of a PATCH. prefix is that of Atom.
func appendOperation(b []byte, e *entity, prefix string) []byte {
	if e.op != feed.Patch {
		return b
	}
	return fmt.Appendf(xmlcopy.AppendName(append(b, '<'), prefix, "category"), ` scheme="%s" term="PATCH"/>`, operationScheme)
}

// atomFromAtom appends an entry of Atom as it is, and adds the elements that it lacks: an ID, a
// title and a time if it has none, the base of its references, and the feed that it
// is from with its authors. Elements that may occur once occur once. It reports
// false if the body is no such entry.
func atomFromAtom(b []byte, e *entity) (_ []byte, ok bool) {
	s, ok := xmlcopy.Open(e.body)
	if !ok || s.Tag.Local != "entry" || s.Tag.Space != entry.AtomSpace {
		return nil, false
	}
	root := s.Tag
	// A signed entry must not change (RFC 4287, section 5.1).
	signed := bytes.Contains(e.body, []byte("http://www.w3.org/2000/09/xmldsig#"))
	attrs := root.Attrs
	if !signed {
		attrs = withBase(root.Attrs, e.contentBase())
	}
	prefix := root.Prefix
	b = xmlcopy.AppendStart(b, &xmlcopy.Tag{Prefix: prefix, Local: "entry"}, root.Bindings, attrs)
	has := map[string]bool{}
	for {
		kind, err := s.NextToken()
		switch {
		case err != nil:
			return nil, false
		case kind == xmlcopy.EndToken:
			if !signed {
				b = appendMissing(b, e, prefix, has)
			}
			return append(xmlcopy.AppendEnd(b, prefix, "entry"), '\n'), true
		case kind == xmlcopy.TextToken:
			b = xmlcopy.AppendText(b, s.Text)
			continue
		}
		if signed {
			b, err = s.CopyChild(b)
		} else {
			b, err = copyAtomChild(b, s, has)
		}
		if err != nil {
			return nil, false
		}
	}
}

// copyAtomChild appends the child whose start tag was read last, unless it is one of
// Atom's that repeats, is not valid or has no content. has has the names of the children
// that were appended, and the relations of links.
func copyAtomChild(b []byte, s *xmlcopy.Scanner, has map[string]bool) (_ []byte, err error) {
	t, begin := s.Tag, len(b)
	if b, err = s.CopyChild(b); err != nil || t.Space != entry.AtomSpace {
		return b, err
	}
	drop := has[t.Local]
	switch t.Local {
	case "id":
		drop = drop || xmlcopy.CopiedText(b[begin:], &t) == ""
	case "updated", "published":
		value := xmlcopy.CopiedText(b[begin:], &t)
		at, known := entry.FormatTime(value)
		if drop = drop || !known; !drop && at != value {
			b = xmlcopy.AppendStart(b[:begin], &t, t.Bindings, t.Attrs)
			b = xmlcopy.AppendEnd(append(b, at...), t.Prefix, t.Local)
		}
	case "title", "summary", "content", "rights", "source":
	case "link":
		drop = t.Attr("href") == ""
	case "category":
		drop = t.Attr("term") == ""
	default:
		drop = false
	}
	if drop {
		return b[:begin], nil
	}
	has[t.Local] = true
	if t.Local == "link" {
		rel := strings.ToLower(t.Attr("rel"))
		has["link "+rel] = true
	}
	return b, nil
}

// withBase returns attributes with an absolute xml:base, if a base is known.
func withBase(attrs []xmlcopy.Attribute, base string) []xmlcopy.Attribute {
	if base == "" {
		return attrs
	}
	with := make([]xmlcopy.Attribute, 0, len(attrs)+1)
	found := false
	for _, a := range attrs {
		if a.Space == xmlcopy.XMLSpace && a.Local == "base" {
			a.Value, found = entry.ResolveURL(base, a.Value), true
		}
		with = append(with, a)
	}
	if !found {
		with = append(with, xmlcopy.Attribute{Prefix: "xml", Local: "base", Space: xmlcopy.XMLSpace, Value: base})
	}
	return with
}

// appendMissing appends the elements that an entry lacks and that it must have, or that
// make it complete outside its feed. prefix is that of Atom.
func appendMissing(b []byte, e *entity, prefix string, has map[string]bool) []byte {
	element := func(local, text string) []byte {
		b = append(xmlcopy.AppendName(append(b, '<'), prefix, local), '>')
		return xmlcopy.AppendEnd(xmlcopy.AppendText(b, text), prefix, local)
	}
	if !has["id"] {
		b = appendID(b, prefix, e.entryID)
	}
	if !has["title"] {
		b = element("title", e.entryID)
	}
	if !has["updated"] {
		b = element("updated", rfc3339(e.updateTime()))
	}
	if !has["content"] && !has["link "] && !has["link alternate"] {
		b = element("content", "") // an entry has one of the two (RFC 4287, section 4.1.2)
	}
	b = appendOperation(b, e, prefix)
	if has["source"] {
		return b
	}
	if !has["author"] {
		b = appendPersons(b, prefix, "author", feedAuthors(e))
	}
	return appendOrigin(b, e, prefix)
}

func appendPersons(b []byte, prefix, local string, persons []entry.Person) []byte {
	for _, p := range persons {
		b = append(xmlcopy.AppendName(append(b, '<'), prefix, local), '>')
		for _, part := range [][2]string{{"name", cmp.Or(p.Name, p.Email, p.URI)}, {"uri", p.URI}, {"email", p.Email}} {
			if part[1] != "" {
				b = append(xmlcopy.AppendName(append(b, '<'), prefix, part[0]), '>')
				b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, part[1]), prefix, part[0])
			}
		}
		b = xmlcopy.AppendEnd(p.Extensions.AppendXML(b), prefix, local)
	}
	return b
}

// appendOrigin appends the known metadata of the feed that an entry is from.
func appendOrigin(b []byte, e *entity, prefix string) []byte {
	if f := originFeed(e); f != nil {
		return appendSource(b, prefix, f)
	}
	return b
}

// originFeed returns the known properties of the feed of an entry; nil if there are none.
func originFeed(e *entity) *entry.Feed {
	f := &entry.Feed{ID: e.headerValue("Feed-Id"), Title: e.headerValue("Feed-Title"), Authors: feedAuthors(e), URL: e.page}
	if f.ID == "" && f.Title == "" && f.Authors == nil {
		return nil
	}
	return f
}

func appendSource(b []byte, prefix string, f *entry.Feed) []byte {
	b = append(xmlcopy.AppendName(append(b, '<'), prefix, "source"), '>')
	title := f.Title
	if f.TitleHTML != "" {
		title = ""
		b = append(xmlcopy.AppendName(append(b, '<'), prefix, "title"), ` type="html">`...)
		b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, f.TitleHTML), prefix, "title")
	}
	for _, part := range [][2]string{{"id", f.ID}, {"title", title}, {"updated", f.DateModified}} {
		if part[1] != "" {
			b = append(xmlcopy.AppendName(append(b, '<'), prefix, part[0]), '>')
			b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, part[1]), prefix, part[0])
		}
	}
	for _, part := range [][2]string{{"self", f.URL}, {"alternate", f.HomePageURL}} {
		if part[1] != "" {
			b = append(append(xmlcopy.AppendName(append(b, '<'), prefix, "link"), ` rel="`...), part[0]...)
			b = append(xmlcopy.AppendValue(append(b, `" href="`...), part[1]), `"/>`...)
		}
	}
	b = f.Extensions.AppendXML(appendPersons(b, prefix, "author", f.Authors))
	return xmlcopy.AppendEnd(b, prefix, "source")
}

// appendAtom appends an article as an entry.
func appendAtom(b []byte, e *entity, a *entry.Entry) []byte {
	isAtom := e.isJSONEntry() && e.headerValue("Feed-Format") == ""
	title, updated := e.entryID, rfc3339(e.updateTime())
	if at, ok := entry.FormatTime(a.Updated); ok {
		updated = at
	}
	b = xmlcopy.AppendStart(b, &xmlcopy.Tag{Local: "entry"}, nil, withLanguage(withBase(nil, a.Base), a.Language))
	b = appendID(b, "", cmp.Or(a.ID, e.entryID))
	if a.Title.IsBlank() {
		b = fmt.Appendf(b, "<title>%s</title>", xmlcopy.Escape(title))
	} else {
		b = appendAtomProse(b, a.Title, "title")
	}
	b = fmt.Appendf(b, "<updated>%s</updated>", updated)
	b = appendOperation(b, e, "")
	if at, ok := entry.FormatTime(a.Published); ok {
		b = fmt.Appendf(b, "<published>%s</published>", at)
	} else if !e.published.IsZero() {
		b = fmt.Appendf(b, "<published>%s</published>", rfc3339(e.published))
	}
	for _, l := range a.Links {
		b = appendAtomLink(b, l, "")
	}
	b = appendPersons(b, "", "author", authorsOf(e, a))
	b = appendPersons(b, "", "contributor", a.Contributors)
	for _, c := range a.Categories {
		b = append(b, `<category term="`...)
		b = append(xmlcopy.AppendValue(b, c.Term), '"')
		if c.Scheme != "" {
			b = append(xmlcopy.AppendValue(append(b, ` scheme="`...), c.Scheme), '"')
		}
		if c.Label != "" {
			b = append(xmlcopy.AppendValue(append(b, ` label="`...), c.Label), '"')
		}
		b = append(b, "/>"...)
	}
	summary, content := a.Summary, a.Content
	_, hasOther := a.Extensions[entry.AtomSpace]["content"]
	if _, linked := a.FindLink("alternate"); !linked && !hasOther && content.IsBlank() {
		// An entry has content or a link to it (RFC 4287, section 4.1.2).
		if content = (&entry.Prose{}); !isAtom && !summary.IsBlank() {
			summary, content = nil, summary
		}
	}
	if !summary.IsBlank() {
		b = appendAtomProse(b, summary, "summary")
	}
	if content != nil {
		b = appendAtomProse(b, content, "content")
	}
	if !a.Rights.IsBlank() {
		b = appendAtomProse(b, a.Rights, "rights")
	}
	b = a.Extensions.AppendXML(b)
	if a.Source != nil {
		b = appendSource(b, "", a.Source)
	} else {
		b = appendOrigin(b, e, "")
	}
	return append(b, "</entry>\n"...)
}

// withLanguage returns attributes with a language, if it is known.
func withLanguage(attrs []xmlcopy.Attribute, language string) []xmlcopy.Attribute {
	if language == "" {
		return attrs
	}
	return append(attrs, xmlcopy.Attribute{Prefix: "xml", Local: "lang", Space: xmlcopy.XMLSpace, Value: language})
}

func appendAtomProse(b []byte, p *entry.Prose, local string) []byte {
	kind := "text"
	if p.IsHTML {
		kind = "html"
	}
	b = fmt.Appendf(b, `<%s type="%s">`, local, kind)
	return xmlcopy.AppendEnd(xmlcopy.AppendText(b, p.Text), "", local)
}

// appendAtomLink appends a link, with a prefix for Atom.
func appendAtomLink(b []byte, l entry.Link, prefix string) []byte {
	attributes := [][2]string{{"rel", l.Rel}, {"href", l.Href}, {"type", l.Type}, {"length", l.Length}, {"title", l.Title}, {"hreflang", l.HrefLang}}
	if l.Attributes != nil {
		el := entry.Element{Prefix: prefix, Attributes: maps.Clone(l.Attributes)}
		for _, a := range attributes {
			if a[1] != "" {
				el.Attributes[a[0]] = a[1]
			}
		}
		if all := (entry.Extensions{entry.AtomSpace: {"link": {el}}}).AppendXML(b); len(all) > len(b) {
			return all
		}
	}
	b = xmlcopy.AppendName(append(b, '<'), prefix, "link")
	if prefix != "" {
		b = fmt.Appendf(b, ` xmlns:%s="%s"`, prefix, entry.AtomSpace)
	}
	for _, a := range attributes {
		if a[1] != "" {
			b = append(append(append(b, ' '), a[0]...), `="`...)
			b = append(xmlcopy.AppendValue(b, a[1]), '"')
		}
	}
	return append(b, "/>"...)
}

// tombstone appends a deleted-entry element (RFC 6721) for the entry that the feed has under ref.
func tombstone(b []byte, e *entity, ref, id string) []byte {
	if el, root, ok := xmlcopy.Standalone(e.body); ok && root == (xml.Name{Space: entry.TombstoneSpace, Local: "deleted-entry"}) {
		return append(append(b, el...), '\n')
	}
	when, a := rfc3339(e.updateTime()), &entry.Entry{}
	if e.isJSONEntry() {
		if deleted, ok := entry.Decode(e.body, ""); ok {
			a = deleted
			if at, ok := entry.FormatTime(a.Updated); ok && !e.timeMade {
				when = at
			}
		}
	}
	b = fmt.Appendf(b, `<at:deleted-entry xmlns:at="%s" ref="%s" when="%s"`, entry.TombstoneSpace, xmlcopy.Escape(ref), xmlcopy.Escape(when))
	if ref != id {
		b = appendExtra(b, [2]string{"id", id})
	}
	return append(a.Extensions.AppendXML(append(b, '>')), "</at:deleted-entry>\n"...)
}

// feedAuthors returns the authors of the feed that the entity is from.
func feedAuthors(e *entity) (authors []entry.Person) {
	for _, f := range e.header {
		if message.IsNamed(f.Name, "Feed-Author") {
			authors = append(authors, entry.ReadPerson(f.Value))
		}
	}
	return authors
}

// authorsOf returns the authors of an entry, or else of its source, or else of the feed that the
// entity is from.
func authorsOf(e *entity, a *entry.Entry) []entry.Person {
	switch {
	case a.Authors != nil:
		return a.Authors
	case a.Source != nil && a.Source.Authors != nil:
		return a.Source.Authors
	}
	return feedAuthors(e)
}
