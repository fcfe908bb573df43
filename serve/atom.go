package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
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
		xml.Header, atomSpace, feedID(c, p.id.epoch), escaped(c.Title), rfc3339(p.updated()))
	for _, l := range p.relations(c) {
		fmt.Fprintf(&b, "<link rel=\"%s\" href=\"%s\"/>\n", l[0], escaped(l[1]))
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
	if out, ok := atomFromAtom(b, e); ok {
		return out
	}
	if a, ok := readArticle(e.body, e.contentBase()); ok {
		return a.appendAtom(b, e)
	}
	b = atomEntry(b, e, e.entryID, rfc3339(e.updateTime()))
	return append(appendContent(b, e), "</entry>\n"...)
}

// appendContent appends the body of a message as the content of an entry.
func appendContent(b []byte, e *entity) []byte {
	media := e.mediaType()
	switch {
	case isXML(media):
		if el, _, ok := standaloneXML(e.body); ok {
			return fmt.Appendf(b, `<content type="%s">%s</content>`, escaped(media), el)
		}
	case media == "text/html" && isText(e.body):
		return fmt.Appendf(b, `<content type="html">%s</content>`, escaped(string(e.body)))
	case isTextual(media) && isText(e.body):
		if media == "text/plain" || !strings.HasPrefix(media, "text/") {
			media = "text"
		}
		return fmt.Appendf(b, `<content type="%s">%s</content>`, escaped(media), escaped(string(e.body)))
	}
	// Content that is neither text nor XML is in base64 and has a summary
	// (RFC 4287, sections 4.1.2 and 4.1.3.3).
	if strings.HasPrefix(media, "text/") || isXML(media) || isTextual(media) {
		media = "application/octet-stream"
	}
	return fmt.Appendf(b, `<summary>%d bytes of %s</summary><content type="%s">%s</content>`, len(e.body), escaped(media), escaped(media), inBase64(e.body))
}

// atomEntry begins an entry that we make.
func atomEntry(b []byte, e *entity, title, updated string) []byte {
	b = appendID(append(b, "<entry>"...), "", e.entryID)
	b = fmt.Appendf(b, "<title>%s</title><updated>%s</updated>", escaped(title), updated)
	if !e.published.IsZero() {
		b = fmt.Appendf(b, "<published>%s</published>", rfc3339(e.published))
	}
	return e.appendOperation(b, "")
}

// appendID appends the ID of an entry. prefix is that of Atom.
func appendID(b []byte, prefix, id string) []byte {
	iri := toIRI(id)
	b = appendName(append(b, '<'), prefix, "id")
	if iri != id {
		b = appendExtra(b, [2]string{"id", id})
	}
	return appendEnd(appendText(append(b, '>'), iri), prefix, "id")
}

// operationScheme is the scheme of the category that marks the entry of a PATCH.
const operationScheme = "https://github.com/feedbridge/feedbridge/operation"

// appendOperation marks the entry of a PATCH. prefix is that of Atom.
func (e *entity) appendOperation(b []byte, prefix string) []byte {
	if e.op != feed.Patch {
		return b
	}
	return fmt.Appendf(appendName(append(b, '<'), prefix, "category"), ` scheme="%s" term="PATCH"/>`, operationScheme)
}

