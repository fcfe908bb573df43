package xmlcopy

import (
	"strings"
	"unicode/utf8"
)

// AppendStart appends a start tag with the given bindings and attributes.
func AppendStart(b []byte, t *Tag, bindings []Binding, attrs []Attribute) []byte {
	b = AppendName(append(b, '<'), t.Prefix, t.Local)
	for _, n := range bindings {
		if n.Prefix == "" {
			b = append(b, " xmlns=\""...)
		} else {
			b = append(append(append(b, " xmlns:"...), n.Prefix...), `="`...)
		}
		b = append(AppendValue(b, n.URI), '"')
	}
	for _, a := range attrs {
		b = append(AppendName(append(b, ' '), a.Prefix, a.Local), `="`...)
		b = append(AppendValue(b, a.Value), '"')
	}
	if t.Empty {
		b = append(b, '/')
	}
	return append(b, '>')
}

func AppendEnd(b []byte, prefix, local string) []byte {
	return append(AppendName(append(b, "</"...), prefix, local), '>')
}

func AppendName(b []byte, prefix, local string) []byte {
	if prefix != "" {
		b = append(append(b, prefix...), ':')
	}
	return append(b, local...)
}

// voids are the elements of HTML that have no end tag.
var voids = map[string]bool{
	"area": true, "base": true, "br": true, "col": true, "embed": true, "hr": true, "img": true, "input": true,
	"link": true, "meta": true, "param": true, "source": true, "track": true, "wbr": true,
}

// xlinkSpace is the namespace of references in SVG and MathML, whose attributes HTML has with the prefix xlink.
const xlinkSpace = "http://www.w3.org/1999/xlink"

func appendHTMLStart(b []byte, t *Tag) []byte {
	b = append(append(b, '<'), t.Local...)
	for _, a := range t.Attrs {
		link := a.Space == xlinkSpace
		if a.Prefix == "" || link || a.Space == XMLSpace && a.Local == "lang" {
			if b = append(b, ' '); link {
				b = append(b, "xlink:"...)
			}
			b = append(append(b, a.Local...), `="`...)
			b = append(AppendValue(b, a.Value), '"')
		}
	}
	if voids[t.Local] {
		b = append(b, " /"...)
	}
	return append(b, '>')
}

func appendHTMLEnd(b []byte, local string) []byte {
	if voids[local] {
		return b
	}
	return AppendEnd(b, "", local)
}

// AppendText appends text. What XML cannot carry becomes U+FFFD.
func AppendText[T string | []byte](b []byte, text T) []byte {
	return appendEscaped(b, string(text), false)
}

// AppendValue appends the value of an attribute between double quotes. Line ends and
// tabs become blanks, as parsers make them.
func AppendValue(b []byte, text string) []byte { return appendEscaped(b, text, true) }

func appendEscaped(b []byte, text string, value bool) []byte {
	for _, r := range text {
		switch {
		case r == '&':
			b = append(b, "&amp;"...)
		case r == '<':
			b = append(b, "&lt;"...)
		case r == '>':
			b = append(b, "&gt;"...)
		case r == '"' && value:
			b = append(b, "&quot;"...)
		case value && (r == '\n' || r == '\t' || r == '\r'):
			b = append(b, ' ')
		case r == '\r':
			b = append(b, "&#xD;"...)
		case !isXMLChar(r):
			b = utf8.AppendRune(b, utf8.RuneError)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// isXMLChar reports whether XML can carry a character (XML 1.0, section 2.2).
func isXMLChar(r rune) bool {
	return r >= ' ' && r != 0xFFFE && r != 0xFFFF || r == '\t' || r == '\n' || r == '\r'
}

// Escape returns text for an element or an attribute.
func Escape(s string) string {
	return strings.ReplaceAll(string(AppendText(nil, s)), `"`, "&quot;")
}

// IsText reports whether XML can carry b as text.
func IsText(b []byte) bool {
	for i := 0; i < len(b); {
		r, n := rune(b[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(b[i:])
		}
		if !isXMLChar(r) || r == utf8.RuneError && n == 1 {
			return false
		}
		i += n
	}
	return true
}
