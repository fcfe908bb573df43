package feedxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
)

// checkXML has encoding/xml read a piece that is in the given scope, and checks three rules
// that encoding/xml does not: attributes do not repeat, prefixes are declared, and no name
// begins or ends with a colon. The tokenizer has already checked that tags match and that there
// is one root.
func checkXML(piece []byte, outer *scope) *syntaxError {
	d := xml.NewDecoder(bytes.NewReader(piece))
	c := checker{outer: outer, uris: map[string][]string{}}
	for {
		at := int(d.InputOffset())
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			detail := err.Error()
			if wrong, ok := errors.AsType[*xml.SyntaxError](err); ok {
				detail = wrong.Msg
			}
			return &syntaxError{int(d.InputOffset()), detail}
		}
		detail := ""
		switch t := token.(type) {
		case xml.StartElement:
			detail = c.startElement(t)
		case xml.EndElement:
			c.endElement()
		}
		if detail != "" {
			return &syntaxError{at, detail}
		}
	}
}

// checkDoctype checks a document type declaration.
func checkDoctype(piece []byte) *syntaxError {
	d := xml.NewDecoder(bytes.NewReader(piece))
	if _, err := d.RawToken(); err != nil || d.InputOffset() != int64(len(piece)) {
		return syntaxErrorf(0, "the document type declaration is malformed")
	}
	return nil
}

// checker tracks the namespaces in scope.
type checker struct {
	outer    *scope
	uris     map[string][]string // by prefix, inner ones last, without those of outer
	declared [][]string          // prefixes, by element
}

// startElement returns a description of the error in a tag; "" if it has none.
func (c *checker) startElement(t xml.StartElement) (detail string) {
	var prefixes []string
	if !isQualified(t.Name) {
		return "the name " + Excerpt(t.Name.Local) + " begins or ends with a colon"
	}
	for _, a := range t.Attr {
		if !isQualified(a.Name) {
			return "the name " + Excerpt(a.Name.Local) + " begins or ends with a colon"
		}
		prefix, ok := declaredPrefix(a.Name)
		if !ok {
			continue
		}
		uri := a.Value
		switch {
		case uri == "" && prefix != "":
			return "the prefix " + Excerpt(prefix) + " is declared without a namespace"
		case prefix == "xmlns" || (prefix == "xml") != (uri == xmlURI):
			return "a reserved prefix (xml or xmlns) is declared again"
		}
		c.uris[prefix] = append(c.uris[prefix], uri)
		prefixes = append(prefixes, prefix)
	}
	c.declared = append(c.declared, prefixes)
	if _, ok := c.lookupPrefix(t.Name.Space); !ok {
		return "the prefix " + Excerpt(t.Name.Space) + " is not declared"
	}
	seen := make(map[xml.Name]bool, len(t.Attr))
	for _, a := range t.Attr {
		name := a.Name
		if prefix, ok := declaredPrefix(name); ok {
			name = xml.Name{Space: "xmlns", Local: prefix}
		} else if name.Space != "" {
			uri, ok := c.lookupPrefix(name.Space)
			if !ok {
				return "the prefix " + Excerpt(name.Space) + " is not declared"
			}
			name.Space = "uri " + uri
		}
		if seen[name] {
			return "the attribute " + Excerpt(a.Name.Local) + " repeats"
		}
		seen[name] = true
	}
	return ""
}

func (c *checker) endElement() {
	last := len(c.declared) - 1
	if last < 0 {
		return // the end tag of a container
	}
	for _, prefix := range c.declared[last] {
		c.uris[prefix] = c.uris[prefix][:len(c.uris[prefix])-1]
	}
	c.declared = c.declared[:last]
}

func (c *checker) lookupPrefix(prefix string) (uri string, declared bool) {
	if inner := c.uris[prefix]; len(inner) > 0 {
		return inner[len(inner)-1], true
	}
	if prefix == "xml" {
		return xmlURI, true
	}
	b, declared := c.outer.lookupPrefix([]byte(prefix))
	return b.uri, declared
}

// isQualified reports whether a colon in a name has a prefix before it and a name behind it.
// encoding/xml does not split other names.
func isQualified(name xml.Name) bool { return !strings.Contains(name.Local, ":") }

// declaredPrefix reports whether an attribute declares a namespace, and for which prefix.
func declaredPrefix(name xml.Name) (prefix string, ok bool) {
	switch {
	case name.Space == "xmlns":
		return name.Local, true
	case name.Space == "" && name.Local == "xmlns":
		return "", true
	}
	return "", false
}