// atomFromAtom appends an entry of Atom as it is, and adds the elements that it lacks: an ID, a
// title and a time if it has none, the base of its references, and the feed that it
// is from with its authors. Elements that may occur once occur once. It reports
// false if the body is no such entry.
func atomFromAtom(b []byte, e *entity) (_ []byte, ok bool) {
	s, ok := openDocument(e.body)
	if !ok || s.tag.local != "entry" || s.tag.space != atomSpace {
		return nil, false
	}
	root := s.tag
	// A signed entry must not change (RFC 4287, section 5.1).
	signed := bytes.Contains(e.body, []byte("http://www.w3.org/2000/09/xmldsig#"))
	attrs := root.attrs
	if !signed {
		attrs = withBase(root.attrs, e.contentBase())
	}
	prefix := root.prefix
	b = appendStart(b, &tag{prefix: prefix, local: "entry"}, root.bindings, attrs)
	has := map[string]bool{}
	for {
		kind, err := s.nextToken()
		switch {
		case err != nil:
			return nil, false
		case kind == endToken:
			if !signed {
				b = e.appendMissing(b, prefix, has)
			}
			return append(appendEnd(b, prefix, "entry"), '\n'), true
		case kind == textToken:
			b = appendText(b, s.text)
			continue
		}
		if signed {
			b, err = s.copyChild(b)
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
func copyAtomChild(b []byte, s *scanner, has map[string]bool) (_ []byte, err error) {
	t, begin := s.tag, len(b)
	if b, err = s.copyChild(b); err != nil || t.space != atomSpace {
		return b, err
	}
	drop := has[t.local]
	switch t.local {
	case "id":
		drop = drop || copiedText(b[begin:], &t) == ""
	case "updated", "published":
		value := copiedText(b[begin:], &t)
		at, known := parseTime(value)
		if drop = drop || !known; !drop && at != value {
			b = appendStart(b[:begin], &t, t.bindings, t.attrs)
			b = appendEnd(append(b, at...), t.prefix, t.local)
		}
	case "title", "summary", "content", "rights", "source":
	case "link":
		drop = t.attrValue("href") == ""
	case "category":
		drop = t.attrValue("term") == ""
	default:
		drop = false
	}
	if drop {
		return b[:begin], nil
	}
	has[t.local] = true
	if t.local == "link" {
		rel := strings.ToLower(t.attrValue("rel"))
		has["link "+rel] = true
	}
	return b, nil
}

// parseTime returns a date as RFC 3339 has it; as it is if it is such a date.
func parseTime(text string) (string, bool) {
	if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return text, true
	}
	at, _, ok := message.ParseDate(text)
	if !ok || at.Year() < 1 || at.Year() > 9999 {
		return "", false
	}
	return rfc3339(at), true
}

// withBase returns attributes with an absolute xml:base, if a base is known.
func withBase(attrs []attribute, base string) []attribute {
	if base == "" {
		return attrs
	}
	with := make([]attribute, 0, len(attrs)+1)
	found := false
	for _, a := range attrs {
		if a.space == xmlSpace && a.local == "base" {
			a.value, found = resolveURL(base, a.value), true
		}
		with = append(with, a)
	}
	if !found {
		with = append(with, attribute{prefix: "xml", local: "base", space: xmlSpace, value: base})
	}
	return with
}

// appendMissing appends the elements that an entry lacks and that it must have, or that
// make it complete outside its feed. prefix is that of Atom.
func (e *entity) appendMissing(b []byte, prefix string, has map[string]bool) []byte {
	element := func(local, text string) []byte {
		b = append(appendName(append(b, '<'), prefix, local), '>')
		return appendEnd(appendText(b, text), prefix, local)
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
	b = e.appendOperation(b, prefix)
	if has["source"] {
		return b
	}
	if !has["author"] {
		b = appendPersons(b, prefix, "author", feedAuthors(e))
	}
	return e.appendSource(b, prefix)
}

func appendPersons(b []byte, prefix, local string, persons []person) []byte {
	for _, p := range persons {
		b = append(appendName(append(b, '<'), prefix, local), '>')
		for _, part := range [][2]string{{"name", firstOf(p.name, p.email, p.uri)}, {"uri", p.uri}, {"email", p.email}} {
			if part[1] != "" {
				b = append(appendName(append(b, '<'), prefix, part[0]), '>')
				b = appendEnd(appendText(b, part[1]), prefix, part[0])
			}
		}
		b = appendEnd(b, prefix, local)
	}
	return b
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// appendSource appends the known metadata of the feed that an entry is from.
func (e *entity) appendSource(b []byte, prefix string) []byte {
	id, title, authors := e.headerValue("Feed-Id"), e.headerValue("Feed-Title"), feedAuthors(e)
	if id == "" && title == "" && authors == nil {
		return b
	}
	b = append(appendName(append(b, '<'), prefix, "source"), '>')
	for _, part := range [][2]string{{"id", id}, {"title", title}} {
		if part[1] != "" {
			b = append(appendName(append(b, '<'), prefix, part[0]), '>')
			b = appendEnd(appendText(b, part[1]), prefix, part[0])
		}
	}
	if e.page != "" {
		b = appendName(append(b, '<'), prefix, "link")
		b = append(appendValue(append(b, ` rel="self" href="`...), e.page), `"/>`...)
	}
	b = appendPersons(b, prefix, "author", authors)
	return appendEnd(b, prefix, "source")
}

// appendAtom appends an article as an entry.
func (a *article) appendAtom(b []byte, e *entity) []byte {
	title, updated := e.entryID, rfc3339(e.updateTime())
	if at, ok := parseTime(a.updated); ok {
		updated = at
	}
	b = appendStart(b, &tag{local: "entry"}, nil, withBase(nil, a.base))
	b = appendID(b, "", firstOf(a.id, e.entryID))
	if a.title.hasNoText() {
		b = fmt.Appendf(b, "<title>%s</title>", escaped(title))
	} else {
		b = a.title.appendAtom(b, "title")
	}
	b = fmt.Appendf(b, "<updated>%s</updated>", updated)
	b = e.appendOperation(b, "")
	if at, ok := parseTime(a.published); ok {
		b = fmt.Appendf(b, "<published>%s</published>", at)
	} else if !e.published.IsZero() {
		b = fmt.Appendf(b, "<published>%s</published>", rfc3339(e.published))
	}
	for _, l := range a.links {
		b = l.appendAtom(b, "")
	}
	b = appendPersons(b, "", "author", a.effectiveAuthors(e))
	b = appendPersons(b, "", "contributor", a.contributors)
	for _, c := range a.categories {
		b = append(b, `<category term="`...)
		b = append(appendValue(b, c.term), '"')
		if c.scheme != "" {
			b = append(appendValue(append(b, ` scheme="`...), c.scheme), '"')
		}
		if c.label != "" {
			b = append(appendValue(append(b, ` label="`...), c.label), '"')
		}
		b = append(b, "/>"...)
	}
	summary, content := a.summary, a.content
	if _, linked := a.findLink("alternate"); !linked && content.hasNoText() {
		// An entry has content or a link to it (RFC 4287, section 4.1.2).
		if summary, content = nil, a.summary; content.hasNoText() {
			content = &prose{}
		}
	}
	if !summary.hasNoText() {
		b = summary.appendAtom(b, "summary")
	}
	if content != nil {
		b = content.appendAtom(b, "content")
	}
	if !a.rights.hasNoText() {
		b = a.rights.appendAtom(b, "rights")
	}
	b = append(b, a.others...)
	return append(e.appendSource(b, ""), "</entry>\n"...)
}

func (p *prose) appendAtom(b []byte, local string) []byte {
	kind := "text"
	if p.isHTML {
		kind = "html"
	}
	b = fmt.Appendf(b, `<%s type="%s">`, local, kind)
	return appendEnd(appendText(b, p.text), "", local)
}

// appendAtom appends a link, with a prefix for Atom.
func (l link) appendAtom(b []byte, prefix string) []byte {
	b = appendName(append(b, '<'), prefix, "link")
	if prefix != "" {
		b = fmt.Appendf(b, ` xmlns:%s="%s"`, prefix, atomSpace)
	}
	for _, a := range [][2]string{{"rel", l.rel}, {"href", l.href}, {"type", l.kind}, {"length", l.length}, {"title", l.title}} {
		if a[1] != "" {
			b = append(append(append(b, ' '), a[0]...), `="`...)
			b = append(appendValue(b, a[1]), '"')
		}
	}
	return append(b, "/>"...)
}

// tombstone appends a deleted-entry element (RFC 6721) for the entry that the feed has under ref.
func tombstone(b []byte, e *entity, ref, id string) []byte {
	if el, root, ok := standaloneXML(e.body); ok && root == (xml.Name{Space: tombstoneSpace, Local: "deleted-entry"}) {
		return append(append(b, el...), '\n')
	}
	b = fmt.Appendf(b, `<at:deleted-entry xmlns:at="%s" ref="%s" when="%s"`, tombstoneSpace, escaped(ref), rfc3339(e.updateTime()))
	if ref != id {
		b = appendExtra(b, [2]string{"id", id})
	}
	return append(b, "/>\n"...)
}
