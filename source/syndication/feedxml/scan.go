package feedxml

import (
	"bytes"
	"strconv"
	"strings"
)

// A scanner finds the ends of XML tokens. Its functions scan b from i on. They return 0
// if b ends before the token does. The result does not depend on the text behind the
// token.
type scanner struct {
	maxAttributes int
	// undefined is the first entity that XML does not define and that was referred to
	// since this field was cleared.
	undefined string
	// in is the input whose unread bytes are scanned; nil if b is always the same text.
	in *input
	// gaps has the last part of the document without an end, by the end that was searched.
	gaps map[string]gap
	// looked is the number of bytes that were looked at.
	looked int64
	// interrupted is [Options.Interrupted], and stopped is its error.
	interrupted func() error
	stopped     error
}

// gap is a part of a document in which no occurrence of a text begins.
type gap struct{ from, to int64 }

// mostGaps is the maximum number of gaps in memory. Ends that a document may choose, such as
// end tags, have any number.
const mostGaps = 100

// find returns the index of the first end in b[i:]; -1 if there is none. It searches no byte
// twice for the same end, so markup that does not end takes no more time than other text. An end
// tag, as in "</name", is not found in a longer name. A nil scanner searches without memory.
func (s *scanner) find(b []byte, i int, end string) int {
	from, at := i, int64(i)
	var known gap
	// The offsets of bytes that replace others are not unique.
	remembers := s != nil && (s.in == nil || i >= s.in.replacedBytes)
	if remembers {
		if s.in != nil {
			at = s.in.offsetOf(i)
		}
		if known = s.gaps[end]; at < known.from || at > known.to {
			known = gap{at, at}
		}
		from += int(known.to - at)
	}
	n := -1
	for next := from; n < 0 && next < len(b); {
		k := bytes.Index(b[next:], []byte(end))
		if k < 0 {
			break
		}
		after := next + k + len(end)
		if !strings.HasPrefix(end, "</") || after == len(b) || !isName[b[after]] {
			n = next + k
		}
		next = after
	}
	if s == nil {
		return n
	}
	to := n
	if n < 0 {
		to = max(from, len(b)-len(end)+1)
	}
	s.charge(to - from + 1)
	if !remembers {
		return n
	}
	if len(s.gaps) == mostGaps {
		clear(s.gaps)
	}
	if s.gaps == nil {
		s.gaps = map[string]gap{}
	}
	known.to = at + int64(to-i)
	s.gaps[end] = known
	return n
}

// tired reports whether more bytes were looked at than reading a document takes, even if all of it
// has to be repaired.
func (s *scanner) tired() bool {
	const most, perByte = 8 << 20, 64
	return s.looked > most+perByte*s.in.offset
}

// charge counts bytes that were looked at. From time to time, it asks whether to stop.
func (s *scanner) charge(n int) {
	const often = 1 << 18
	if s == nil {
		return
	}
	before := s.looked
	s.looked += int64(n)
	if s.interrupted != nil && s.stopped == nil && before/often != s.looked/often {
		s.stopped = s.interrupted()
	}
}

// span is a part of the unread bytes.
type span struct{ start, end int }

// tag is a start tag or an empty-element tag.
type tag struct {
	nameEnd    int
	end        int
	attributes int
	empty      bool // it is an empty-element tag
}

// scanTag reads the tag that starts with the name at i+1.
func (s *scanner) scanTag(b []byte, i int) (t tag, err *syntaxError) {
	j := i + 1
	for j < len(b) && isName[b[j]] {
		j++
	}
	t.nameEnd = j
	for {
		blanks := j
		for j < len(b) && isSpace[b[j]] {
			j++
		}
		if j == len(b) {
			return t, nil
		}
		switch c := b[j]; {
		case c == '>':
			t.end = j + 1
			return t, nil
		case c == '/':
			if j+1 == len(b) {
				return t, nil
			}
			if b[j+1] != '>' {
				return t, syntaxErrorf(j, "a tag has a / that does not end it")
			}
			t.end, t.empty = j+2, true
			return t, nil
		case !isNameStart[c] || j == blanks:
			return t, syntaxErrorf(j, "a tag has an unexpected %q", Excerpt(b[j:j+1]))
		}
		if t.attributes++; t.attributes > s.maxAttributes {
			return t, &syntaxError{at: j, detail: "an element has too many attributes", limit: s.maxAttributes}
		}
		if j, err = s.scanAttribute(b, j); j == 0 || err != nil {
			return t, err
		}
	}
}

