package serve

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// rssHeadAndTail returns the bytes around the items of a document of RSS 2.0, which is archived as
// the appendix of RFC 5005 has it.
func rssHeadAndTail(c *Config, p *page) (head, tail []byte) {
	home := feedID(c, p.id.epoch) // a link of RSS cannot be relative
	if c.PublicURL != "" {
		home = c.entryURL()
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s<rss version=\"2.0\"><channel>\n<title>%s</title>\n<link>%s</link>\n<description>%s</description>\n<lastBuildDate>%s</lastBuildDate>\n<generator>feedbridge</generator>\n",
		xml.Header, escaped(c.Title), escaped(home), escaped(c.Title), p.updated().Format(http.TimeFormat))
	for _, l := range p.relations(c) {
		fmt.Fprintf(&b, "<atom:link xmlns:atom=%q rel=\"%s\" href=\"%s\"/>\n", atomSpace, l[0], escaped(l[1]))
	}
	if p.kind == closedPage {
		fmt.Fprintf(&b, "<fh:archive xmlns:fh=%q/>\n", historySpace)
	}
	return b.Bytes(), []byte("</channel></rss>\n")
}

// appendRSSItem appends an entity as an item. An item of RSS 2.0 keeps all that it says, and gets the
// elements that make it complete; entries of Atom and items of RSS 1.0 are converted. A
// message of any other type becomes the description of an item.
func appendRSSItem(b []byte, e *entity) []byte {
	if e.op == "DELETE" {
		return tombstone(b, e, e.entryID, e.entryID)
	}
	if out, ok := rssFromRSS(b, e); ok {
		return out
	}
	if a, ok := readArticle(e.body, e.contentBase()); ok {
		return a.appendRSS(b, e)
	}
	a := article{}
	switch media := e.mediaType(); {
	case media == "text/html" && isText(e.body):
		a.summary = &prose{string(e.body), true}
	case isText(e.body) && (isTextual(media) || isXML(media)):
		a.summary = &prose{text: string(e.body)}
	default:
		a.summary = &prose{text: fmt.Sprintf("%d bytes of %s in base64: %s", len(e.body), media, inBase64(e.body))}
	}
	return a.appendRSS(b, e)
}

// rssFromRSS appends an item of RSS 2.0 or 0.9x as it is, and adds the
// missing elements: a guid if it has none, and the base of its references. It reports false if the body
// is no such item.
func rssFromRSS(b []byte, e *entity) (_ []byte, ok bool) {
	s, ok := openDocument(e.body)
	if !ok || s.tag.local != "item" || s.tag.space != "" {
		return nil, false
	}
	root, base := s.tag, resolveURL(e.contentBase(), s.tag.attrIn(xmlSpace, "base"))
	b = appendStart(b, &tag{local: "item"}, root.bindings, withBase(root.attrs, e.contentBase()))
	has := map[string]bool{}
	for {
		kind, err := s.nextToken()
		switch {
		case err != nil:
			return nil, false
		case kind == endToken:
			if !has["guid"] {
				b = appendGUID(b, e.entryID)
			}
			if !has["title"] && !has["description"] {
				b = appendElement(b, "title", e.entryID)
			}
			return append(e.appendItemOperation(b), "</item>\n"...), true
		case kind == textToken:
			b = appendText(b, s.text)
			continue
		}
		if b, err = copyRSSChild(b, s, base, has); err != nil {
			return nil, false
		}
	}
}

// copyRSSChild appends the child whose start tag was read last with absolute URLs, unless
// it is one of RSS that repeats or has no content. has has the names of the children that
// were appended.
func copyRSSChild(b []byte, s *scanner, base string, has map[string]bool) (_ []byte, err error) {
	t, begin := s.tag, len(b)
	if t.space != "" {
		return s.copyChild(b)
	}
	for i, a := range t.attrs {
		if a.local == "url" && a.space == "" {
			t.attrs[i].value = resolveURL(base, a.value)
		}
	}
	if b, err = s.copyChild(b); err != nil {
		return b, err
	}
	drop := false
	switch t.local {
	case "guid":
		drop = has["guid"] || copiedText(b[begin:], &t) == ""
	case "link":
		drop = has["link"]
		if href := html.UnescapeString(copiedText(b[begin:], &t)); !drop && href != "" && resolveURL(base, href) != href {
			b = appendStart(b[:begin], &t, t.bindings, t.attrs)
			b = appendEnd(appendText(b, resolveURL(base, href)), t.prefix, t.local)
		}
	case "title", "description", "pubDate", "author", "comments", "source":
		drop = has[t.local]
	}
	if drop {
		return b[:begin], nil
	}
	has[t.local] = true
	return b, nil
}

// appendItemOperation marks the item of a PATCH.
func (e *entity) appendItemOperation(b []byte) []byte {
	if e.op != feed.Patch {
		return b
	}
	return fmt.Appendf(b, `<category domain="%s">PATCH</category>`, operationScheme)
}

// appendElement appends an element with a text.
func appendElement(b []byte, local, text string) []byte {
	b = append(append(append(b, '<'), local...), '>')
	return appendEnd(appendText(b, text), "", local)
}

