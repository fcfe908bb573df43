package serve

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	xmlSpace   = "http://www.w3.org/XML/1998/namespace"
	xmlnsSpace = "http://www.w3.org/2000/xmlns/"
)

// The bounds of XML that is put into a document. Many readers accept elements that
// are 256 deep, including the elements around ours.
const (
	deepest      = 200
	mostAttrs    = 256 // of a tag
	mostBindings = 256 // of namespaces, in scope at a time
)

var errXML = errors.New("the XML cannot be part of a document")

// binding is a declaration of a namespace.
type binding struct{ prefix, uri string }

// attribute is an attribute that is not a binding.
type attribute struct{ prefix, local, space, value string }

// tag is a start tag.
type tag struct {
	prefix, local, space string
	attrs                []attribute
	bindings             []binding
	empty                bool // <a/>
}

// attrValue returns the value of an attribute that has no namespace.
func (t *tag) attrValue(local string) string { return t.attrIn("", local) }

func (t *tag) attrIn(space, local string) string {
	for _, a := range t.attrs {
		if a.local == local && a.space == space {
			return a.value
		}
	}
	return ""
}

// tokenKind is the kind of token that a scanner returns.
type tokenKind int

const (
	startToken tokenKind = iota
	endToken
	textToken
)

// scanner reads a document that is well-formed, with namespaces, and reports an error for
// any other. It is a layer on [xml.Decoder], which accepts documents that other parsers
// refuse, so nothing is copied as it is: tags and text are read, checked and written
// again. Comments, processing instructions and the document type are left out. Entities of
// HTML are resolved.
//
// The tokenizer of package feedxml is no substitute: it only finds the bounds of the
// entries in a stream, to cut them out byte for byte, and does not check or decode names,
// attributes and text.
type scanner struct {
	doc  []byte
	d    *xml.Decoder
	tag  tag    // of a startToken
	text []byte // of a textToken; valid until the next call

	bindings []binding // in scope
	open     []element
	done     bool // the root has ended
	// used has the indexes of the bindings that were used since it was made, and
	// noBinding.
	used map[int]bool
}

// element is an element that has not ended.
type element struct {
	prefix, local string
	bindings      int // in scope around it
	empty         bool
}

// openDocument reads the start tag of the root element of doc. It reports false if
// there is none.
func openDocument(doc []byte) (*scanner, bool) {
	doc = bytes.TrimPrefix(doc, []byte("\ufeff"))
	d := xml.NewDecoder(bytes.NewReader(doc))
	d.Entity = xml.HTMLEntity
	s := &scanner{doc: doc, d: d}
	kind, err := s.nextToken()
	return s, err == nil && kind == startToken
}

// nextToken returns the next token; [io.EOF] behind the root.
func (s *scanner) nextToken() (tokenKind, error) {
	for {
		raw, err := s.d.RawToken()
		switch {
		case errors.Is(err, io.EOF) && s.done:
			return 0, io.EOF
		case err != nil:
			return 0, errXML
		}
		switch raw := raw.(type) {
		case xml.StartElement:
			if s.done && len(s.open) == 0 || len(s.open) == deepest {
				return 0, errXML
			}
			return startToken, s.readStartTag(raw)
		case xml.EndElement:
			if len(s.open) == 0 {
				return 0, errXML
			}
			last := s.open[len(s.open)-1]
			if raw.Name != (xml.Name{Space: last.prefix, Local: last.local}) {
				return 0, errXML
			}
			s.open, s.bindings = s.open[:len(s.open)-1], s.bindings[:last.bindings]
			s.done = len(s.open) == 0
			return endToken, nil
		case xml.CharData:
			if len(s.open) > 0 {
				s.text = raw
				return textToken, nil
			}
			if len(bytes.TrimSpace(raw)) > 0 {
				return 0, errXML
			}
		case xml.Directive:
			if len(s.open) > 0 {
				return 0, errXML
			}
		}
	}
}

// nextChild skips text and reads the start tag of the next child of the innermost
// element. found is false if the element has ended instead.
func (s *scanner) nextChild() (found bool, err error) {
	for {
		kind, err := s.nextToken()
		if err != nil || kind != textToken {
			return err == nil && kind == startToken, err
		}
	}
}

