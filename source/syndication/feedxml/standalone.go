package feedxml

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"io"
	"slices"
)

// inherited is a declaration that the entries of a container inherit, written as an
// attribute.
type inherited struct {
	prefix string // of a namespace
	name   string
	text   []byte // the attribute, with a blank before it
	used   bool   // by the entry at hand; always set without a prefix
}

// inheritance has the declarations that the children of an element inherit: the default
// namespace, the others in the order of their prefixes, xml:base and xml:lang.
type inheritance struct {
	all      []inherited
	byPrefix map[string]*inherited // those of all that are namespaces with a prefix
	ends     [256]bool             // the last bytes of prefixes
	pieces   [][]byte              // the parts of a body, reused
}

// container is an element whose children the reader reads one by one.
type container struct {
	name    string // as written
	scope   scope
	inherit inheritance
}

func newInheritance(s *scope) inheritance {
	var all []inherited
	from := 0
	for _, b := range s.effectiveBindings() {
		name := "xmlns:" + b.prefix
		if b.prefix == "" {
			name, from = "xmlns", 1
		}
		all = append(all, inherited{prefix: b.prefix, name: name, text: appendAttr(nil, name, b.uri), used: true})
	}
	to := len(all)
	if s.based {
		all = append(all, inherited{name: "xml:base", text: appendAttr(nil, "xml:base", s.base), used: true})
	}
	if s.lang != "" {
		all = append(all, inherited{name: "xml:lang", text: appendAttr(nil, "xml:lang", s.lang), used: true})
	}
	h := inheritance{all: all, byPrefix: map[string]*inherited{}}
	for i := range all[from:to] {
		in := &all[from+i]
		h.byPrefix[in.prefix] = in
		h.ends[in.prefix[len(in.prefix)-1]] = true
	}
	return h
}

// totalBytes returns the number of bytes by which an entry grows that uses all of it.
func (h *inheritance) totalBytes() (n int) {
	for _, in := range h.all {
		n += len(in.text)
	}
	return n
}

// markUsed marks the prefixes that an entry uses. A prefix counts as used if it
// precedes a colon in a name, in a value such as that of xsi:type, or in text: a
// surplus declaration does no harm. No byte is scanned twice, so the time does not grow
// with the number of colons.
func (h *inheritance) markUsed(b []byte) {
	for _, in := range h.byPrefix {
		in.used = false
	}
	for at, left := 0, len(h.byPrefix); left > 0; at++ {
		n := bytes.IndexByte(b[at:], ':')
		if n < 0 {
			return
		}
		at += n
		if at == 0 || !h.ends[b[at-1]] {
			continue
		}
		start := at
		for start > 0 && isName[b[start-1]] && b[start-1] != ':' {
			start--
		}
		if in := h.byPrefix[string(b[start:at])]; in != nil && !in.used {
			in.used = true
			left--
		}
	}
}

// standalone returns the element b, byte for byte except for its start tag, which gets
// the declarations that the element inherits and does not have itself, and an absolute
// xml:base. own are the attributes of the tag, and base its base.
func (h *inheritance) standalone(b []byte, t tag, own []attr, base string) []byte {
	h.markUsed(b)
	pieces := append(h.pieces[:0], b[:t.nameEnd])
	for _, in := range h.all {
		if in.used && !slices.ContainsFunc(own, func(a attr) bool { return string(a.name) == in.name }) {
			pieces = append(pieces, in.text)
		}
	}
	done := t.nameEnd
	for _, a := range own {
		if string(a.name) == "xml:base" && schemeLength(string(trimSpace(a.value))) == 0 && schemeLength(base) > 0 {
			pieces = append(pieces, b[done:a.at], []byte(attrText(base, b[a.at-1])))
			done = a.at + len(a.value)
		}
	}
	pieces = append(pieces, b[done:])
	h.pieces = pieces[:0]
	return bytes.Join(pieces, nil) // unlike append, it does not clear the memory first
}

// contentHash returns the SHA-256 of a body without the given parts of it. Their
// positions are counted from the end of the body.
func contentHash(body []byte, without []span) [sha256.Size]byte {
	if len(without) == 0 {
		return sha256.Sum256(body)
	}
	h := sha256.New()
	for _, s := range without {
		h.Write(body[:len(body)-s.start])
		body = body[len(body)-s.end:]
	}
	h.Write(body)
	return [sha256.Size]byte(h.Sum(nil))
}

// attrText escapes a value for use between the given quotes.
func attrText(value string, quote byte) string {
	if quote == '\'' {
		value = attrEscaper.Replace(value)
		return string(bytes.ReplaceAll([]byte(value), []byte("'"), []byte("&apos;")))
	}
	return attrEscaper.Replace(value)
}

// usualPrefixes are the namespaces of prefixes that feeds often use without a
// declaration.
var usualPrefixes = map[string]string{
	"atom": AtomNamespace, "content": "http://purl.org/rss/1.0/modules/content/", "dc": "http://purl.org/dc/elements/1.1/",
	"dcterms": "http://purl.org/dc/terms/", "feedburner": "http://rssnamespace.org/feedburner/ext/1.0", "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
	"georss": "http://www.georss.org/georss", "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd", "media": "http://search.yahoo.com/mrss/",
	"podcast": "https://podcastindex.org/namespace/1.0", "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "slash": "http://purl.org/rss/1.0/modules/slash/",
	"sy": "http://purl.org/rss/1.0/modules/syndication/", "thr": "http://purl.org/syndication/thread/1.0", "wfw": "http://wellformedweb.org/CommentAPI/",
	"xlink": "http://www.w3.org/1999/xlink", "xsi": "http://www.w3.org/2001/XMLSchema-instance", "yt": "http://www.youtube.com/xml/schemas/2015",
}

// undeclaredURI is the start of the namespaces of other prefixes without a declaration.
const undeclaredURI = "urn:undeclared-prefix:"

// DeclarePrefixes returns a well-formed element with declarations of the undeclared
// prefixes of its elements and attributes, because namespace-aware parsers refuse it
// otherwise. prefixes are those that it has added, in the order of their first use.
func DeclarePrefixes(b []byte) (declared []byte, prefixes []string) {
	if bytes.IndexByte(b, ':') < 0 {
		return b, nil
	}
	known := map[string]int{"": 1, "xml": 1, "xmlns": 1} // how often a prefix is declared by open elements, or added
	var open [][]string                                  // the prefixes that each open element declares
	use := func(prefix string) {
		if known[prefix] == 0 {
			prefixes = append(prefixes, prefix)
			known[prefix]++
		}
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return b, nil // it is published as it is
		}
		switch t := token.(type) {
		case xml.StartElement:
			var own []string
			for _, a := range t.Attr {
				if a.Name.Space == "xmlns" {
					own = append(own, a.Name.Local)
					known[a.Name.Local]++
				}
			}
			open = append(open, own)
			use(t.Name.Space)
			for _, a := range t.Attr {
				use(a.Name.Space)
			}
		case xml.EndElement:
			last := len(open) - 1
			for _, prefix := range open[last] {
				known[prefix]--
			}
			open = open[:last]
		}
	}
	if prefixes == nil {
		return b, nil
	}
	nameEnd := 1
	for isName[b[nameEnd]] {
		nameEnd++
	}
	declared = append(make([]byte, 0, len(b)+100*len(prefixes)), b[:nameEnd]...)
	for _, prefix := range prefixes {
		uri, ok := usualPrefixes[prefix]
		if !ok {
			uri = undeclaredURI + prefix
		}
		declared = appendAttr(declared, "xmlns:"+prefix, uri)
	}
	return append(declared, b[nameEnd:]...), prefixes
}
