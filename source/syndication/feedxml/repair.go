package feedxml

import (
	"bytes"
	"slices"
	"strings"
)

// A repairer makes well-formed XML of one element of a document that is not. Like the
// feed readers that people use, it assumes the most likely mistakes: an ampersand that
// was not escaped, an end tag that was forgotten, a quote that is missing. The
// [scanner] accepts its output, which does not depend on the text behind the element.
type repairer struct {
	scan *scanner
	b    []byte // begins with the start tag of the element
	// whole reports that nothing follows b.
	whole bool
	// outer has the names of the elements around this one, outermost first. An end tag
	// of one of them ends this element too.
	outer []string
	// entry reports that the element is an entry or an item, and cutAtOnce that it ends where
	// another one begins in it, even if its end tag follows.
	entry, cutAtOnce bool
	maxDepth         int

	// out is the repaired part of the element, and stack has the elements that are open
	// in it.
	out   []byte
	stack []openTag
	open  map[string]int // the number of elements in stack by their name in lower case
	// next is the first entry that begins within it, and cut reports that the element
	// ends there.
	next *nextEntry
	cut  bool
	// ended reports that the element is known to end at next.
	ended bool
	// faults is the number of repaired faults, and first has the first of them.
	faults  int
	first   []fault
	scans   int // see mostScans
	reached int // the index behind the last byte that was looked at
}

// openTag is an element that has begun.
type openTag struct {
	name string
	// closed is 1 if an end tag follows before the entry ends, -1 if none does, and 0
	// if that is not known yet.
	closed int8
}

// nextEntry is the state of the repair at the first start tag of an entry within
// another entry. If the end tag of the outer one turns out to be missing, that one ends
// there.
type nextEntry struct {
	at, out int
	open    []string
	// faults and first are the counts of the repairer before it.
	faults, first int
}

// mostScans is the maximum number of searches for end tags in one element. It bounds
// the work for an element that consists of start tags only.
const mostScans = 50

// addFault counts a fault, and describes it if it is one of the first. Each %s of detail
// quotes one of the names.
func (r *repairer) addFault(at int, detail string, names ...string) {
	r.faults++
	if len(r.first) < mostFaults {
		r.first = append(r.first, fault{at, quoteNames(detail, names)})
	}
}

// repairElement repairs the element that b starts with, and returns its end; 0 if b
// ends before it.
func (r *repairer) repairElement() (end int) {
	for i := 0; r.scan.stopped == nil; {
		n := bytes.IndexByte(r.b[i:], '<')
		if n < 0 || i+n+1 == len(r.b) {
			r.scan.charge(len(r.b) - i)
			return r.repairAtEnd()
		}
		r.scan.charge(i + n + 1 - r.reached)
		r.reached = i + n + 1
		r.repairText(i, i+n)
		i += n
		at := i
		switch c := r.b[i+1]; {
		case isNameStart[c]:
			i = r.repairStartTag(i)
		case c == '/':
			var ended bool
			if i, ended = r.repairEndTag(i); ended {
				return r.finishElement(at)
			}
		case c == '!' || c == '?':
			i = r.repairMarkup(i)
		default:
			r.addFault(i, "there is a < that begins no tag")
			r.out = append(r.out, "&lt;"...)
			i++
		}
		if i == 0 {
			return r.repairAtEnd()
		}
		switch {
		case len(r.stack) == 0:
			return i
		case r.ended:
			return r.finishElement(at)
		}
	}
	return 0
}

// repairAtEnd is called if b ends before the element does.
func (r *repairer) repairAtEnd() int {
	if r.whole && r.next != nil {
		r.reached = len(r.b)
		return r.finishElement(len(r.b))
	}
	return 0
}

// finishElement ends an element whose end tag is missing: at the next entry in it, or
// else at at.
func (r *repairer) finishElement(at int) (end int) {
	const detail = "the end tag of %s is missing"
	name := r.stack[0].name
	if r.next != nil {
		// The rest is repaired when it is read.
		r.faults, r.first = r.next.faults, r.first[:r.next.first]
		r.addFault(r.next.at, detail, name)
		r.cut = true
		r.out = r.out[:r.next.out]
		for _, name := range slices.Backward(r.next.open) {
			r.closeTag(name)
		}
		return r.next.at
	}
	r.addFault(at, detail, name)
	r.closeTo(0)
	return at
}

func (r *repairer) closeTag(name string) {
	r.out = append(append(append(r.out, "</"...), name...), '>')
}

// closeTo ends the innermost elements until only depth of them are open.
func (r *repairer) closeTo(depth int) {
	for len(r.stack) > depth {
		name := r.stack[len(r.stack)-1].name
		r.closeTag(name)
		r.open[strings.ToLower(name)]--
		r.stack = r.stack[:len(r.stack)-1]
	}
}

// repairText copies b[i:end], which is text between tags.
func (r *repairer) repairText(i, end int) {
	for i < end {
		n := bytes.Index(r.b[i:end], []byte(endCDATA))
		if n < 0 {
			break
		}
		r.escapeReferences(i, i+n)
		r.out = append(r.out, "]]&gt;"...)
		i += n + len(endCDATA)
	}
	r.escapeReferences(i, end)
}