// atEnd reports whether nothing follows the root element, which has ended.
func (s *scanner) atEnd() bool {
	_, err := s.nextToken()
	return err == io.EOF //nolint:errorlint // nextToken returns it as it is
}

// readStartTag reads a start tag into s.tag.
func (s *scanner) readStartTag(raw xml.StartElement) error {
	t := tag{prefix: raw.Name.Space, local: raw.Name.Local}
	if at := s.d.InputOffset(); at >= 2 && s.doc[at-2] == '/' {
		t.empty = true
	}
	s.open = append(s.open, element{t.prefix, t.local, len(s.bindings), t.empty})
	if len(raw.Attr) > mostAttrs {
		return errXML
	}
	for _, a := range raw.Attr {
		switch {
		case a.Name.Space == "" && a.Name.Local == "xmlns":
			t.bindings = append(t.bindings, binding{"", namespace(a.Value)})
		case a.Name.Space == "xmlns":
			t.bindings = append(t.bindings, binding{a.Name.Local, namespace(a.Value)})
		default:
			t.attrs = append(t.attrs, attribute{prefix: a.Name.Space, local: a.Name.Local, value: a.Value})
		}
	}
	if !s.declare(&t) || !s.resolveNames(&t) {
		return errXML
	}
	s.tag = t
	return nil
}

// declare brings the bindings of a tag into scope. It reports false if one of them is not
// valid, or if there are too many. The binding of the prefix xml, which is in scope
// everywhere, is left out.
func (s *scanner) declare(t *tag) bool {
	kept := t.bindings[:0]
	for i, b := range t.bindings {
		switch {
		case b.prefix == "xml" && b.uri == xmlSpace:
			continue
		case !b.isValid(), slices.ContainsFunc(t.bindings[:i], func(other binding) bool { return other.prefix == b.prefix }):
			return false
		}
		kept = append(kept, b)
	}
	t.bindings = kept
	s.bindings = append(s.bindings, kept...)
	return len(s.bindings) <= mostBindings
}

// resolveNames sets the namespaces of a tag and of its attributes. It reports false if a
// name is not valid, or if an attribute repeats.
func (s *scanner) resolveNames(t *tag) (ok bool) {
	if t.space, ok = s.resolve(t.prefix); !ok || !isLocalName(t.local) || t.prefix == "xmlns" {
		return false
	}
	for i := range t.attrs {
		a := &t.attrs[i]
		if a.prefix != "" {
			if a.space, ok = s.resolve(a.prefix); !ok {
				return false
			}
		}
		if !isLocalName(a.local) {
			return false
		}
		for _, other := range t.attrs[:i] {
			if other.local == a.local && other.space == a.space {
				return false
			}
		}
	}
	return true
}

// resolve returns the namespace of a prefix. It reports false if the prefix is not
// declared.
func (s *scanner) resolve(prefix string) (uri string, ok bool) {
	if prefix == "xml" {
		return xmlSpace, true
	}
	for i := len(s.bindings) - 1; i >= 0; i-- {
		if s.bindings[i].prefix == prefix {
			if s.used != nil {
				s.used[i] = true
			}
			return s.bindings[i].uri, true
		}
	}
	if s.used != nil && prefix == "" {
		s.used[noBinding] = true
	}
	return "", prefix == ""
}

// noBinding is the binding of names without a prefix that are in no namespace.
const noBinding = -1

