package serve

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// The namespaces of documents. All but Atom's are declared where they are used: a
// reader that takes an entry out of a document would have to carry those along
// that the document declares.
const (
	atomSpace      = "http://www.w3.org/2005/Atom"
	historySpace   = "http://purl.org/syndication/history/1.0"
	tombstoneSpace = "http://purl.org/atompub/tombstones/1.0"
)

// stamp is when an entry that we make was updated: when the bus took its message,
// with the position in the digits behind the millisecond. So one that comes later
// is newer, also where the bus counts in milliseconds.
func (e *entity) stamp() time.Time {
	return e.taken.Truncate(time.Millisecond).Add(time.Duration(e.position % 1e6))
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var hasScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[^ <>"{}|\\^` + "`" + `]+$`)

// iri is an ID as Atom wants it. What is no IRI becomes that of a Content-ID
// (RFC 2392).
func iri(id string) string {
	if hasScheme.MatchString(id) {
		return id
	}
	return "cid:" + url.PathEscape(strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">"))
}

const (
	xmlSpace   = "http://www.w3.org/XML/1998/namespace"
	xmlnsSpace = "http://www.w3.org/2000/xmlns/"
)

// escaped is text for an element or an attribute.
func escaped(s string) string {
	return strings.ReplaceAll(string(appendText(nil, s)), `"`, "&quot;")
}

// isText reports whether XML can carry b as text.
func isText(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}

// media returns the media type of the body. UTF-8 text that has none is text.
func (e *entity) media() string {
	media, _, err := mime.ParseMediaType(e.contentType)
	switch {
	case err == nil && strings.Contains(media, "/") && !e.untyped:
		return media
	case e.untyped && isText(e.body):
		return "text/plain"
	}
	return "application/octet-stream"
}

// isTextual reports whether bodies of a media type are text for people to read, if
// they are UTF-8.
func isTextual(media string) bool {
	switch media {
	case "application/json", "application/javascript", "application/yaml", "application/x-yaml", "application/toml", "application/x-ndjson", "application/jsonl":
		return true
	}
	return strings.HasPrefix(media, "text/") && !isXML(media) || strings.HasSuffix(media, "+json")
}

// base is what relative references in the body start from: the document that the
// entity was read from. It is empty if that is not known.
func (e *entity) base() string { return resolveURL(e.page, e.said(contentLocation)) }

// said returns the value of a header, "" if there is none.
func (e *entity) said(name string) string {
	value, _ := e.header.Get(name)
	return value
}

// feedAuthors returns the authors of the feed that the entity is from.
func (e *entity) feedAuthors() (authors []person) {
	for _, f := range e.header {
		if named(f.Name, "Feed-Author") {
			authors = append(authors, readPerson(f.Value))
		}
	}
	return authors
}

func isXML(media string) bool {
	return strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml")
}

// tombstone says that the entry with an ID was deleted (RFC 6721).
func tombstone(b []byte, e *entity, id string) []byte {
	if el, root, ok := standaloneXML(e.body); ok && root == (xml.Name{Space: tombstoneSpace, Local: "deleted-entry"}) {
		return append(append(b, el...), '\n')
	}
	return fmt.Appendf(b, `<at:deleted-entry xmlns:at="%s" ref="%s" when="%s"/>`+"\n", tombstoneSpace, escaped(id), rfc3339(e.stamp()))
}

// address is an archive's or the subscription document's.
func (p *page) address() string {
	if p.kind == subscription {
		return p.base + "/latest"
	}
	return p.archive(p.id.k)
}

func (p *page) archive(k uint64) string { return p.base + "/pages/" + p.id.at(k).String() }

// relations are the links of a document, by their relation (RFC 5005).
func (p *page) relations() [][2]string {
	list := [][2]string{{"self", p.address()}, {"current", p.base + "/latest"}}
	if p.prev(p.span) {
		list = append(list, [2]string{"prev-archive", p.archive(p.before.k)})
	}
	if p.after.ok {
		list = append(list, [2]string{"next-archive", p.archive(p.after.k)})
	}
	return list
}

// updated is when a document was changed last: when it got its last entry.
func (p *page) updated() time.Time {
	if p.entities == 0 {
		return time.Unix(0, 0).UTC()
	}
	return p.modified
}

// subscription answers with the document that has the newest entries: at least as
// many messages as an archive has positions, if the topic has so many, from the first
// entry of an archive on. So a client that does not know archives sees each entry for
// a while, also where most positions have no message, as those of checkpoints.
func (f *Feed) subscription(w http.ResponseWriter, r *http.Request, base string) error {
	for range 5 {
		span, err := f.topic.Span(r.Context())
		if err != nil {
			return err
		}
		id := pageID{epoch: span.Epoch, size: uint64(f.cfg.PageSize)}
		id.k = span.End / id.size
		p, err := f.page(r.Context(), pageKey{feed: f, id: id, base: base, kind: subscription})
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return err
		}
		defer f.memory.release(p)
		return f.send(w, r, p, base)
	}
	return errMoved
}

// inBase64 is content that XML cannot carry.
func inBase64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
