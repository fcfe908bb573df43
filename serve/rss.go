package serve

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/xmlcopy"
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
		xml.Header, xmlcopy.Escape(c.Title), xmlcopy.Escape(home), xmlcopy.Escape(c.Title), p.updated().Format(http.TimeFormat))
	for _, l := range p.relations(c) {
		fmt.Fprintf(&b, "<atom:link xmlns:atom=%q rel=\"%s\" href=\"%s\"/>\n", entry.AtomSpace, l[0], xmlcopy.Escape(l[1]))
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
	e.restoreXML()
	if out, ok := rssFromRSS(b, e); ok {
		return out
	}
	if a, ok := e.readEntry(); ok {
		return appendRSS(b, e, a)
	}
	a := &entry.Entry{}
	switch media := e.mediaType(); {
	case media == "text/html" && xmlcopy.IsText(e.body):
		a.Summary = &entry.Prose{Text: string(e.body), IsHTML: true}
	case xmlcopy.IsText(e.body) && (isTextual(media) || isXML(media)):
		a.Summary = &entry.Prose{Text: string(e.body)}
	default:
		a.Summary = &entry.Prose{Text: fmt.Sprintf("%d bytes of %s in base64: %s", len(e.body), media, inBase64(e.body))}
	}
	return appendRSS(b, e, a)
}

// rssFromRSS appends an item of RSS 2.0 or 0.9x as it is, and adds the
// missing elements: a guid if it has none, and the base of its references. It reports false if the body
// is no such item.
func rssFromRSS(b []byte, e *entity) (_ []byte, ok bool) {
	s, ok := xmlcopy.Open(e.body)
	if !ok || s.Tag.Local != "item" || s.Tag.Space != "" {
		return nil, false
	}
	root, base := s.Tag, entry.ResolveURL(e.contentBase(), s.Tag.AttrIn(xmlcopy.XMLSpace, "base"))
	b = xmlcopy.AppendStart(b, &xmlcopy.Tag{Local: "item"}, root.Bindings, withBase(root.Attrs, e.contentBase()))
	has := map[string]bool{}
	for {
		kind, err := s.NextToken()
		switch {
		case err != nil:
			return nil, false
		case kind == xmlcopy.EndToken:
			if !has["guid"] {
				b = appendGUID(b, e.entryID)
			}
			if !has["title"] && !has["description"] {
				b = appendElement(b, "title", e.entryID)
			}
			return append(appendItemOperation(b, e), "</item>\n"...), true
		case kind == xmlcopy.TextToken:
			b = xmlcopy.AppendText(b, s.Text)
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
func copyRSSChild(b []byte, s *xmlcopy.Scanner, base string, has map[string]bool) (_ []byte, err error) {
	t, begin := s.Tag, len(b)
	if t.Space != "" {
		return s.CopyChild(b)
	}
	for i, a := range t.Attrs {
		if a.Local == "url" && a.Space == "" {
			t.Attrs[i].Value = entry.ResolveURL(base, a.Value)
		}
	}
	if b, err = s.CopyChild(b); err != nil {
		return b, err
	}
	drop := false
	switch t.Local {
	case "guid":
		drop = has["guid"] || xmlcopy.CopiedText(b[begin:], &t) == ""
	case "link":
		drop = has["link"]
		if href := html.UnescapeString(xmlcopy.CopiedText(b[begin:], &t)); !drop && href != "" && entry.ResolveURL(base, href) != href {
			b = xmlcopy.AppendStart(b[:begin], &t, t.Bindings, t.Attrs)
			b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, entry.ResolveURL(base, href)), t.Prefix, t.Local)
		}
	case "title", "description", "pubDate", "author", "comments", "source":
		drop = has[t.Local]
	}
	if drop {
		return b[:begin], nil
	}
	has[t.Local] = true
	return b, nil
}

// appendItemOperation marks the item of a PATCH.
func appendItemOperation(b []byte, e *entity) []byte {
	if e.op != feed.Patch {
		return b
	}
	return fmt.Appendf(b, `<category domain="%s">PATCH</category>`, operationScheme)
}

// appendElement appends an element with a text.
func appendElement(b []byte, local, text string) []byte {
	b = append(append(append(b, '<'), local...), '>')
	return xmlcopy.AppendEnd(xmlcopy.AppendText(b, text), "", local)
}

func appendGUID(b []byte, id string) []byte {
	return xmlcopy.AppendEnd(xmlcopy.AppendText(append(b, `<guid isPermaLink="false">`...), id), "", "guid")
}

// appendRSS appends an article as an item.
func appendRSS(b []byte, e *entity, a *entry.Entry) []byte {
	// An item of RSS keeps what it lacks, also in JSON.
	isRSS := e.isJSONEntry() && strings.HasPrefix(e.headerValue("Feed-Format"), "rss") && e.headerValue("Feed-Format") != "rss1"
	title := e.entryID
	if !a.Title.IsBlank() {
		title = strings.TrimSpace(a.Title.Text)
		if !a.Title.IsHTML && entry.LooksLikeHTML(title) {
			title = html.EscapeString(title) // readers would take it for HTML
		}
	}
	b = xmlcopy.AppendStart(b, &xmlcopy.Tag{Local: "item"}, nil, withLanguage(withBase(nil, a.Base), a.Language))
	if !isRSS || !a.Title.IsBlank() || a.Summary.IsBlank() {
		b = appendElement(b, "title", title)
	}
	b = appendGUID(b, cmp.Or(a.ID, e.entryID))
	published, updated := e.taken, e.updateTime()
	if !e.published.IsZero() {
		published = e.published
	}
	at, _, known := message.ParseDate(a.Updated)
	if known && inRange(at) {
		published, updated = at, at
	}
	if at, _, known := message.ParseDate(a.Published); known && inRange(at) {
		published = at
	}
	if !isRSS || a.Published != "" {
		b = appendElement(b, "pubDate", message.FormatDate(published))
	}
	if !isRSS || a.Updated != "" {
		b = fmt.Appendf(b, `<atom:updated xmlns:atom="%s">%s</atom:updated>`, entry.AtomSpace, rfc3339(updated))
	}
	b = appendRSSLinks(b, a.Links)
	b = appendRSSAuthors(b, e, a)
	for _, p := range a.Contributors {
		b = appendDC(b, p, "contributor")
	}
	for _, c := range a.Categories {
		b = append(b, "<category"...)
		if c.Scheme != "" {
			b = append(xmlcopy.AppendValue(append(b, ` domain="`...), c.Scheme), '"')
		}
		b = appendExtra(b, [2]string{"label", c.Label})
		b = xmlcopy.AppendEnd(xmlcopy.AppendText(append(b, '>'), c.Term), "", "category")
	}
	b = appendItemOperation(b, e)
	// Readers take a description for HTML.
	if !a.Summary.IsBlank() {
		b = appendElement(b, "description", a.Summary.HTML())
	}
	if !a.Content.IsBlank() {
		b = fmt.Appendf(b, `<content:encoded xmlns:content="%s">`, entry.ContentSpace)
		b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, a.Content.HTML()), "content", "encoded")
	}
	if !a.Rights.IsBlank() {
		b = fmt.Appendf(b, `<dc:rights xmlns:dc="%s">`, entry.DCSpace)
		b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, a.Rights.Text), "dc", "rights")
	}
	if a.Source != nil && a.Source.URL != "" {
		b = append(xmlcopy.AppendValue(append(b, `<source url="`...), a.Source.URL), `">`...)
		b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, a.Source.Title), "", "source")
	}
	b = a.Extensions.AppendXML(b)
	return append(b, "</item>\n"...)
}

