package feedxml

import (
	"bytes"
	"encoding/xml"
	"slices"
)

// mostChildren is how many children of an element are remembered. It bounds the memory
// for an element that consists of ids only.
const mostChildren = 10_000

// element is an element that was read as a whole. Its positions, and those of
// its children, count from its first byte, which is the first unread one.
type element struct {
	tag      tag
	close    int // where the end tag begins; the end, if the element is empty
	end      int
	children []child
}

// child is a child of an element that may mean something.
type child struct {
	start, nameEnd, tagEnd int
	close, end             int
	attributes             int
}

// span is a part of the unread bytes.
type span struct{ start, end int }

// readElement reads the element that the unread bytes start with, the tag of which
// is t, into r.element. It may not have more than limit bytes. outer is how many elements
// are open around it.
func (r *tokenizer) readElement(t tag, limit, outer int) error {
	r.outer = outer
	el := &r.element
	*el = element{tag: t, close: t.end, end: t.end, children: el.children[:0]}
	if t.end > limit {
		return r.tooLargeError(limit)
	}
	if t.empty {
		return nil
	}
	r.names = append(r.names[:0], span{1, t.nameEnd})
	b, i := r.in.unreadBytes(), t.end
	for {
		// Text up to the next tag.
		n := bytes.IndexByte(b[i:], '<')
		if n < 0 || i+n+1 == len(b) {
			if err := r.readMore(i, limit); err != nil {
				return err
			}
			b = r.in.unreadBytes()
			continue
		}
		if n > 0 {
			if err := r.scan.scanReferences(b, i, i+n); err != nil {
				return r.malformedError(err, limit)
			}
			i += n
		}
		end, done, err := r.readTag(b, i)
		switch {
		case err != nil:
			return r.malformedError(err, limit)
		case end == 0:
			if err := r.readMore(i, limit); err != nil {
				return err
			}
			b = r.in.unreadBytes()
		case end > limit:
			return r.tooLargeError(limit)
		case done:
			el.close, el.end = i, end
			return nil
		default:
			i = end
		}
	}
}

// readTag reads the tag or other markup at b[i:], which has two bytes at least.
// done reports that it ends the element. Nothing is changed if end is 0.
func (r *tokenizer) readTag(b []byte, i int) (end int, done bool, err *syntaxError) {
	c := b[i+1]
	depth := len(r.names)
	switch {
	case isNameStart[c]:
		t, err := r.scan.scanTag(b, i)
		if t.end == 0 || err != nil {
			return 0, false, err
		}
		if depth == 1 {
			if err := r.rememberChild(b, i, t); err != nil {
				return 0, false, err
			}
		}
		if t.empty {
			return t.end, false, nil
		}
		if r.outer+depth >= r.opts.Limits.Depth {
			return 0, false, &syntaxError{at: i, detail: tooDeep}
		}
		r.names = append(r.names, span{i + 1, t.nameEnd})
		return t.end, false, nil
	case c == '/':
		name := r.names[depth-1]
		end, err := scanEndTag(b, i, b[name.start:name.end])
		if end == 0 || err != nil {
			return 0, false, err
		}
		r.names = r.names[:depth-1]
		if children := r.element.children; depth == 2 && len(children) > 0 {
			if last := &children[len(children)-1]; last.end == 0 && last.start == name.start-1 {
				last.close, last.end = i, end
			}
		}
		return end, depth == 1, nil
	case c == '!' || c == '?':
		end, err := scanMarkup(b, i)
		return end, false, err
	}
	return 0, false, syntaxErrorf(i, "there is a < that begins no tag")
}

// rememberChild keeps the child at b[i:] if it may mean something.
func (r *tokenizer) rememberChild(b []byte, i int, t tag) *syntaxError {
	if _, local := cutPrefix(b[i+1 : t.nameEnd]); !isMeaningful(local) && !r.isExcluded(local) {
		return nil
	}
	if len(r.element.children) == mostChildren {
		return &syntaxError{at: i, detail: tooManyChildren}
	}
	c := child{start: i, nameEnd: t.nameEnd, tagEnd: t.end, attributes: t.attributes}
	if t.empty {
		c.close, c.end = t.end, t.end
	}
	r.element.children = append(r.element.children, c)
	return nil
}

// isExcluded reports whether children of that local name may be among those that do
// not count.
func (r *tokenizer) isExcluded(local []byte) bool {
	return slices.ContainsFunc(r.opts.HashWithout, func(n xml.Name) bool { return n.Local == string(local) })
}