// scanAttribute reads an attribute whose name starts at j.
func (s *scanner) scanAttribute(b []byte, j int) (end int, err *syntaxError) {
	name := j
	for j < len(b) && isName[b[j]] {
		j++
	}
	nameEnd := j
	for j < len(b) && isSpace[b[j]] {
		j++
	}
	if j == len(b) {
		return 0, nil
	}
	if b[j] != '=' {
		return 0, syntaxErrorf(nameEnd, "the attribute %s has no value", excerptName(b[name:nameEnd]))
	}
	for j++; j < len(b) && isSpace[b[j]]; {
		j++
	}
	if j == len(b) {
		return 0, nil
	}
	quote := b[j]
	if quote != '"' && quote != '\'' {
		return 0, syntaxErrorf(j, "the attribute %s has no quotes", excerptName(b[name:nameEnd]))
	}
	j++
	n := bytes.IndexByte(b[j:], quote)
	if n < 0 {
		return 0, nil
	}
	value := b[j : j+n]
	if k := bytes.IndexByte(value, '<'); k >= 0 {
		return 0, syntaxErrorf(j+k, "the attribute %s has a < in its value", excerptName(b[name:nameEnd]))
	}
	if err := s.scanReferences(b, j, j+n); err != nil {
		return 0, err
	}
	return j + n + 1, nil
}

// scanEndTag reads the end tag of an element, which begins at i with "</".
func scanEndTag[T string | []byte](b []byte, i int, name T) (end int, err *syntaxError) {
	j := i + 2
	if n := j + len(name); n < len(b) && b[n] == '>' && string(b[j:n]) == string(name) {
		return n + 1, nil
	}
	for j < len(b) && isName[b[j]] {
		j++
	}
	nameEnd := j
	for j < len(b) && isSpace[b[j]] {
		j++
	}
	switch {
	case j == len(b):
		return 0, nil
	case string(b[i+2:nameEnd]) != string(name):
		return 0, syntaxErrorf(i, "the element %s ends with </%s", excerptName(name), excerptName(b[i+2:nameEnd]))
	case b[j] != '>':
		return 0, syntaxErrorf(j, "the end tag of %s has more than its name", excerptName(name))
	}
	return j + 1, nil
}

var (
	openComment = []byte("<!--")
	openCDATA   = []byte("<![CDATA[")
	openDoctype = []byte("<!DOCTYPE")
)

// The ends of markup.
const (
	dashes     = "--"
	endComment = "-->"
	endCDATA   = "]]>"
	endPI      = "?>"
)

// scanMarkup reads the comment, CDATA section or processing instruction that begins at
// i with "<!" or "<?". No other markup of this form is allowed in an element.
func (s *scanner) scanMarkup(b []byte, i int) (end int, err *syntaxError) {
	rest := b[i:]
	switch {
	case len(rest) < 2:
		return 0, nil
	case rest[1] == '?':
		return s.scanInstruction(b, i)
	case bytes.HasPrefix(rest, openComment):
		n := s.find(b, i+len(openComment), dashes)
		if n < 0 || n+2 >= len(b) {
			return 0, nil
		}
		if b[n+2] != '>' {
			return 0, syntaxErrorf(n, "a comment has -- in it")
		}
		return n + len(endComment), nil
	case bytes.HasPrefix(rest, openCDATA):
		n := s.find(b, i+len(openCDATA), endCDATA)
		if n < 0 {
			return 0, nil
		}
		return n + len(endCDATA), nil
	case bytes.HasPrefix(openComment, rest), bytes.HasPrefix(openCDATA, rest):
		return 0, nil
	}
	return 0, syntaxErrorf(i, "there is a declaration where none may be")
}

