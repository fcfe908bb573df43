package feedxml

import (
	"bytes"
	"encoding/xml"
	"strings"
	"unicode/utf8"
)

// plainText returns the text in the content of an element and of its descendants,
// without comments and surrounding white space. CDATA sections and references are
// decoded. Undefined entities are decoded as in HTML if HTML has them, and otherwise
// stay as they are.
func plainText(b []byte) string {
	if isPlain(b) {
		return string(trimSpace(b))
	}
	var s []byte
	for len(b) > 0 {
		n := bytes.IndexByte(b, '<')
		if n < 0 {
			n = len(b)
		}
		s = appendText(s, b[:n])
		if b = b[n:]; len(b) == 0 {
			break
		}
		end := skipToken(b)
		if bytes.HasPrefix(b, openCDATA) {
			s = appendLines(s, b[len(openCDATA):end-len(endCDATA)])
		}
		b = b[end:]
	}
	return string(trimSpace(s))
}

// isPlain reports whether the text of b is b.
func isPlain(b []byte) bool {
	return bytes.IndexByte(b, '<') < 0 && bytes.IndexByte(b, '&') < 0 && bytes.IndexByte(b, '\r') < 0
}

// skipToken returns the length of the tag or other markup that b starts with. b has to
// be well-formed.
func skipToken(b []byte) int {
	switch b[1] {
	case '/':
		return bytes.IndexByte(b, '>') + 1
	case '!', '?':
		n, _ := (*scanner)(nil).scanMarkup(b, 0)
		return n
	}
	j := 1
	for b[j] != '>' {
		if b[j] == '"' || b[j] == '\'' {
			j += bytes.IndexByte(b[j+1:], b[j]) + 1
		}
		j++
	}
	return j + 1
}

// attrValue returns the decoded value of an attribute. White space becomes blanks.
func attrValue(b []byte) string {
	plain := bytes.IndexByte(b, '&') < 0
	for i := 0; plain && i < len(b); i++ {
		plain = b[i] >= ' '
	}
	if plain {
		return string(b)
	}
	// References to white space are kept.
	blank := bytes.ReplaceAll(b, []byte("\r\n"), []byte(" "))
	for i := range blank {
		if isSpace[blank[i]] {
			blank[i] = ' '
		}
	}
	return string(appendText(nil, blank))
}

// appendText appends b with its references decoded.
func appendText(s, b []byte) []byte {
	for {
		n := bytes.IndexByte(b, '&')
		if n < 0 {
			return appendLines(s, b)
		}
		s = appendLines(s, b[:n])
		b = b[n:]
		end := bytes.IndexByte(b, ';')
		name := string(b[1:end])
		switch c := predefined(name); {
		case c != 0:
			s = append(s, c)
		case name[0] == '#':
			char, _ := numeric(name)
			s = utf8.AppendRune(s, char)
		case xml.HTMLEntity[name] != "":
			s = append(s, xml.HTMLEntity[name]...)
		default:
			s = append(s, b[:end+1]...)
		}
		b = b[end+1:]
	}
}

// appendLines appends b with each line end as a line feed, as XML requires.
func appendLines(s, b []byte) []byte {
	for {
		n := bytes.IndexByte(b, '\r')
		if n < 0 {
			return append(s, b...)
		}
		s = append(append(s, b[:n]...), '\n')
		if b = b[n+1:]; len(b) > 0 && b[0] == '\n' {
			b = b[1:]
		}
	}
}

var attrEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;", "\t", "&#9;", "\n", "&#10;", "\r", "&#13;")

// appendAttr appends an attribute with a blank before it.
func appendAttr(s []byte, name, value string) []byte {
	s = append(append(append(s, ' '), name...), `="`...)
	return append(append(s, attrEscaper.Replace(value)...), '"')
}

func keepFirst(at *string, content []byte) {
	if *at == "" {
		*at = plainText(content)
	}
}

// keepFirstClipped is keepFirst for the metadata of a document. It copies the text,
// because metadata stays in memory longer than an entry.
func keepFirstClipped(at *string, content []byte) {
	if *at == "" {
		*at = clipText(plainText(content))
	}
}
