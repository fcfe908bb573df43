package feedxml

import (
	"bytes"
	"slices"
	"strings"
)

// space is a namespace that has a meaning here.
type space uint8

const (
	foreign space = iota // any other namespace, or a prefix that is not declared
	noSpace
	atom // of any version
	rss  // of any version, where the document puts RSS in a namespace
	rdf
	history    // RFC 5005 and its drafts
	tombstones // RFC 6721
	dc
	dcterms
	syndication
	contentModule
	extra // of the feeds that feedbridge serves
)

// The namespaces of Atom 1.0 and 0.3.
const (
	AtomNamespace   string = "http://www.w3.org/2005/Atom"
	Atom03Namespace string = "http://purl.org/atom/ns#"
)

// The namespaces of the formats. Names are compared with these, never with a
// prefix.
const (
	atomDraftURI = "http://purl.org/atom/ns#draft-ietf-atompub-format-" // and a number
	rss10URI     = "http://purl.org/rss/1.0/"
	rss090URI    = "http://my.netscape.com/rdf/simple/0.9/"
	rss090URI2   = "http://channel.netscape.com/rdf/simple/0.9/"
	xmlURI       = "http://www.w3.org/XML/1998/namespace"
)

var spaces = map[string]space{
	"":              noSpace,
	AtomNamespace:   atom,
	Atom03Namespace: atom,
	rss10URI:        rss, rss090URI: rss, rss090URI2: rss,
	"http://www.w3.org/1999/02/22-rdf-syntax-ns#":    rdf,
	"http://purl.org/syndication/history/1.0":        history,
	"http://purl.org/atompub/tombstones/1.0":         tombstones,
	"http://purl.org/dc/elements/1.1/":               dc,
	"http://purl.org/dc/terms/":                      dcterms,
	"http://purl.org/rss/1.0/modules/syndication/":   syndication,
	"http://purl.org/rss/1.0/modules/content/":       contentModule,
	"https://github.com/feedbridge/feedbridge/extra": extra,
}

func spaceOf(uri string) space {
	uri = trimSpace(uri)
	if strings.HasPrefix(uri, atomDraftURI) {
		return atom
	}
	return spaces[uri]
}

// binding is a prefix and its namespace; the default namespace has no prefix.
type binding struct {
	prefix, uri string // uri as declared
	space       space
}

// scope has the declarations that apply within an element.
type scope struct {
	bindings []binding // inner ones last
	base     string    // absolute, if the document's URL is
	based    bool      // base is not the document's URL
	lang     string
}

// vocabulary recognises the names of a document's format.
type vocabulary struct {
	*violationLog
	format Format
	// rssURI is the namespace of a root element rss. It can be any, and the items have
	// the same. own is the namespace of the format's own elements.
	rssURI string
	own    space
	attrs  []attr // of the last tag
	// doubtful is [Meta.Doubtful].
	doubtful bool
}

// lookupPrefix returns the namespace of a prefix.
func (s *scope) lookupPrefix(prefix []byte) (b binding, declared bool) {
	for i := len(s.bindings) - 1; i >= 0; i-- {
		if s.bindings[i].prefix == string(prefix) {
			return s.bindings[i], true
		}
	}
	return binding{space: noSpace}, len(prefix) == 0
}

// resolveName splits the name of an element.
func (s *scope) resolveName(name []byte) (in binding, local []byte, declared bool) {
	prefix, local := cutPrefix(name)
	in, declared = s.lookupPrefix(prefix)
	if !declared {
		in.space = foreign
	}
	return in, local, declared
}

