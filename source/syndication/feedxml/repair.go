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
	// outer are the names of the elements around this one, outermost first. An
	// end tag of one of them ends this element too.
	outer []string
	// entry reports that the element is an entry or an item.
	entry                   bool
	maxDepth, maxAttributes int

	// out is the repaired part of the element, and stack has the elements that are open
	// in it.
	out   []byte
	stack []openTag
	// next is the next entry in it, and cut reports that it ends there.
	next *nextEntry
	cut  bool
	// ended reports that it is known to end at next.
	ended bool
	// faults is how many were repaired, and first the first of them.
	faults int
	first  []fault
	lost   int // how many entries began in markup that was left out
	scans  int // see mostScans
	// work is how many bytes were looked at besides reading on.
	work int64
}

// openTag is an element that has begun.
type openTag struct {
	name string
	// closed is whether an end tag follows before the entry ends: 0 if that is not
	// known yet.
	closed int8
}

// nextEntry is the first place in an entry where another entry begins. If the end
// tag of the first one turns out to be missing, it ends there.
type nextEntry struct {
	at, out int
	open    []string
	// faults, first and lost are how many of each there were before it.
	faults, first, lost int
}

// mostScans is how often a repairer looks for the end of an element in one piece.
// It bounds the work for an element that consists of nothing but start tags.
const mostScans = 50

func (p *repairer) addFault(at int, detail string) {
	p.faults++
	if len(p.first) < mostFaults {
		p.first = append(p.first, fault{at, detail})
	}
}

// repairElement repairs the element that b starts with, and returns where it ends; 0 if
// b ends before, so that more of the document is needed, or there is no more.
func (p *repairer) repairElement() (end int) {
	i := 0
	for {
		n := bytes.IndexByte(p.b[i:], '<')
		if n < 0 || i+n+1 == len(p.b) {
			return p.repairAtEnd()
		}
		p.repairText(i, i+n)
		i += n
		at := i
		switch c := p.b[i+1]; {
		case isNameStart[c]:
			i = p.repairStartTag(i)
		case c == '/':
			var ended bool
			if i, ended = p.repairEndTag(i); ended {
				return p.finishElement(at)
			}
		case c == '!' || c == '?':
			i = p.repairMarkup(i)
		default:
			p.addFault(i, "there is a < that begins no tag")
			p.out = append(p.out, "&lt;"...)
			i++
		}
		if i == 0 {
			return p.repairAtEnd()
		}
		switch {
		case len(p.stack) == 0:
			return i
		case p.ended:
			return p.finishElement(at)
		}
	}
}

// repairAtEnd is called where b ends before the element does.
func (p *repairer) repairAtEnd() int {
	if p.whole && p.next != nil {
		return p.finishElement(len(p.b))
	}
	return 0
}

// finishElement ends the element although its end tag is missing: where the next entry
// begins in it, or else at at.
func (p *repairer) finishElement(at int) (end int) {
	detail := "the end tag of " + Excerpt(p.stack[0].name) + " is missing"
	if p.next != nil {
		// The rest is repaired when it is read.
		p.faults, p.first, p.lost = p.next.faults, p.first[:p.next.first], p.next.lost
		p.addFault(p.next.at, detail)
		p.cut = true
		p.out = p.out[:p.next.out]
		for _, name := range slices.Backward(p.next.open) {
			p.closeTag(name)
		}
		return p.next.at
	}
	p.addFault(at, detail)
	p.closeTo(0)
	return at
}

func (p *repairer) closeTag(name string) {
	p.out = append(append(append(p.out, "</"...), name...), '>')
}

// closeTo ends the innermost elements until only depth of them are open.
func (p *repairer) closeTo(depth int) {
	for len(p.stack) > depth {
		p.closeTag(p.stack[len(p.stack)-1].name)
		p.stack = p.stack[:len(p.stack)-1]
	}
}

// repairText copies b[i:end], which is text between tags.
func (p *repairer) repairText(i, end int) {
	for i < end {
		n := bytes.Index(p.b[i:end], endCDATA)
		if n < 0 {
			break
		}
		p.escapeReferences(i, i+n)
		p.out = append(p.out, "]]&gt;"...)
		i += n + len(endCDATA)
	}
	p.escapeReferences(i, end)
}

