package page

import (
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/feedbridge/feedbridge/feed"
)

// fieldsAtOnce is the number of fields that are allocated at once.
const fieldsAtOnce = 128

// newHeader returns an empty header with room for n fields, cut from an array
// for several parts, so that a part does not cost an allocation of its own.
func (p *Reader) newHeader(n int) feed.Header {
	if cap(p.fields)-len(p.fields) < n {
		p.fields = make([]feed.Field, 0, max(fieldsAtOnce, n))
	}
	from := len(p.fields)
	p.fields = p.fields[:from+n]
	return p.fields[from : from : from+n]
}

// parseHeader parses the header of the part at the start of the unread bytes. block has
// its fields, which end at p.fieldEnds.
func (p *Reader) parseHeader(block []byte, extent headerExtent) (feed.Header, error) {
	// The bytes of a chunk are never written again, so they can be used as a string
	// without a copy, which would take a tenth of the time of a part.
	text := unsafe.String(unsafe.SliceData(block), len(block))
	if !utf8.ValidString(text) {
		return nil, p.breachAt(UndecodablePart, 0, "a part's header is not UTF-8")
	}
	if strings.Count(text, "\r") > extent.returns || strings.IndexByte(text, 0) >= 0 {
		return nil, p.breachAt(BadPartHeader, 0, "a part's header has a carriage return within a line, or a zero byte")
	}
	header := p.newHeader(len(p.fieldEnds))
	start := 0
	for _, end := range p.fieldEnds {
		field := strings.TrimSuffix(text[start:end-1], "\r")
		if extent.folded {
			field = unfoldField(field)
		}
		n := p.nameLength(field, len(header))
		value := trimBlanks(field[n:])
		if n == 0 || value == "" || value[0] != ':' {
			return nil, p.breachAt(BadPartHeader, start, "a header line is not a name, a colon and a value: %q", excerptOf(field))
		}
		header = append(header, feed.Field{Name: field[:n], Value: trimBlanks(value[1:])})
		start = end
	}
	p.last = header
	return header, nil
}

// nameLength returns how many bytes of a part's i-th field are its name. The
// parts of a page mostly have the same names in the same order, so the name in
// the part before is tried first.
func (p *Reader) nameLength(field string, i int) int {
	if i < len(p.last) {
		if name := p.last[i].Name; strings.HasPrefix(field, name) && len(field) > len(name) && field[len(name)] == ':' {
			return len(name)
		}
	}
	n := 0
	for n < len(field) && isTokenByte[field[n]] {
		n++
	}
	return n
}

// unfoldField joins the lines of a field as RFC 5322 does: it removes the line ends and keeps
// the blanks at the starts of lines.
func unfoldField(field string) string {
	return strings.ReplaceAll(strings.ReplaceAll(field, "\r\n", ""), "\n", "")
}
