package page

import (
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// fieldsAtOnce is the number of fields that are allocated at once. With the 8 bytes that the
// allocator adds they take 4 KiB, and twice as many take 8 KiB; 128 would take 4864 bytes.
const fieldsAtOnce = 127

// fieldSize is the memory of a field, without its bytes.
const fieldSize = int(unsafe.Sizeof(feed.Field{}))

// newHeader returns an empty header with room for n fields, cut from an array
// for several parts, so that a part does not cost an allocation of its own. A header of many short
// fields takes several times the memory of its bytes, so that is reserved, too.
func (r *Reader) newHeader(n int) (feed.Header, error) {
	fields := &r.fields
	if c := r.pooled; c != nil {
		// The chunk has the fields of its parts. Those of earlier parts stay where they are when
		// the array becomes too small.
		fields = &c.fields
		if !c.counted {
			if err := r.reserveBytes(cap(c.fields)*fieldSize, false); err != nil {
				return nil, err
			}
			c.counted = true
		}
	}
	if cap(*fields)-len(*fields) < n {
		size := max(fieldsAtOnce, n)
		if r.pooled != nil {
			size = max(size, 2*cap(*fields))
		}
		if err := r.reserveBytes(size*fieldSize, false); err != nil {
			return nil, err
		}
		*fields = make([]feed.Field, 0, size)
	}
	from := len(*fields)
	*fields = (*fields)[:from+n]
	return (*fields)[from : from : from+n], nil
}

// parseHeader parses the header of the part at the start of the unread bytes. block has
// its fields, which end at p.fieldEnds.
func (r *Reader) parseHeader(block []byte, extent headerExtent) (feed.Header, error) {
	// The bytes of a chunk are never written again, so they can be used as a string
	// without a copy, which would take a tenth of the time of a part.
	text := unsafe.String(unsafe.SliceData(block), len(block))
	if !utf8.ValidString(text) {
		return nil, r.breachAt(kindUndecodablePart, 0, "a part's header is not UTF-8")
	}
	if strings.Count(text, "\r") > extent.returns || strings.IndexByte(text, 0) >= 0 {
		return nil, r.breachAt(kindBadPartHeader, 0, "a part's header has a carriage return within a line, or a zero byte")
	}
	header, err := r.newHeader(len(r.fieldEnds))
	if err != nil {
		return nil, err
	}
	start := 0
	for _, end := range r.fieldEnds {
		field := strings.TrimSuffix(text[start:end-1], "\r")
		if extent.folded {
			field = unfoldField(field)
		}
		n := r.nameLength(field, len(header))
		value := trimBlanks(field[n:])
		if n == 0 || value == "" || value[0] != ':' {
			return nil, r.breachAt(kindBadPartHeader, start, "a header line is not a name, a colon and a value: %q", safetext.Excerpt(field))
		}
		header = append(header, feed.Field{Name: field[:n], Value: trimBlanks(value[1:])})
		start = end
	}
	r.last = header
	return header, nil
}

// nameLength returns how many bytes of a part's i-th field are its name. The
// parts of a page mostly have the same names in the same order, so the name in
// the part before is tried first.
func (r *Reader) nameLength(field string, i int) int {
	if i < len(r.last) {
		if name := r.last[i].Name; strings.HasPrefix(field, name) && len(field) > len(name) && field[len(name)] == ':' {
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