// escapeReferences copies b[i:end] and escapes each & that begins no reference.
func (p *repairer) escapeReferences(i, end int) {
	for i < end {
		n := bytes.IndexByte(p.b[i:end], '&')
		if n < 0 {
			break
		}
		p.out = append(p.out, p.b[i:i+n]...)
		i += n
		length, ok := referenceLength(p.b[i:end])
		switch {
		case ok:
			p.out = append(p.out, p.b[i:i+length]...)
		case length > 0:
			p.addFault(i, "there is a reference to a character that XML does not have")
		default:
			p.addFault(i, "there is a & that is no reference")
			p.out = append(p.out, "&amp;"...)
			length = 1
		}
		i += length
	}
	p.out = append(p.out, p.b[i:end]...)
}

// referenceLength returns the length of the reference that b starts with, 0 if it
// starts with none. It is not ok if the reference is to a character that XML does
// not have.
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

// repairStartTag repairs the start tag at b[i:], and returns where it ends; 0 if b ends
// before.
func (p *repairer) repairStartTag(i int) (end int) {
	nameEnd := i + 1
	for nameEnd < len(p.b) && isName[p.b[nameEnd]] {
		nameEnd++
	}
	name := string(p.b[i+1 : nameEnd])
	before := len(p.out)
	p.out = append(append(p.out, '<'), name...)
	end, empty := p.repairAttributes(nameEnd)
	if end == 0 {
		return 0
	}
	if len(p.stack) > 0 {
		tag := string(p.out[before:])
		p.out = p.out[:before]
		if !p.placeTag(i, name) {
			return 0
		}
		if len(p.outer)+len(p.stack) >= p.maxDepth && !empty {
			p.addFault(i, tooDeep)
			p.ended = p.next != nil
			return end
		}
		p.out = append(p.out, tag...)
	}
	if empty {
		p.out = append(p.out, "/>"...)
		return end
	}
	p.out = append(p.out, '>')
	p.stack = append(p.stack, openTag{name: name})
	return end
}

// placeTag decides to which element the start tag at b[i:] belongs. It returns false if
// b ends before that is known.
func (p *repairer) placeTag(i int, name string) bool {
	_, local := cutPrefix([]byte(name))
	isEntry := string(local) == "item" || string(local) == "entry"
	if p.next == nil && (p.entry && name == p.stack[0].name || !p.entry && isEntry) {
		open := make([]string, len(p.stack))
		for k, tag := range p.stack {
			open[k] = tag.name
		}
		p.next = &nextEntry{i, len(p.out), open, p.faults, len(p.first), p.lost}
		p.ended = len(p.stack) == 1 // entries have no entries
	}
	if !p.entry || p.next != nil || len(p.stack) < 2 || !isEntryChild(local) {
		return true
	}
	closed, known := p.isClosed(i, 1)
	if !known {
		return false
	}
	if !closed {
		p.addFault(i, "the end tag of "+Excerpt(p.stack[1].name)+" is missing")
		p.closeTo(1)
	}
	return true
}

// isEntryChild reports whether the formats have an element of that name in an
// entry, and it has no meaning elsewhere that is more likely.
func isEntryChild(local []byte) bool {
	switch string(local) {
	case "by", "hour", "day", "comment":
		return false
	case "author", "category", "enclosure", "comments", "rights", "creator", "encoded":
		return true
	}
	return isMeaningful(local)
}

// isClosed reports whether an end tag of the element at depth k of the stack is behind
// b[i:] and in the entry.
func (p *repairer) isClosed(i, k int) (closed, known bool) {
	tag := &p.stack[k]
	if tag.closed != 0 {
		return tag.closed > 0, true
	}
	if p.scans++; p.scans > mostScans {
		return true, true
	}
	own := p.indexEndTag(i, tag.name)
	outer := p.indexEndTag(i, p.stack[0].name)
	p.work += 2 * int64(len(p.b)-i)
	switch {
	case own >= 0 && (outer < 0 || own < outer):
		tag.closed = 1
	case outer >= 0 || p.whole:
		tag.closed = -1
	default:
		return false, false
	}
	return tag.closed > 0, true
}

