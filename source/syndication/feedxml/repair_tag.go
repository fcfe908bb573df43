package feedxml

import (
	"bytes"
	"slices"
	"strings"
)

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
	if r.open == nil {
		r.open = map[string]int{}
	}
	r.open[strings.ToLower(name)]++
	return end
}

// placeTag determines the parent of the start tag at b[i:], and closes open elements
// whose end tag is missing. It returns false if b ends before that is known.
func (r *repairer) placeTag(i int, name string) bool {
	_, local := cutPrefix([]byte(name))
	if r.next == nil && beginsNext(r.entry, []byte(r.stack[0].name), []byte(name)) {
		open := make([]string, len(r.stack))
		for k, tag := range r.stack {
			open[k] = tag.name
		}
		r.next = &nextEntry{i, len(r.out), open, r.faults, len(r.first)}
		r.ended = len(r.stack) == 1 || r.cutAtOnce // entries have no entries
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

// beginsNext reports whether a start tag of that name in an element is most likely that of the next
// entry, so that the element has no end tag. own is the name of the element, and entry reports that
// it is an entry.
func beginsNext(entry bool, own, name []byte) bool {
	_, local := cutPrefix(name)
	return entry && bytes.Equal(own, name) || !entry && (string(local) == "item" || string(local) == "entry")
}

// isEntryChild reports whether an element of that name is most likely a child of an
// entry.
func isEntryChild(local []byte) bool {
	switch string(local) {
	case "hour", "day", "name", "email":
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
	if r.scans++; r.scans > mostScans || r.scan.tired() {
		return true, true
	}
	outer := r.indexEndTag(r.b, i, r.stack[0].name)
	within := r.b
	if outer >= 0 {
		within = r.b[:outer]
	}
	own := r.indexEndTag(within, i, tag.name)
	switch {
	case own >= 0:
		tag.closed = 1
	case outer >= 0 || r.whole:
		tag.closed = -1
	default:
		return false, false
	}
	return tag.closed > 0, true
}

// indexEndTag returns the start of the next end tag of that name in b[i:]; -1 if there is none, or
// if the repairer's part of the document ends before that is known.
func (r *repairer) indexEndTag(b []byte, i int, name string) int {
	n := r.scan.find(b, i, "</"+name)
	if n+len("</"+name) == len(r.b) && !r.whole {
		return -1
	}
	return n
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
			r.addFault(j, "a tag has an unexpected %s", string(r.b[j:j+1]))
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
		if len(names) == mostAttributes || slices.Contains(names, name) {
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
		return r.findUnquotedValue(k)
	}
	return r.findQuotedValue(k+1, quote)
}

// findUnquotedValue is findValue for a value without quotes that begins at k.
func (r *repairer) findUnquotedValue(k int) (from, to, next int, quote byte) {
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

// findQuotedValue is findValue for a value that begins behind a quote, at start.
func (r *repairer) findQuotedValue(start int, quote byte) (from, to, next int, _ byte) {
	from = start
	end := r.scan.find(r.b, from, string(quote))
	if end < 0 && !r.whole {
		return 0, 0, 0, 0
	}
	value := r.b[from:]
	if end >= 0 {
		value = r.b[from:end]
	}
	less := bytes.IndexByte(value, '<')
	if end >= 0 && less < 0 {
		return from, end, end + 1, quote
	}
	// The next quote may belong to another tag.
	if greater := bytes.IndexByte(value, '>'); greater >= 0 && (end < 0 || greater < less) {
		r.addFault(from-1, "an attribute has no quote at its end")
		return from, from + greater, from + greater, quote
	}
	if end < 0 {
		return 0, 0, 0, 0
	}
	r.addFault(from+less, "an attribute has a < in its value")
	return from, end, end + 1, quote
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
