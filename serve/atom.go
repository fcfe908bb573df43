package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/message"
)

// atomFormat is an archived feed (RFC 5005, section 4): every page that is full is an archive
// document, and the subscription document has what is newer.
type atomFormat struct{}

func (atomFormat) linked() bool             { return true }
func (atomFormat) contentType(*page) string { return "application/atom+xml; charset=utf-8" }

// feedID is the same in all documents of a topic.
func feedID(f *Feed, epoch string) string {
	sum := sha256.Sum256([]byte(f.cfg.Name + " " + epoch))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // a UUID of version 8 (RFC 9562)
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (atomFormat) frame(f *Feed, p *page) (head, tail []byte) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s<feed xmlns=%q>\n<id>%s</id>\n<title>%s</title>\n<updated>%s</updated>\n<author><name>feedbridge</name></author>\n",
		xml.Header, atomSpace, feedID(f, p.id.epoch), escaped(f.cfg.Title), rfc3339(p.updated()))
	for _, l := range p.relations() {
		fmt.Fprintf(&b, "<link rel=\"%s\" href=\"%s\"/>\n", l[0], escaped(l[1]))
	}
	if p.kind == closedPage {
		fmt.Fprintf(&b, "<fh:archive xmlns:fh=%q/>\n", historySpace)
	}
	return b.Bytes(), []byte("</feed>\n")
}

// entity appends an entry. One that is an entry of Atom goes out as it came, but
// that it gets the message's ID if it has none.
func (atomFormat) entity(b []byte, _ *page, e *entity) []byte {
	if e.op == "DELETE" {
		return tombstone(b, e, iri(e.id))
	}
	el, root, wellFormed := element(e.body)
	media := mediaType(e.contentType)
	switch {
	case wellFormed && root == (xml.Name{Space: atomSpace, Local: "entry"}):
		el = identified(el, xml.Name{Space: atomSpace, Local: "id"}, ` xmlns="`+atomSpace+`"`, iri(e.id))
		return append(append(b, el...), '\n')
	case wellFormed && root.Local == "item" && (e.format != "" || media == "application/rss+xml"):
		return atomItem(b, e)
	}
	b = atomEntry(b, e, e.id)
	switch {
	case isXML(media) && wellFormed:
		b = fmt.Appendf(b, `<content type="%s">%s</content>`, escaped(media), el)
	case media == "text/html" && isText(e.body):
		b = fmt.Appendf(b, `<content type="html">%s</content>`, escaped(string(e.body)))
	case strings.HasPrefix(media, "text/") && !isXML(media) && isText(e.body):
		kind := media
		if media == "text/plain" {
			kind = "text"
		}
		b = fmt.Appendf(b, `<content type="%s">%s</content>`, escaped(kind), escaped(string(e.body)))
	default:
		// Content that is neither text nor XML is in base64 and wants a summary
		// (RFC 4287, sections 4.1.2 and 4.1.3.3).
		if strings.HasPrefix(media, "text/") || isXML(media) {
			media = "application/octet-stream"
		}
		b = fmt.Appendf(b, `<summary>%d bytes of %s</summary><content type="%s">%s</content>`, len(e.body), escaped(media), escaped(media), inBase64(e.body))
	}
	return append(b, "</entry>\n"...)
}

// atomEntry begins an entry that we make.
func atomEntry(b []byte, e *entity, title string) []byte {
	b = fmt.Appendf(b, "<entry><id>%s</id><title>%s</title><updated>%s</updated>", escaped(iri(e.id)), escaped(title), rfc3339(e.stamp()))
	if e.op == "PATCH" {
		b = fmt.Appendf(b, `<category scheme="https://github.com/feedbridge/feedbridge/operation" term="PATCH"/>`)
	}
	return b
}

// atomItem says an item of RSS in Atom.
func atomItem(b []byte, e *entity) []byte {
	var it item
	if err := xml.Unmarshal(e.body, &it); err != nil {
		it = item{}
	}
	title := strings.TrimSpace(it.Title)
	if title == "" {
		title = e.id
	}
	b = atomEntry(b, e, title)
	if at, _, ok := message.ParseDate(it.PubDate); ok {
		b = fmt.Appendf(b, "<published>%s</published>", rfc3339(at))
	}
	if link := strings.TrimSpace(it.Link); link != "" {
		b = fmt.Appendf(b, `<link href="%s"/>`, escaped(link))
	}
	if it.Content != "" {
		it.Description = it.Content
	}
	return fmt.Appendf(b, "<content type=\"html\">%s</content></entry>\n", escaped(it.Description))
}

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

// entity appends an item. One that is an item of RSS 2.0 goes out as it came, but
// that it gets the message's ID as guid if it has none.
func (rssFormat) entity(b []byte, _ *page, e *entity) []byte {
	if e.op == "DELETE" {
		return tombstone(b, e, e.id)
	}
	el, root, wellFormed := element(e.body)
	switch {
	case wellFormed && root == (xml.Name{Local: "item"}):
		// No namespace is declared around it.
		name := nameEnd(el)
		el = slices.Concat(el[:name], bytes.TrimPrefix(el[name:], []byte(` xmlns=""`)))
		el = identified(el, xml.Name{Local: "guid"}, ` isPermaLink="false"`, e.id)
		return append(append(b, el...), '\n')
	case wellFormed && root == (xml.Name{Space: atomSpace, Local: "entry"}):
		var in entry
		if err := xml.Unmarshal(el, &in); err != nil {
			break
		}
		if in.Content == "" {
			in.Content = in.Summary
		}
		return rssItem(b, e, in.Title, in.alternate(), in.Content, in.Published)
	}
	text := inBase64(e.body)
	if isText(e.body) {
		text = string(e.body)
	}
	return rssItem(b, e, "", "", text, "")
}

func rssItem(b []byte, e *entity, title, link, description, published string) []byte {
	if title = strings.TrimSpace(title); title == "" {
		title = e.id
	}
	at, _, ok := message.ParseDate(published)
	if !ok {
		at = e.taken
	}
	b = fmt.Appendf(b, `<item><title>%s</title><guid isPermaLink="false">%s</guid><pubDate>%s</pubDate><atom:updated xmlns:atom="%s">%s</atom:updated>`,
		escaped(title), escaped(e.id), at.Format(http.TimeFormat), atomSpace, rfc3339(e.stamp()))
	if link != "" {
		b = fmt.Appendf(b, "<link>%s</link>", escaped(link))
	}
	return fmt.Appendf(b, "<description>%s</description></item>\n", escaped(description))
}
