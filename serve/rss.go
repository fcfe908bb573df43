package serve

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/message"
)

// rssFormat is RSS 2.0, archived as the appendix of RFC 5005 has it.
type rssFormat struct{}

func (rssFormat) linked() bool             { return true }
func (rssFormat) contentType(*page) string { return "application/rss+xml; charset=utf-8" }

func (rssFormat) frame(f *Feed, p *page) (head, tail []byte) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s<rss version=\"2.0\"><channel>\n<title>%s</title>\n<link>%s</link>\n<description>%s</description>\n<lastBuildDate>%s</lastBuildDate>\n<generator>feedbridge</generator>\n",
		xml.Header, escaped(f.cfg.Title), escaped(p.base+"/latest"), escaped(f.cfg.Title), p.updated().Format(http.TimeFormat))
	for _, l := range p.relations() {
		fmt.Fprintf(&b, "<atom:link xmlns:atom=%q rel=\"%s\" href=\"%s\"/>\n", atomSpace, l[0], escaped(l[1]))
	}
	if p.kind == closedPage {
		fmt.Fprintf(&b, "<fh:archive xmlns:fh=%q/>\n", historySpace)
	}
	return b.Bytes(), []byte("</channel></rss>\n")
}

// entity appends an item. An item of RSS 2.0 keeps all that it says, and gets what it
// needs to stand alone; entries of Atom and items of RSS 1.0 are converted. Whatever
// else the message is becomes the description of an item.
func (rssFormat) entity(b []byte, _ *page, e *entity) []byte {
	if e.op == "DELETE" {
		return tombstone(b, e, e.id)
	}
	if out, ok := rssFromRSS(b, e); ok {
		return out
	}
	if a, ok := readArticle(e.body, e.base()); ok {
		return a.appendRSS(b, e)
	}
	a := article{}
	switch media := e.media(); {
	case media == "text/html" && isText(e.body):
		a.summary = &prose{string(e.body), true}
	case isText(e.body) && (isTextual(media) || isXML(media)):
		a.summary = &prose{text: string(e.body)}
	default:
		a.summary = &prose{text: fmt.Sprintf("%d bytes of %s in base64: %s", len(e.body), media, inBase64(e.body))}
	}
	return a.appendRSS(b, e)
}

// rssFromRSS appends an item of RSS 2.0 or 0.9x as it is, with what it needs beside:
// a guid if it has none, and the base of its references. It reports false if the body
// is no such item.
func rssFromRSS(b []byte, e *entity) (_ []byte, ok bool) {
	s := newScanner(e.body)
	if kind, err := s.next(); err != nil || kind != startToken || s.tag.local != "item" || s.tag.space != "" {
		return nil, false
	}
	root, base := s.tag, resolveURL(e.base(), s.tag.attrIn(xmlSpace, "base"))
	b = appendStart(b, &tag{local: "item"}, root.bindings, withBase(root.attrs, e.base()))
	has := map[string]bool{}
	for {
		kind, err := s.next()
		switch {
		case err != nil:
			return nil, false
		case kind == endToken:
			if _, err := s.next(); err == nil {
				return nil, false
			}
			if !has["guid"] {
				b = appendGUID(b, e.id)
			}
			if !has["title"] && !has["description"] {
				b = appendElement(b, "title", e.id)
			}
			return append(b, "</item>\n"...), true
		case kind == textToken:
			b = appendText(b, s.text)
			continue
		}
		t, begin := s.tag, len(b)
		if t.space != "" {
			b = appendStart(b, &t, t.bindings, t.attrs)
			if b, err = s.content(b, false); err != nil {
				return nil, false
			}
			continue
		}
		for i, a := range t.attrs {
			if a.local == "url" && a.space == "" {
				t.attrs[i].value = resolveURL(base, a.value)
			}
		}
		b = appendStart(b, &t, t.bindings, t.attrs)
		inside := len(b)
		if b, err = s.content(b, false); err != nil {
			return nil, false
		}
		value := ""
		if end := bytes.LastIndex(b[inside:], []byte("</")); end >= 0 && !t.empty {
			value = strings.TrimSpace(string(b[inside : inside+end]))
		}
		drop := false
		switch t.local {
		case "guid":
			drop = has["guid"] || value == ""
		case "link":
			drop = has["link"]
			if href := html.UnescapeString(value); !drop && href != "" && resolveURL(base, href) != href {
				b = appendEnd(appendText(b[:inside], resolveURL(base, href)), t.prefix, t.local)
			}
		case "title", "description", "pubDate", "author", "comments", "source":
			drop = has[t.local]
		}
		if drop {
			b = b[:begin]
		} else {
			has[t.local] = true
		}
	}
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
	title := e.id
	if !a.title.isBlank() {
		title = strings.TrimSpace(a.title.text)
		if !a.title.isHTML && looksLikeHTML(title) {
			title = html.EscapeString(title) // readers would take it for HTML
		}
	}
	b = appendStart(b, &tag{local: "item"}, nil, withBase(nil, a.base))
	b = appendElement(b, "title", title)
	b = appendGUID(b, firstOf(a.id, e.id))
	published, updated := e.taken, e.stamp()
	at, _, known := message.ParseDate(a.updated)
	if known && inRange(at) {
		published, updated = at, at
	}
	if at, _, known := message.ParseDate(a.published); known && inRange(at) {
		published = at
	}
	b = appendElement(b, "pubDate", message.FormatDate(published))
	b = fmt.Appendf(b, `<atom:updated xmlns:atom="%s">%s</atom:updated>`, atomSpace, rfc3339(updated))
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
	authors := a.authors
	if authors == nil {
		authors = a.inherited
	}
	if authors == nil {
		authors = e.feedAuthors()
	}
	written := false // of author there is one
	for _, p := range authors {
		switch {
		case p.email != "" && !written && p.name != "" && p.name != p.email:
			written = true
			b = appendElement(b, "author", p.email+" ("+p.name+")")
		case p.email != "" && !written:
			written = true
			b = appendElement(b, "author", p.email)
		default:
			b = fmt.Appendf(b, `<dc:creator xmlns:dc="%s">`, dcSpace)
			b = appendEnd(appendText(b, firstOf(p.name, p.email, p.uri)), "dc", "creator")
		}
	}
	for _, p := range a.contributors {
		b = fmt.Appendf(b, `<dc:contributor xmlns:dc="%s">`, dcSpace)
		b = appendEnd(appendText(b, firstOf(p.name, p.email, p.uri)), "dc", "contributor")
	}
	for _, c := range a.categories {
		b = append(b, "<category"...)
		if c.scheme != "" {
			b = append(appendValue(append(b, ` domain="`...), c.scheme), '"')
		}
		b = appendEnd(appendText(append(b, '>'), c.term), "", "category")
	}
	// Readers take a description for HTML.
	if !a.summary.isBlank() {
		b = appendElement(b, "description", a.summary.asHTML())
	}
	if !a.content.isBlank() {
		b = fmt.Appendf(b, `<content:encoded xmlns:content="%s">`, contentSpace)
		b = appendEnd(appendText(b, a.content.asHTML()), "content", "encoded")
	}
	if !a.rights.isBlank() {
		b = fmt.Appendf(b, `<dc:rights xmlns:dc="%s">`, dcSpace)
		b = appendEnd(appendText(b, a.rights.text), "dc", "rights")
	}
	b = append(b, a.others...)
	return append(b, "</item>\n"...)
}

func inRange(at time.Time) bool { return at.Year() >= 1 && at.Year() <= 9999 }