func (s *scanner) scanInstruction(b []byte, i int) (end int, err *syntaxError) {
	j := i + 2
	if j == len(b) {
		return 0, nil
	}
	if !isNameStart[b[j]] {
		return 0, syntaxErrorf(i, "a processing instruction has no name")
	}
	n := s.find(b, j, endPI)
	if n < 0 {
		return 0, nil
	}
	return n + len(endPI), nil
}

// scanDoctype reads a document type declaration. External entities are never fetched.
func (s *scanner) scanDoctype(b []byte, i int) (end int, err *syntaxError) {
	subset := false
	for j := i + len(openDoctype); j < len(b); {
		switch c := b[j]; {
		case c == '"' || c == '\'':
			n := bytes.IndexByte(b[j+1:], c)
			if n < 0 {
				return 0, nil
			}
			j += n + 2
		case subset && c == '<' && j+1 == len(b):
			return 0, nil
		case subset && c == '<' && (b[j+1] == '?' || bytes.HasPrefix(b[j:], openComment) || bytes.HasPrefix(openComment, b[j:])):
			n, err := s.scanMarkup(b, j)
			if n == 0 || err != nil {
				return 0, err
			}
			j = n
		case c == '[' && !subset:
			subset = true
			j++
		case c == ']':
			subset = false
			j++
		case c == '>' && !subset:
			return j + 1, nil
		default:
			j++
		}
	}
	return 0, nil
}

// tooDeep is the detail of an error that a limit causes.
const tooDeep = "elements are nested too deeply"

// longestReference is the maximum length of the name in a reference, in bytes.
const longestReference = 64

// scanReferences checks the references in b[i:end], which is text. It records the first
// reference to an entity that XML does not define; that is no error.
func (s *scanner) scanReferences(b []byte, i, end int) *syntaxError {
	for i < end {
		if b[i] != '&' {
			n := bytes.IndexByte(b[i:end], '&')
			if n < 0 {
				return nil
			}
			i += n
		}
		rest := b[i+1 : min(end, i+2+longestReference)]
		// Check for escaped markup first: it is the most common, and the next piece of
		// it is usually close.
		if len(rest) >= 3 && rest[2] == ';' && rest[1] == 't' && (rest[0] == 'l' || rest[0] == 'g') {
			i += len("&lt;")
			for near := min(i+4, end); i < near && b[i] != '&'; i++ {
			}
			continue
		}
		n := bytes.IndexByte(rest, ';')
		if n <= 0 || !isNameStart[rest[0]] && rest[0] != '#' {
			return syntaxErrorf(i, "there is a & that is no reference")
		}
		switch name := string(rest[:n]); {
		case name[0] == '#':
			if _, ok := numeric(name); !ok {
				return syntaxErrorf(i, "&%s; is not a character that XML has", Excerpt(name))
			}
		case predefined(name) == 0:
			for _, c := range rest[:n] {
				if !isName[c] {
					return syntaxErrorf(i, "there is a & that is no reference")
				}
			}
			if s.undefined == "" {
				s.undefined = name
			}
		}
		i += n + 2
	}
	return nil
}

// predefined returns the character of an entity that XML defines; 0 for others.
func predefined(name string) byte {
	switch name {
	case "lt":
		return '<'
	case "gt":
		return '>'
	case "amp":
		return '&'
	case "apos":
		return '\''
	case "quot":
		return '"'
	}
	return 0
}

// numeric parses a numeric reference, as in "#38" and "#x26". It reports false if it is
// not a character that XML allows.
func numeric(name string) (rune, bool) {
	base, digits := 10, name[1:]
	if digits != "" && digits[0] == 'x' {
		base, digits = 16, digits[1:]
	}
	c, err := strconv.ParseUint(digits, base, 32)
	return rune(c), err == nil && c <= 0x10ffff && isChar(rune(c))
}