func appendGUID(b []byte, id string) []byte {
	return appendEnd(appendText(append(b, `<guid isPermaLink="false">`...), id), "", "guid")
}

// appendRSS appends an article as an item.
func (a *article) appendRSS(b []byte, e *entity) []byte {
	title := e.entryID
	if !a.title.hasNoText() {
		title = strings.TrimSpace(a.title.text)
		if !a.title.isHTML && looksLikeHTML(title) {
			title = html.EscapeString(title) // readers would take it for HTML
		}
	}
	b = appendStart(b, &tag{local: "item"}, nil, withBase(nil, a.base))
	b = appendElement(b, "title", title)
	b = appendGUID(b, firstOf(a.id, e.entryID))
	published, updated := e.taken, e.updateTime()
	if !e.published.IsZero() {
		published = e.published
	}
	at, _, known := message.ParseDate(a.updated)
	if known && inRange(at) {
		published, updated = at, at
	}
	if at, _, known := message.ParseDate(a.published); known && inRange(at) {
		published = at
	}
	b = appendElement(b, "pubDate", message.FormatDate(published))
	b = fmt.Appendf(b, `<atom:updated xmlns:atom="%s">%s</atom:updated>`, atomSpace, rfc3339(updated))
	b = a.appendRSSLinks(b)
	b = a.appendRSSAuthors(b, e)
	for _, p := range a.contributors {
		b = p.appendDC(b, "contributor")
	}
	for _, c := range a.categories {
		b = append(b, "<category"...)
		if c.scheme != "" {
			b = append(appendValue(append(b, ` domain="`...), c.scheme), '"')
		}
		b = appendExtra(b, [2]string{"label", c.label})
		b = appendEnd(appendText(append(b, '>'), c.term), "", "category")
	}
	b = e.appendItemOperation(b)
	// Readers take a description for HTML.
	if !a.summary.hasNoText() {
		b = appendElement(b, "description", a.summary.asHTML())
	}
	if !a.content.hasNoText() {
		b = fmt.Appendf(b, `<content:encoded xmlns:content="%s">`, contentSpace)
		b = appendEnd(appendText(b, a.content.asHTML()), "content", "encoded")
	}
	if !a.rights.hasNoText() {
		b = fmt.Appendf(b, `<dc:rights xmlns:dc="%s">`, dcSpace)
		b = appendEnd(appendText(b, a.rights.text), "dc", "rights")
	}
	b = append(b, a.others...)
	return append(b, "</item>\n"...)
}

// appendRSSLinks appends the links of an article: the first alternate as link, enclosures
// and comments as RSS has them, and the others as links of Atom.
func (a *article) appendRSSLinks(b []byte) []byte {
	alternate := false
	for _, l := range a.links {
		switch {
		case l.rel == "alternate" && !alternate:
			alternate = true
			b = appendElement(b, "link", l.href)
		case l.rel == "enclosure":
			b = append(appendValue(append(b, `<enclosure url="`...), l.href), '"')
			b = append(appendValue(append(b, ` length="`...), firstOf(l.length, "0")), '"')
			b = append(appendValue(append(b, ` type="`...), firstOf(l.kind, "application/octet-stream")), `"/>`...)
		case l.rel == "replies" && l.kind == "":
			b = appendElement(b, "comments", l.href)
		default:
			b = l.appendAtom(b, "atom")
		}
	}
	return b
}

// appendRSSAuthors appends the first author with a mail address as the author, of which
// an item has one, and the others as creators of Dublin Core.
func (a *article) appendRSSAuthors(b []byte, e *entity) []byte {
	written := false
	for _, p := range a.effectiveAuthors(e) {
		if p.email == "" || written {
			b = p.appendDC(b, "creator")
			continue
		}
		written = true
		text := p.email
		if p.name != "" && p.name != p.email {
			text += " (" + p.name + ")"
		}
		b = append(appendExtra(append(b, "<author"...), [2]string{"uri", p.uri}), '>')
		b = appendEnd(appendText(b, text), "", "author")
	}
	return b
}

// appendExtra appends attributes in [extraSpace], unless they are empty.
func appendExtra(b []byte, attributes ...[2]string) []byte {
	declared := false
	for _, a := range attributes {
		if a[1] == "" {
			continue
		}
		if !declared {
			declared = true
			b = fmt.Appendf(b, ` xmlns:extra="%s"`, extraSpace)
		}
		b = append(append(append(b, " extra:"...), a[0]...), `="`...)
		b = append(appendValue(b, a[1]), '"')
	}
	return b
}

// appendDC appends a person as an element of Dublin Core.
func (p person) appendDC(b []byte, local string) []byte {
	b = fmt.Appendf(b, `<dc:%s xmlns:dc="%s"`, local, dcSpace)
	name := firstOf(p.name, p.email, p.uri)
	email, uri := p.email, p.uri
	if email == name {
		email = ""
	}
	if uri == name {
		uri = ""
	}
	b = append(appendExtra(b, [2]string{"email", email}, [2]string{"uri", uri}), '>')
	return appendEnd(appendText(b, name), "dc", local)
}

func inRange(at time.Time) bool { return at.Year() >= 1 && at.Year() <= 9999 }
