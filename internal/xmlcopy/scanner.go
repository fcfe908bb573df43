// Package xmlcopy reads XML that is well-formed, and writes it again so that it is valid inside another
// document.
package xmlcopy

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

// XMLSpace is the namespace of the prefix xml.
const (
	XMLSpace   = "http://www.w3.org/XML/1998/namespace"
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

// Binding is a declaration of a namespace.
type Binding struct{ Prefix, URI string }

// Attribute is an attribute that is not a binding.
type Attribute struct{ Prefix, Local, Space, Value string }

// Tag is a start tag.
type Tag struct {
	Prefix, Local, Space string
	Attrs                []Attribute
	Bindings             []Binding
	Empty                bool // <a/>
}

// Attr returns the value of an attribute that has no namespace.
func (t *Tag) Attr(local string) string { return t.AttrIn("", local) }

func (t *Tag) AttrIn(space, local string) string {
	for _, a := range t.Attrs {
		if a.Local == local && a.Space == space {
			return a.Value
		}
	}
	return ""
}

// TokenKind is the kind of token that a scanner returns.
type TokenKind int

const (
	StartToken TokenKind = iota
	EndToken
	TextToken
)

// Scanner reads a document that is well-formed, with namespaces, and reports an error for
// any other. It is a layer on [xml.Decoder], which accepts documents that other parsers
// refuse, so nothing is copied as it is: tags and text are read, checked and written
// again. Comments, processing instructions and the document type are left out. Entities of
// HTML are resolved.
//
// The tokenizer of package feedxml is no substitute: it only finds the bounds of the
// entries in a stream, to cut them out byte for byte, and does not check or decode names,
// attributes and text.
type Scanner struct {
	doc  []byte
	d    *xml.Decoder // of what follows from
	from int
	Tag  Tag    // of a StartToken
	Text []byte // of a TextToken; valid until the next call

	bindings []Binding // in scope
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

// Open reads the start tag of the root element of doc. It reports false if
// there is none.
func Open(doc []byte) (*Scanner, bool) {
	doc = bytes.TrimPrefix(doc, []byte("\ufeff"))
	s := &Scanner{doc: doc}
	s.continueAt(0)
	kind, err := s.NextToken()
	return s, err == nil && kind == StartToken
}

func (s *Scanner) continueAt(at int) {
	s.from, s.d = at, xml.NewDecoder(bytes.NewReader(s.doc[at:]))
	s.d.Entity = xml.HTMLEntity
}

// shortestCDATA is the length of a CDATA section, in bytes, from which on it is worth another decoder.
const shortestCDATA = 256

// readCDATA reads a CDATA section that needs no change. The decoder, which reads text byte for byte, takes most of the
// time of a long one.
func (s *Scanner) readCDATA() bool {
	if len(s.open) == 0 || s.open[len(s.open)-1].empty {
		return false
	}
	at := s.from + int(s.d.InputOffset())
	text, ok := bytes.CutPrefix(s.doc[at:], []byte("<![CDATA["))
	if !ok {
		return false
	}
	length := bytes.Index(text, []byte("]]>"))
	if length < shortestCDATA {
		return false
	}
	if text = text[:length]; bytes.IndexByte(text, '\r') >= 0 || !IsText(text) {
		return false
	}
	s.Text = text
	s.continueAt(at + length + len("<![CDATA[]]>"))
	return true
}

// NextToken returns the next token; [io.EOF] behind the root.
func (s *Scanner) NextToken() (TokenKind, error) {
	for {
		if s.readCDATA() {
			return TextToken, nil
		}
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
			return StartToken, s.readStartTag(raw)
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
			return EndToken, nil
		case xml.CharData:
			if len(s.open) > 0 {
				s.Text = raw
				return TextToken, nil
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

// NextChild skips text and reads the start tag of the next child of the innermost
// element. found is false if the element has ended instead.
func (s *Scanner) NextChild() (found bool, err error) {
	for {
		kind, err := s.NextToken()
		if err != nil || kind != TextToken {
			return err == nil && kind == StartToken, err
		}
	}
}

// AtEnd reports whether nothing follows the root element, which has ended.
func (s *Scanner) AtEnd() bool {
	_, err := s.NextToken()
	return err == io.EOF //nolint:errorlint // NextToken returns it as it is
}

// readStartTag reads a start tag into s.tag.
func (s *Scanner) readStartTag(raw xml.StartElement) error {
	t := Tag{Prefix: raw.Name.Space, Local: raw.Name.Local}
	if at := s.from + int(s.d.InputOffset()); at >= 2 && s.doc[at-2] == '/' {
		t.Empty = true
	}
	s.open = append(s.open, element{t.Prefix, t.Local, len(s.bindings), t.Empty})
	if len(raw.Attr) > mostAttrs {
		return errXML
	}
	for _, a := range raw.Attr {
		switch {
		case a.Name.Space == "" && a.Name.Local == "xmlns":
			t.Bindings = append(t.Bindings, Binding{"", namespace(a.Value)})
		case a.Name.Space == "xmlns":
			t.Bindings = append(t.Bindings, Binding{a.Name.Local, namespace(a.Value)})
		default:
			t.Attrs = append(t.Attrs, Attribute{Prefix: a.Name.Space, Local: a.Name.Local, Value: a.Value})
		}
	}
	if !s.declare(&t) || !s.resolveNames(&t) {
		return errXML
	}
	s.Tag = t
	return nil
}

// declare brings the bindings of a tag into scope. It reports false if one of them is not
// valid, or if there are too many. The binding of the prefix xml, which is in scope
// everywhere, is left out.
func (s *Scanner) declare(t *Tag) bool {
	kept := t.Bindings[:0]
	for i, b := range t.Bindings {
		switch {
		case b.Prefix == "xml" && b.URI == XMLSpace:
			continue
		case !b.isValid(), slices.ContainsFunc(t.Bindings[:i], func(other Binding) bool { return other.Prefix == b.Prefix }):
			return false
		}
		kept = append(kept, b)
	}
	t.Bindings = kept
	s.bindings = append(s.bindings, kept...)
	return len(s.bindings) <= mostBindings
}

// resolveNames sets the namespaces of a tag and of its attributes. It reports false if a
// name is not valid, or if an attribute repeats.
func (s *Scanner) resolveNames(t *Tag) (ok bool) {
	if t.Space, ok = s.resolve(t.Prefix); !ok || !isLocalName(t.Local) || t.Prefix == "xmlns" {
		return false
	}
	for i := range t.Attrs {
		a := &t.Attrs[i]
		if a.Prefix != "" {
			if a.Space, ok = s.resolve(a.Prefix); !ok {
				return false
			}
		}
		if !isLocalName(a.Local) {
			return false
		}
		for _, other := range t.Attrs[:i] {
			if other.Local == a.Local && other.Space == a.Space {
				return false
			}
		}
	}
	return true
}

// resolve returns the namespace of a prefix. It reports false if the prefix is not
// declared.
func (s *Scanner) resolve(prefix string) (uri string, ok bool) {
	if prefix == "xml" {
		return XMLSpace, true
	}
	for i := len(s.bindings) - 1; i >= 0; i-- {
		if s.bindings[i].Prefix == prefix {
			if s.used != nil {
				s.used[i] = true
			}
			return s.bindings[i].URI, true
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
func (b Binding) isValid() bool {
	switch {
	case b.Prefix == "xml" || b.Prefix == "xmlns" || b.URI == XMLSpace || b.URI == xmlnsSpace:
		return false
	case b.Prefix == "":
		return true
	}
	return b.URI != "" && isLocalName(b.Prefix)
}

// isLocalName reports whether a name that [xml.Decoder] accepts has no prefix and
// is valid behind one.
func isLocalName(name string) bool {
	first, _ := utf8.DecodeRuneInString(name)
	return !strings.Contains(name, ":") && (first == '_' || unicode.In(first, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Lo))
}

// content appends the content of the element whose start tag was read last, and its
// end tag. The prefixes that it uses must be declared around it.
func (s *Scanner) content(b []byte) ([]byte, error) {
	for depth := len(s.open); ; {
		kind, err := s.NextToken()
		if err != nil {
			return nil, errXML
		}
		switch kind {
		case StartToken:
			b = AppendStart(b, &s.Tag, s.Tag.Bindings, s.Tag.Attrs)
		case TextToken:
			b = AppendText(b, s.Text)
		case EndToken:
			last := s.open[:len(s.open)+1][len(s.open)]
			if !last.empty {
				b = AppendEnd(b, last.prefix, last.local)
			}
			if len(s.open) < depth {
				return b, nil
			}
		}
	}
}

// CopyChild appends the element whose start tag was read last. The prefixes that it uses
// must be declared around it.
func (s *Scanner) CopyChild(b []byte) ([]byte, error) {
	return s.content(AppendStart(b, &s.Tag, s.Tag.Bindings, s.Tag.Attrs))
}

// CopiedText returns the content, as it is escaped, of an element that was appended with
// the start tag t.
func CopiedText(element []byte, t *Tag) string {
	start, end := bytes.IndexByte(element, '>'), bytes.LastIndex(element, []byte("</"))
	if t.Empty || end < 0 {
		return ""
	}
	return strings.TrimSpace(string(element[start+1 : end]))
}

// CopyElement appends the element whose start tag was read last, with the bindings
// that it uses, so that it is valid anywhere.
func (s *Scanner) CopyElement(b []byte) ([]byte, error) {
	t, around := s.Tag, len(s.bindings)-len(s.Tag.Bindings)
	before := s.used
	s.used = map[int]bool{}
	defer func() { s.used = before }()
	if t.Prefix != "" || t.Space != "" {
		_, _ = s.resolve(t.Prefix)
	} else {
		s.used[noBinding] = true
	}
	for _, a := range t.Attrs {
		if a.Prefix != "" {
			_, _ = s.resolve(a.Prefix)
		}
	}
	inner, err := s.content(nil)
	if err != nil {
		return nil, err
	}
	// A default namespace around the copy must not become its own.
	bindings, hasDefault := append([]Binding{}, t.Bindings...), false
	for _, own := range bindings {
		hasDefault = hasDefault || own.Prefix == ""
	}
	outer := s.bindings[:around] // as they were before the element's own, which are behind them
	for i := around - 1; i >= 0 && len(s.used) > 0; i-- {
		if s.used[i] {
			bindings = append(bindings, outer[i])
			hasDefault = hasDefault || outer[i].Prefix == ""
		}
	}
	if !hasDefault && s.used[noBinding] {
		bindings = append(bindings, Binding{})
	}
	b = AppendStart(b, &t, bindings, t.Attrs)
	return append(b, inner...), nil
}

// InnerContent returns the content of the element whose start tag was read last: its text, and
// the same as HTML if there are elements in it.
func (s *Scanner) InnerContent() (text, html string, err error) {
	var plain strings.Builder
	var markup []byte
	elements := false
	for depth := len(s.open); len(s.open) >= depth; {
		kind, err := s.NextToken()
		if err != nil {
			return "", "", errXML
		}
		switch kind {
		case StartToken:
			if !elements {
				elements, markup = true, AppendText(nil, plain.String())
			}
			markup = appendHTMLStart(markup, &s.Tag)
		case TextToken:
			if plain.Write(s.Text); elements {
				markup = AppendText(markup, s.Text)
			}
		case EndToken:
			if len(s.open) >= depth {
				markup = appendHTMLEnd(markup, s.open[:len(s.open)+1][len(s.open)].local)
			}
		}
	}
	return plain.String(), string(markup), nil
}

// Standalone returns an XML document as an element that is valid inside any other,
// and its name. It reports false if the document is not well-formed.
func Standalone(doc []byte) (el []byte, root xml.Name, ok bool) {
	s, ok := Open(doc)
	if !ok {
		return nil, xml.Name{}, false
	}
	root = xml.Name{Space: s.Tag.Space, Local: s.Tag.Local}
	el, err := s.CopyElement(make([]byte, 0, len(doc)+len(doc)/8))
	if err != nil || !s.AtEnd() {
		return nil, xml.Name{}, false
	}
	return el, root, true
}