// appendRSSLinks appends the links of an article: the first alternate as link, enclosures
// and comments as RSS has them, and the others as links of Atom.
func appendRSSLinks(b []byte, links []entry.Link) []byte {
	alternate := false
	for _, l := range links {
		switch {
		case l.Rel == "alternate" && !alternate:
			alternate = true
			b = appendElement(b, "link", l.Href)
		case l.Rel == "enclosure":
			b = append(xmlcopy.AppendValue(append(b, `<enclosure url="`...), l.Href), '"')
			b = append(xmlcopy.AppendValue(append(b, ` length="`...), cmp.Or(l.Length, "0")), '"')
			b = append(xmlcopy.AppendValue(append(b, ` type="`...), cmp.Or(l.Type, "application/octet-stream")), `"/>`...)
		case l.Rel == "replies" && l.Type == "":
			b = appendElement(b, "comments", l.Href)
		default:
			b = appendAtomLink(b, l, "atom")
		}
	}
	return b
}

// appendRSSAuthors appends the first author with a mail address as the author, of which
// an item has one, and the others as creators of Dublin Core.
func appendRSSAuthors(b []byte, e *entity, a *entry.Entry) []byte {
	written := false
	for _, p := range authorsOf(e, a) {
		if p.Email == "" || written {
			b = appendDC(b, p, "creator")
			continue
		}
		written = true
		text := p.Email
		if p.Name != "" && p.Name != p.Email {
			text += " (" + p.Name + ")"
		}
		b = append(appendExtra(append(b, "<author"...), [2]string{"uri", p.URI}), '>')
		b = xmlcopy.AppendEnd(xmlcopy.AppendText(b, text), "", "author")
	}
	return b
}

// appendExtra appends attributes in [entry.ExtraSpace], unless they are empty.
func appendExtra(b []byte, attributes ...[2]string) []byte {
	declared := false
	for _, a := range attributes {
		if a[1] == "" {
			continue
		}
		if !declared {
			declared = true
			b = fmt.Appendf(b, ` xmlns:extra="%s"`, entry.ExtraSpace)
		}
		b = append(append(append(b, " extra:"...), a[0]...), `="`...)
		b = append(xmlcopy.AppendValue(b, a[1]), '"')
	}
	return b
}

// appendDC appends a person as an element of Dublin Core.
func appendDC(b []byte, p entry.Person, local string) []byte {
	b = fmt.Appendf(b, `<dc:%s xmlns:dc="%s"`, local, entry.DCSpace)
	name := cmp.Or(p.Name, p.Email, p.URI)
	email, uri := p.Email, p.URI
	if email == name {
		email = ""
	}
	if uri == name {
		uri = ""
	}
	b = append(appendExtra(b, [2]string{"email", email}, [2]string{"uri", uri}), '>')
	return xmlcopy.AppendEnd(xmlcopy.AppendText(b, name), "dc", local)
}

func inRange(at time.Time) bool { return at.Year() >= 1 && at.Year() <= 9999 }
