package feedxml

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// A repairer makes well-formed XML of one element of a document that is not. Like the
// feed readers that people use, it assumes the most likely mistakes: an ampersand that
// was not escaped, an end tag that was forgotten, a quote that is missing. The
// [scanner] accepts its output, which does not depend on the text behind the element.
type repairer struct {
	b []byte // begins with the start tag of the element
	// whole reports that nothing follows b.
	whole bool
	// outer has the names of the elements around this one, outermost first. An end tag
	// of one of them ends this element too.
	outer []string
	// entry reports that the element is an entry or an item.
	entry                   bool
	maxDepth, maxAttributes int

	// out is the repaired part of the element, and stack has the elements that are open
	// in it.
	out   []byte
	stack []openTag
	// next is the first entry that begins within it, and cut reports that the element
	// ends there.
	next *nextEntry
	cut  bool
	// ended reports that the element is known to end at next.
	ended bool
	// faults is the number of repaired faults, and first has the first of them.
	faults int
	first  []fault
	lost   int // the number of entries that began in markup which was left out
	scans  int // see mostScans
	// work is the number of bytes that were scanned more than once.
	work int64
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
	// faults, first and lost are the counts of the repairer before it.
	faults, first, lost int
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
	i := 0
	for {
		n := bytes.IndexByte(r.b[i:], '<')
		if n < 0 || i+n+1 == len(r.b) {
			return r.repairAtEnd()
		}
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
}

// repairAtEnd is called if b ends before the element does.
func (r *repairer) repairAtEnd() int {
	if r.whole && r.next != nil {
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
		r.faults, r.first, r.lost = r.next.faults, r.first[:r.next.first], r.next.lost
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
		r.closeTag(r.stack[len(r.stack)-1].name)
		r.stack = r.stack[:len(r.stack)-1]
	}
}

// repairText copies b[i:end], which is text between tags.
func (r *repairer) repairText(i, end int) {
	for i < end {
		n := bytes.Index(r.b[i:end], endCDATA)
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

// repairStartTag repairs the start tag at b[i:], and returns its end; 0 if b ends
// before it.
func (r *repairer) repairStartTag(i int) (end int) {
	nameEnd := i + 1
	for nameEnd < len(r.b) && isName[r.b[nameEnd]] {
		nameEnd++
	}
	name := string(r.b[i+1 : nameEnd])
	before := len(r.out)
	r.out = append(append(r.out, '<'), name...)
	end, empty := r.repairAttributes(nameEnd)
	if end == 0 {
		return 0
	}
	if len(r.stack) > 0 {
		tag := string(r.out[before:])
		r.out = r.out[:before]
		if !r.placeTag(i, name) {
			return 0
		}
		if len(r.outer)+len(r.stack) >= r.maxDepth && !empty {
			r.addFault(i, tooDeep)
			r.ended = r.next != nil
			return end
		}
		r.out = append(r.out, tag...)
	}
	if empty {
		r.out = append(r.out, "/>"...)
		return end
	}
	r.out = append(r.out, '>')
	r.stack = append(r.stack, openTag{name: name})
	return end
}

// placeTag determines the parent of the start tag at b[i:], and closes open elements
// whose end tag is missing. It returns false if b ends before that is known.
func (r *repairer) placeTag(i int, name string) bool {
	_, local := cutPrefix([]byte(name))
	isEntry := string(local) == "item" || string(local) == "entry"
	if r.next == nil && (r.entry && name == r.stack[0].name || !r.entry && isEntry) {
		open := make([]string, len(r.stack))
		for k, tag := range r.stack {
			open[k] = tag.name
		}
		r.next = &nextEntry{i, len(r.out), open, r.faults, len(r.first), r.lost}
		r.ended = len(r.stack) == 1 // entries have no entries
	}
	if !r.entry || r.next != nil || len(r.stack) < 2 || !isEntryChild(local) {
		return true
	}
	closed, known := r.isClosed(i, 1)
	if !known {
		return false
	}
	if !closed {
		r.addFault(i, "the end tag of %s is missing", r.stack[1].name)
		r.closeTo(1)
	}
	return true
}

// isEntryChild reports whether an element of that name is most likely a child of an
// entry.
func isEntryChild(local []byte) bool {
	switch string(local) {
	case "by", "hour", "day", "comment":
		return false
	case "author", "category", "enclosure", "comments", "rights", "creator", "encoded":
		return true
	}
	return isMeaningful(local)
}

// isClosed reports whether an end tag of the element at depth k of the stack follows in
// b[i:], within the entry. known is false if b ends before that is known.
func (r *repairer) isClosed(i, k int) (closed, known bool) {
	tag := &r.stack[k]
	if tag.closed != 0 {
		return tag.closed > 0, true
	}
	if r.scans++; r.scans > mostScans {
		return true, true
	}
	own := r.indexEndTag(i, tag.name)
	outer := r.indexEndTag(i, r.stack[0].name)
	r.work += 2 * int64(len(r.b)-i)
	switch {
	case own >= 0 && (outer < 0 || own < outer):
		tag.closed = 1
	case outer >= 0 || r.whole:
		tag.closed = -1
	default:
		return false, false
	}
	return tag.closed > 0, true
}

// indexEndTag returns the start of the next end tag of that name; -1 if there is none.
func (r *repairer) indexEndTag(i int, name string) int {
	tag := []byte("</" + name)
	for {
		n := bytes.Index(r.b[i:], tag)
		if n < 0 {
			return -1
		}
		i += n
		if after := i + len(tag); after == len(r.b) || !isName[r.b[after]] {
			return i
		}
		i += len(tag)
	}
}

// repairAttributes repairs the attributes of a tag, from b[j:] on. It returns the end
// of the tag; 0 if b ends before it.
func (r *repairer) repairAttributes(j int) (end int, empty bool) {
	var names []string
	for {
		spaces := j
		for j < len(r.b) && isSpace[r.b[j]] {
			j++
		}
		if j == len(r.b) {
			return 0, false
		}
		switch c := r.b[j]; {
		case c == '>':
			return j + 1, false
		case c == '<':
			r.addFault(j, "a tag does not end")
			return j, false
		case c == '/' && j+1 == len(r.b):
			return 0, false
		case c == '/' && r.b[j+1] == '>':
			return j + 2, true
		case !isNameStart[c]:
			r.addFault(j, "a tag goes on with %s", string(r.b[j:j+1]))
			j++
			continue
		case spaces == j:
			r.addFault(j, "there is no blank before an attribute")
		}
		start := j
		for j < len(r.b) && isName[r.b[j]] {
			j++
		}
		name := string(r.b[start:j])
		from, to, next, quote := r.findValue(j)
		if next == 0 {
			return 0, false
		}
		j = next
		if slices.Contains(names, name) || len(names) == r.maxAttributes {
			r.addFault(start, "the attribute %s repeats, or there are too many", name)
			continue
		}
		names = append(names, name)
		r.out = append(append(append(r.out, ' '), name...), '=', quote)
		if from < 0 {
			r.out = append(r.out, name...)
		} else {
			r.copyValue(from, to, quote)
		}
		r.out = append(r.out, quote)
	}
}

// findValue returns the bounds of the value of the attribute whose name ends at j, the
// position next to continue at, and the quote. next is 0 if b ends before it. from is
// negative if there is no value.
func (r *repairer) findValue(j int) (from, to, next int, quote byte) {
	k := j
	for k < len(r.b) && isSpace[r.b[k]] {
		k++
	}
	if k == len(r.b) {
		return 0, 0, 0, 0
	}
	if r.b[k] != '=' {
		r.addFault(j, "an attribute has no value")
		return -1, -1, j, '"'
	}
	for k++; k < len(r.b) && isSpace[r.b[k]]; {
		k++
	}
	if k == len(r.b) {
		return 0, 0, 0, 0
	}
	if quote = r.b[k]; quote != '"' && quote != '\'' {
		r.addFault(k, "an attribute has no quotes")
		end := k
		for end < len(r.b) && !isSpace[r.b[end]] && r.b[end] != '>' && r.b[end] != '<' {
			end++
		}
		if end == len(r.b) {
			return 0, 0, 0, 0
		}
		to = end
		if r.b[end] == '>' && to > k && r.b[to-1] == '/' {
			to--
		}
		return k, to, to, '"'
	}
	from = k + 1
	n := bytes.IndexByte(r.b[from:], quote)
	if n < 0 && !r.whole {
		return 0, 0, 0, 0
	}
	value := r.b[from:]
	if n >= 0 {
		value = value[:n]
	}
	less := bytes.IndexByte(value, '<')
	if n >= 0 && less < 0 {
		return from, from + n, from + n + 1, quote
	}
	// The next quote may belong to another tag.
	if greater := bytes.IndexByte(value, '>'); greater >= 0 && (n < 0 || greater < less) {
		r.addFault(k, "an attribute has no quote at its end")
		return from, from + greater, from + greater, quote
	}
	if n < 0 {
		return 0, 0, 0, 0
	}
	r.addFault(from+less, "an attribute has a < in its value")
	return from, from + n, from + n + 1, quote
}

// copyValue copies a value.
func (r *repairer) copyValue(from, to int, quote byte) {
	for {
		n := bytes.IndexAny(r.b[from:to], `<"'`)
		if n < 0 {
			r.escapeReferences(from, to)
			return
		}
		r.escapeReferences(from, from+n)
		switch c := r.b[from+n]; c {
		case '<':
			r.out = append(r.out, "&lt;"...)
		case quote:
			r.out = append(r.out, "&#34;"...) // a value without quotes gets double ones
		default:
			r.out = append(r.out, c)
		}
		from += n + 1
	}
}

// repairEndTag repairs the end tag at b[i:], and returns its end; 0 if b ends before
// it. ended reports that it belongs to an element around this one.
func (r *repairer) repairEndTag(i int) (end int, ended bool) {
	j := i + 2
	for j < len(r.b) && isName[r.b[j]] {
		j++
	}
	name := string(r.b[i+2 : j])
	end = j
	for end < len(r.b) && r.b[end] != '>' && r.b[end] != '<' {
		end++
	}
	if end == len(r.b) && !r.whole {
		return 0, false
	}
	faulty := end == len(r.b) || r.b[end] == '<' || !allBlank(r.b[j:end])
	if end < len(r.b) && r.b[end] == '>' {
		end++
	}
	k := len(r.stack) - 1
	for k >= 0 && r.stack[k].name != name {
		k--
	}
	if k < 0 && slices.Contains(r.outer, name) {
		return end, true
	}
	if k < 0 {
		for k = len(r.stack) - 1; k >= 0 && !strings.EqualFold(r.stack[k].name, name); {
			k--
		}
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

// repairMarkup repairs a comment, a CDATA section, a processing instruction or a
// declaration at b[i:], and returns its end; 0 if b ends before it.
func (r *repairer) repairMarkup(i int) (end int) {
	rest := r.b[i:]
	switch {
	case !r.whole && len(rest) < len(openCDATA):
		return 0
	case bytes.HasPrefix(rest, openComment):
		n := bytes.Index(rest[len(openComment):], []byte("-->"))
		if n < 0 {
			return r.repairUnended(i, "a comment")
		}
		end = i + len(openComment) + n + len("-->")
		if text := rest[len(openComment):][:n]; bytes.Contains(text, dashes) || bytes.HasSuffix(text, dashes[:1]) {
			r.addFault(i, "a comment has -- in it")
			r.lost += countEntries(text)
			return end
		}
		r.out = append(r.out, r.b[i:end]...)
		return end
	case bytes.HasPrefix(rest, openCDATA):
		n := bytes.Index(rest, endCDATA)
		if n < 0 {
			if !r.whole {
				return 0
			}
			r.addFault(i, "a CDATA section does not end")
			return i + len(openCDATA)
		}
		end = i + n + len(endCDATA)
		r.out = append(r.out, r.b[i:end]...)
		return end
	case rest[1] == '?':
		n := bytes.Index(rest, endPI)
		if n < 0 {
			return r.repairUnended(i, "a processing instruction")
		}
		end = i + n + len(endPI)
		if len(rest) < 3 || !isNameStart[rest[2]] || bytes.HasPrefix(rest, []byte("<?xml")) {
			r.addFault(i, "there is a processing instruction where none may be")
			return end
		}
		r.out = append(r.out, r.b[i:end]...)
		return end
	}
	n := bytes.IndexByte(rest, '>')
	if n < 0 {
		return r.repairUnended(i, "a declaration")
	}
	r.addFault(i, "there is a declaration where none may be")
	return i + n + 1
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

// entryTag matches the possible start tags of entries.
var entryTag = regexp.MustCompile(`<(?:[A-Za-z0-9_.-]+:)?(?:item|entry)[\s>]`)

// countEntries returns the number of start tags of entries in b.
func countEntries(b []byte) int { return len(entryTag.FindAllIndex(b, -1)) }