// escapeReferences copies b[i:end] and escapes each & that begins no reference.
func (r *repairer) escapeReferences(i, end int) {
	for i < end {
		n := bytes.IndexByte(r.b[i:end], '&')
		if n < 0 {
			break
		}
		r.out = append(r.out, r.b[i:i+n]...)
		i += n
		length, ok := referenceLength(r.b[i:end])
		switch {
		case ok:
			r.out = append(r.out, r.b[i:i+length]...)
		case length > 0:
			r.addFault(i, "there is a reference to a character that XML does not have")
		default:
			r.addFault(i, "there is a & that is no reference")
			r.out = append(r.out, "&amp;"...)
			length = 1
		}
		i += length
	}
	r.out = append(r.out, r.b[i:end]...)
}

// referenceLength returns the length of the reference that b starts with; 0 if it
// starts with none. ok is false if the reference is to a character that XML does not
// allow.
func referenceLength(b []byte) (length int, ok bool) {
	rest := b[1:min(len(b), longestReference+2)]
	n := bytes.IndexByte(rest, ';')
	switch {
	case n <= 0:
		return 0, false
	case rest[0] == '#':
		_, ok := numeric(string(rest[:n]))
		for i, c := range rest[1:n] {
			if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') && (i > 0 || c != 'x') {
				return 0, false
			}
		}
		return n + 2, ok
	case !isNameStart[rest[0]]:
		return 0, false
	}
	for _, c := range rest[:n] {
		if !isName[c] {
			return 0, false
		}
	}
	return n + 2, true
}

// repairEndTag repairs the end tag at b[i:], and returns its end; 0 if b ends before
// it. ended reports that it belongs to an element around this one.
func (r *repairer) repairEndTag(i int) (end int, ended bool) {
	name, end, faulty := r.scanFaultyEndTag(i)
	if end == 0 {
		return 0, false
	}
	k := r.findOpen(name, false)
	if k < 0 && slices.Contains(r.outer, name) {
		return end, true
	}
	if k < 0 {
		k = r.findOpen(name, true)
		faulty = true
	}
	switch {
	case k < 0:
		r.addFault(i, "there is an end tag </%s without a start tag", name)
		return end, false
	case k < len(r.stack)-1:
		r.addFault(i, "the element %s ends with </%s", r.stack[len(r.stack)-1].name, name)
	case faulty:
		r.addFault(i, "the end tag of %s is not well-formed", name)
	}
	r.closeTo(k)
	return end, false
}

// scanFaultyEndTag returns the name in the end tag at b[i:], and the end of the tag; 0 if b ends
// before it. faulty reports that something other than blanks follows the name, or that the >
// is missing.
func (r *repairer) scanFaultyEndTag(i int) (name string, end int, faulty bool) {
	j := i + 2
	for j < len(r.b) && isName[r.b[j]] {
		j++
	}
	end = j
	for end < len(r.b) && r.b[end] != '>' && r.b[end] != '<' {
		end++
	}
	if end == len(r.b) && !r.whole {
		return "", 0, false
	}
	name, faulty = string(r.b[i+2:j]), !allBlank(r.b[j:end])
	if end == len(r.b) || r.b[end] == '<' {
		return name, end, true
	}
	return name, end + 1, faulty
}

// findOpen returns the index of the innermost open element of that name, in lower or upper case if
// fold is set; -1 if there is none.
func (r *repairer) findOpen(name string, fold bool) int {
	if r.open[strings.ToLower(name)] == 0 {
		return -1
	}
	k := len(r.stack) - 1
	for k >= 0 && r.stack[k].name != name && (!fold || !strings.EqualFold(r.stack[k].name, name)) {
		k--
	}
	return k
}

// repairMarkup repairs a comment, a CDATA section, a processing instruction or a
// declaration at b[i:], and returns its end; 0 if b ends before it.
func (r *repairer) repairMarkup(i int) (end int) {
	rest := r.b[i:]
	switch {
	case !r.whole && len(rest) < len(openCDATA):
		return 0
	case bytes.HasPrefix(rest, openComment):
		n := r.scan.find(r.b, i+len(openComment), endComment)
		if n < 0 {
			return r.repairUnended(i, "a comment")
		}
		end = n + len(endComment)
		if text := r.b[i+len(openComment) : n]; bytes.Contains(text, []byte(dashes)) || bytes.HasSuffix(text, []byte("-")) {
			r.addFault(i, "a comment has -- in it")
			return end
		}
		r.out = append(r.out, r.b[i:end]...)
		return end
	case bytes.HasPrefix(rest, openCDATA):
		n := r.scan.find(r.b, i, endCDATA)
		if n < 0 {
			if !r.whole {
				return 0
			}
			r.addFault(i, "a CDATA section does not end")
			return i + len(openCDATA)
		}
		end = n + len(endCDATA)
		r.out = append(r.out, r.b[i:end]...)
		return end
	case rest[1] == '?':
		n := r.scan.find(r.b, i, endPI)
		if n < 0 {
			return r.repairUnended(i, "a processing instruction")
		}
		end = n + len(endPI)
		if len(rest) < 3 || !isNameStart[rest[2]] || bytes.HasPrefix(rest, []byte("<?xml")) {
			r.addFault(i, "there is a processing instruction where none may be")
			return end
		}
		r.out = append(r.out, r.b[i:end]...)
		return end
	}
	n := r.scan.find(r.b, i, ">")
	if n < 0 {
		return r.repairUnended(i, "a declaration")
	}
	r.addFault(i, "there is a declaration where none may be")
	return n + 1
}

// repairUnended is called if the markup at b[i:] does not end in b.
func (r *repairer) repairUnended(i int, what string) (end int) {
	if !r.whole {
		return 0
	}
	r.addFault(i, what+" does not end")
	r.out = append(r.out, "&lt;"...)
	return i + 1
}