func cutPrefix(name []byte) (prefix, local []byte) {
	if i := bytes.IndexByte(name, ':'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return nil, name
}

// effectiveBindings returns the bindings that are not hidden by inner ones, the default
// namespace first and the others by prefix. The order makes the entries of two
// documents equal that declare the same in another order.
func (s *scope) effectiveBindings() []binding {
	var seen []binding
	for i := len(s.bindings) - 1; i >= 0; i-- {
		b := s.bindings[i]
		if !slices.ContainsFunc(seen, func(inner binding) bool { return inner.prefix == b.prefix }) {
			seen = append(seen, b)
		}
	}
	seen = slices.DeleteFunc(seen, func(b binding) bool { return b.uri == "" || b.prefix == "xml" })
	slices.SortFunc(seen, func(a, b binding) int { return strings.Compare(a.prefix, b.prefix) })
	return seen
}

// isMeaningful reports whether a child of that local name has a meaning in some format.
func isMeaningful(local []byte) bool {
	switch string(local) {
	case "id", "guid", "link", "updated", "modified", "published", "issued", "created", "pubDate", "date",
		"title", "description", "summary", "content", "hour", "day", "name", "email", "enclosure", "encoded":
		return true
	}
	return false
}

// attr is an attribute of a tag. It is valid until more is read.
type attr struct {
	name, value []byte // as written
	at          int    // offset of the value in the bytes of the tag
}

// attributes appends the attributes of a tag that [scanner.scanTag] has read to list.
func attributes(list []attr, b []byte, t tag) []attr {
	j := t.nameEnd
	for range t.attributes {
		for isSpace[b[j]] {
			j++
		}
		name := j
		for isName[b[j]] {
			j++
		}
		a := attr{name: b[name:j]}
		for b[j] != '"' && b[j] != '\'' {
			j++
		}
		a.at = j + 1
		a.value = b[a.at : a.at+bytes.IndexByte(b[a.at:], b[j])]
		j = a.at + len(a.value) + 1
		list = append(list, a)
	}
	return list
}

// attribute returns the value of an attribute in v.attrs.
func (v *vocabulary) attribute(in *scope, space space, local string) (value string, ok bool) {
	for _, a := range v.attrs {
		prefix, name := cutPrefix(a.name)
		if string(name) != local {
			continue
		}
		// An attribute without a prefix is in no namespace.
		if prefix == nil {
			if space != noSpace {
				continue
			}
		} else if b, declared := in.lookupPrefix(prefix); !declared || b.space != space {
			v.doubtful = v.doubtful || !declared
			continue
		}
		return attrValue(a.value), true
	}
	return "", false
}

// innerScope returns the scope within an element whose parent's is outer.
func (v *vocabulary) innerScope(outer *scope, b []byte, t tag) scope {
	s := *outer
	s.bindings = s.bindings[:len(s.bindings):len(s.bindings)]
	if t.attributes == 0 {
		return s
	}
	v.attrs = attributes(v.attrs[:0], b, t)
	for i, a := range v.attrs {
		if slices.ContainsFunc(v.attrs[:i], func(before attr) bool { return bytes.Equal(before.name, a.name) }) {
			v.doubtful = true
		}
		if a.name[0] != 'x' || len(a.name) < len("xmlns") {
			continue
		}
		switch string(a.name) {
		case "xmlns":
			s.bindings = append(s.bindings, v.bindPrefix("", attrValue(a.value)))
		case "xml:base":
			base, ok := resolveLink(s.base, attrValue(a.value))
			if !ok {
				v.violationf(kindBadHref, "the xml:base %q is no URI, or one of more than %d bytes, and is ignored", Excerpt(a.value), longestAddress)
				continue
			}
			s.base, s.based = base, true
		case "xml:lang":
			s.lang = attrValue(a.value)
		default:
			if prefix, ok := bytes.CutPrefix(a.name, []byte("xmlns:")); ok {
				s.bindings = append(s.bindings, v.bindPrefix(string(prefix), attrValue(a.value)))
			}
		}
	}
	return s
}

func (v *vocabulary) bindPrefix(prefix, uri string) binding {
	b := binding{prefix: prefix, uri: uri, space: spaceOf(uri)}
	v.doubtful = v.doubtful || prefix != "" && uri == "" // a prefix cannot be undeclared
	if b.space == foreign && uri == v.rssURI && uri != "" {
		b.space = rss
	}
	return b
}

// setFormat sets the format of a document, and the namespace of the format's own elements,
// by the name of the root element. s is the scope within the root.
func (v *vocabulary) setFormat(format Format, in binding, s *scope) {
	v.format = format
	switch format {
	case RSS:
		v.own, v.rssURI = in.space, in.uri
		if in.space == foreign {
			v.own = rss
			for i := range s.bindings {
				if s.bindings[i].uri == in.uri {
					s.bindings[i].space = rss
				}
			}
		}
	case RDF:
		v.own = rss
	default:
		v.own = atom
	}
}