// indexEndTag returns where the next end tag of that name begins; -1 if there is
// none.
func (p *repairer) indexEndTag(i int, name string) int {
	tag := []byte("</" + name)
	for {
		n := bytes.Index(p.b[i:], tag)
		if n < 0 {
			return -1
		}
		i += n
		if after := i + len(tag); after == len(p.b) || !isName[p.b[after]] {
			return i
		}
		i += len(tag)
	}
}

// repairAttributes repairs the attributes of a tag, from b[j:] on. It returns where the
// tag ends; 0 if b ends before.
func (p *repairer) repairAttributes(j int) (end int, empty bool) {
	var names []string
	for {
		spaces := j
		for j < len(p.b) && isSpace[p.b[j]] {
			j++
		}
		if j == len(p.b) {
			return 0, false
		}
		switch c := p.b[j]; {
		case c == '>':
			return j + 1, false
		case c == '<':
			p.addFault(j, "a tag does not end")
			return j, false
		case c == '/' && j+1 == len(p.b):
			return 0, false
		case c == '/' && p.b[j+1] == '>':
			return j + 2, true
		case !isNameStart[c]:
			p.addFault(j, "a tag goes on with "+Excerpt(p.b[j:j+1]))
			j++
			continue
		case spaces == j:
			p.addFault(j, "there is no blank before an attribute")
		}
		start := j
		for j < len(p.b) && isName[p.b[j]] {
			j++
		}
		name := string(p.b[start:j])
		from, to, next, quote := p.findValue(j)
		if next == 0 {
			return 0, false
		}
		j = next
		if slices.Contains(names, name) || len(names) == p.maxAttributes {
			p.addFault(start, "the attribute "+Excerpt(name)+" repeats, or there are too many")
			continue
		}
		names = append(names, name)
		p.out = append(append(append(p.out, ' '), name...), '=', quote)
		if from < 0 {
			p.out = append(p.out, name...)
		} else {
			p.copyValue(from, to, quote)
		}
		p.out = append(p.out, quote)
	}
}

// findValue finds the value of the attribute whose name ends at j, and where the tag
// goes on: 0 if b ends before. from is negative if there is no value.
func (p *repairer) findValue(j int) (from, to, next int, quote byte) {
	k := j
	for k < len(p.b) && isSpace[p.b[k]] {
		k++
	}
	if k == len(p.b) {
		return 0, 0, 0, 0
	}
	if p.b[k] != '=' {
		p.addFault(j, "an attribute has no value")
		return -1, -1, j, '"'
	}
	for k++; k < len(p.b) && isSpace[p.b[k]]; {
		k++
	}
	if k == len(p.b) {
		return 0, 0, 0, 0
	}
	if quote = p.b[k]; quote != '"' && quote != '\'' {
		p.addFault(k, "an attribute has no quotes")
		end := k
		for end < len(p.b) && !isSpace[p.b[end]] && p.b[end] != '>' && p.b[end] != '<' {
			end++
		}
		if end == len(p.b) {
			return 0, 0, 0, 0
		}
		to = end
		if p.b[end] == '>' && to > k && p.b[to-1] == '/' {
			to--
		}
		return k, to, to, '"'
	}
	from = k + 1
	n := bytes.IndexByte(p.b[from:], quote)
	if n < 0 && !p.whole {
		return 0, 0, 0, 0
	}
	value := p.b[from:]
	if n >= 0 {
		value = value[:n]
	}
	less := bytes.IndexByte(value, '<')
	if n >= 0 && less < 0 {
		return from, from + n, from + n + 1, quote
	}
	// The quote that follows may be that of another tag.
	if greater := bytes.IndexByte(value, '>'); greater >= 0 && (n < 0 || greater < less) {
		p.addFault(k, "an attribute has no quote at its end")
		return from, from + greater, from + greater, quote
	}
	if n < 0 {
		return 0, 0, 0, 0
	}
	p.addFault(from+less, "an attribute has a < in its value")
	return from, from + n, from + n + 1, quote
}

// copyValue copies a value.
func (p *repairer) copyValue(from, to int, quote byte) {
	for {
		n := bytes.IndexAny(p.b[from:to], `<"'`)
		if n < 0 {
			p.escapeReferences(from, to)
			return
		}
		p.escapeReferences(from, from+n)
		switch c := p.b[from+n]; c {
		case '<':
			p.out = append(p.out, "&lt;"...)
		case quote:
			p.out = append(p.out, "&#34;"...) // a value without quotes gets double ones
		default:
			p.out = append(p.out, c)
		}
		from += n + 1
	}
}