// namespace returns the name of a namespace with only the characters of an IRI. Parsers that
// separate names by another character, such as a blank or }, refuse names that have it.
func namespace(uri string) string {
	isIRI := func(r rune) bool {
		return r >= 0xA0 || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' || strings.ContainsRune("-._~:/?#[]@!$&'()*+,;=%", r)
	}
	var b []byte
	for _, r := range strings.Join(strings.Fields(uri), " ") {
		if isIRI(r) {
			b = utf8.AppendRune(b, r)
			continue
		}
		for _, c := range []byte(string(r)) {
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

// isValid reports whether a namespace may be declared like that (Namespaces in XML
// 1.0, sections 3 and 5).
func (b binding) isValid() bool {
	switch {
	case b.prefix == "xml" || b.prefix == "xmlns" || b.uri == xmlSpace || b.uri == xmlnsSpace:
		return false
	case b.prefix == "":
		return true
	}
	return b.uri != "" && isLocalName(b.prefix)
}

// isLocalName reports whether a name that [xml.Decoder] accepts has no prefix and
// is valid behind one.
func isLocalName(name string) bool {
	first, _ := utf8.DecodeRuneInString(name)
	return !strings.Contains(name, ":") && (first == '_' || unicode.In(first, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Lo))
}

// content appends the content of the element whose start tag was read last, and its
// end tag. The prefixes that it uses must be declared around it.
func (s *scanner) content(b []byte) ([]byte, error) {
	for depth := len(s.open); ; {
		kind, err := s.nextToken()
		if err != nil {
			return nil, errXML
		}
		switch kind {
		case startToken:
			b = appendStart(b, &s.tag, s.tag.bindings, s.tag.attrs)
		case textToken:
			b = appendText(b, s.text)
		case endToken:
			last := s.open[:len(s.open)+1][len(s.open)]
			if !last.empty {
				b = appendEnd(b, last.prefix, last.local)
			}
			if len(s.open) < depth {
				return b, nil
			}
		}
	}
}

// copyChild appends the element whose start tag was read last. The prefixes that it uses
// must be declared around it.
func (s *scanner) copyChild(b []byte) ([]byte, error) {
	return s.content(appendStart(b, &s.tag, s.tag.bindings, s.tag.attrs))
}

// copiedText returns the content, as it is escaped, of an element that was appended with
// the start tag t.
func copiedText(element []byte, t *tag) string {
	start, end := bytes.IndexByte(element, '>'), bytes.LastIndex(element, []byte("</"))
	if t.empty || end < 0 {
		return ""
	}
	return strings.TrimSpace(string(element[start+1 : end]))
}

// copyElement appends the element whose start tag was read last, with the bindings
// that it uses, so that it is valid anywhere.
func (s *scanner) copyElement(b []byte) ([]byte, error) {
	t, around := s.tag, len(s.bindings)-len(s.tag.bindings)
	before := s.used
	s.used = map[int]bool{}
	defer func() { s.used = before }()
	if t.prefix != "" || t.space != "" {
		_, _ = s.resolve(t.prefix)
	} else {
		s.used[noBinding] = true
	}
	for _, a := range t.attrs {
		if a.prefix != "" {
			_, _ = s.resolve(a.prefix)
		}
	}
	inner, err := s.content(nil)
	if err != nil {
		return nil, err
	}
	// A default namespace around the copy must not become its own.
	bindings, hasDefault := append([]binding{}, t.bindings...), false
	for _, own := range bindings {
		hasDefault = hasDefault || own.prefix == ""
	}
	outer := s.bindings[:around] // as they were before the element's own, which are behind them
	for i := around - 1; i >= 0 && len(s.used) > 0; i-- {
		if s.used[i] {
			bindings = append(bindings, outer[i])
			hasDefault = hasDefault || outer[i].prefix == ""
		}
	}
	if !hasDefault && s.used[noBinding] {
		bindings = append(bindings, binding{})
	}
	b = appendStart(b, &t, bindings, t.attrs)
	return append(b, inner...), nil
}

// innerContent returns the content of the element whose start tag was read last: its text, and
// the same as HTML if there are elements in it.
func (s *scanner) innerContent() (text, html string, err error) {
	var plain, markup []byte
	elements := false
	for depth := len(s.open); len(s.open) >= depth; {
		kind, err := s.nextToken()
		if err != nil {
			return "", "", errXML
		}
		switch kind {
		case startToken:
			elements = true
			markup = appendHTMLStart(markup, &s.tag)
		case textToken:
			plain, markup = append(plain, s.text...), appendText(markup, s.text)
		case endToken:
			if len(s.open) >= depth {
				markup = appendHTMLEnd(markup, s.open[:len(s.open)+1][len(s.open)].local)
			}
		}
	}
	if !elements {
		markup = nil
	}
	return string(plain), string(markup), nil
}
