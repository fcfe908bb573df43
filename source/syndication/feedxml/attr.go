package feedxml

import "bytes"

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

// vocabulary recognises the names of a document's format.
type vocabulary struct {
	*violationLog
	format Format
	// rssURI is the namespace of a root element rss. It can be any, and the items have
	// the same. own is the namespace of the format's own elements.
	rssURI string
	own    space
	attrs  []attr // of the last tag
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
	for _, a := range v.attrs {
		if a.name[0] != 'x' || len(a.name) < len("xmlns") {
			continue
		}
		switch string(a.name) {
		case "xmlns":
			s.bindings = append(s.bindings, v.bindPrefix("", attrValue(a.value)))
		case "xml:base":
			base, ok := resolveLink(s.base, attrValue(a.value))
			if !ok {
				v.violationf(BadHref, "the xml:base %q is no URI, or one of more than %d bytes, and is ignored", Excerpt(a.value), longestAddress)
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
	if b.space == foreign && uri == v.rssURI && uri != "" {
		b.space = rss
	}
	return b
}