// repairEndTag repairs the end tag at b[i:], and returns where it ends; 0 if b ends
// before. ended reports that it is that of an element around this one.
func (p *repairer) repairEndTag(i int) (end int, ended bool) {
	j := i + 2
	for j < len(p.b) && isName[p.b[j]] {
		j++
	}
	name := string(p.b[i+2 : j])
	end = j
	for end < len(p.b) && p.b[end] != '>' && p.b[end] != '<' {
		end++
	}
	if end == len(p.b) && !p.whole {
		return 0, false
	}
	faulty := end == len(p.b) || p.b[end] == '<' || !allBlank(p.b[j:end])
	if end < len(p.b) && p.b[end] == '>' {
		end++
	}
	k := len(p.stack) - 1
	for k >= 0 && p.stack[k].name != name {
		k--
	}
	if k < 0 && slices.Contains(p.outer, name) {
		return end, true
	}
	if k < 0 {
		for k = len(p.stack) - 1; k >= 0 && !strings.EqualFold(p.stack[k].name, name); {
			k--
		}
		faulty = true
	}
	switch {
	case k < 0:
		p.addFault(i, "there is an end tag </"+Excerpt(name)+" without a start tag")
		return end, false
	case k < len(p.stack)-1:
		p.addFault(i, "the element "+Excerpt(p.stack[len(p.stack)-1].name)+" ends with </"+Excerpt(name))
	case faulty:
		p.addFault(i, "the end tag of "+Excerpt(name)+" is not well-formed")
	}
	p.closeTo(k)
	return end, false
}

// repairMarkup repairs a comment, a CDATA section, a processing instruction or a
// declaration at b[i:], and returns where it ends; 0 if b ends before.
func (p *repairer) repairMarkup(i int) (end int) {
	rest := p.b[i:]
	switch {
	case !p.whole && len(rest) < len(openCDATA):
		return 0
	case bytes.HasPrefix(rest, openComment):
		n := bytes.Index(rest[len(openComment):], []byte("-->"))
		if n < 0 {
			return p.repairUnended(i, "a comment")
		}
		end = i + len(openComment) + n + len("-->")
		if text := rest[len(openComment):][:n]; bytes.Contains(text, dashes) || bytes.HasSuffix(text, dashes[:1]) {
			p.addFault(i, "a comment has -- in it")
			p.lost += countEntries(text)
			return end
		}
		p.out = append(p.out, p.b[i:end]...)
		return end
	case bytes.HasPrefix(rest, openCDATA):
		n := bytes.Index(rest, endCDATA)
		if n < 0 {
			if !p.whole {
				return 0
			}
			p.addFault(i, "a CDATA section does not end")
			return i + len(openCDATA)
		}
		end = i + n + len(endCDATA)
		p.out = append(p.out, p.b[i:end]...)
		return end
	case rest[1] == '?':
		n := bytes.Index(rest, endPI)
		if n < 0 {
			return p.repairUnended(i, "a processing instruction")
		}
		end = i + n + len(endPI)
		if len(rest) < 3 || !isNameStart[rest[2]] || bytes.HasPrefix(rest, []byte("<?xml")) {
			p.addFault(i, "there is a processing instruction where none may be")
			return end
		}
		p.out = append(p.out, p.b[i:end]...)
		return end
	}
	n := bytes.IndexByte(rest, '>')
	if n < 0 {
		return p.repairUnended(i, "a declaration")
	}
	p.addFault(i, "there is a declaration where none may be")
	return i + n + 1
}

// repairUnended is called where markup at b[i:] does not end in b.
func (p *repairer) repairUnended(i int, what string) (end int) {
	if !p.whole {
		return 0
	}
	p.addFault(i, what+" does not end")
	p.out = append(p.out, "&lt;"...)
	return i + 1
}

// entryTag matches where an entry may begin.
var entryTag = regexp.MustCompile(`<(?:[A-Za-z0-9_.-]+:)?(?:item|entry)[\s>]`)

// countEntries returns how many entries begin in b.
func countEntries(b []byte) int { return len(entryTag.FindAllIndex(b, -1)) }
