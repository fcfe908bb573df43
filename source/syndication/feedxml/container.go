package feedxml

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// container is an element whose children the reader looks at one by one.
type container struct {
	name    string // as written
	scope   scope
	inherit inheritance
}

// step reads what comes next in the innermost container. found says that it was
// an entry.
func (r *Reader) step() (e Entry, found bool, err error) {
	if err := r.skipText(); err != nil {
		return Entry{}, false, r.repairOr(err)
	}
	if isNameStart[r.in.unread()[1]] {
		return r.child()
	}
	return Entry{}, false, r.repairOr(r.between())
}

// repairOr skips what could not be read between the children of a container, if
// the reader is lenient, and else returns the error.
func (r *Reader) repairOr(err error) error {
	if err == nil || !r.mayRepair(err) {
		return err
	}
	r.scan.undefined = ""
	return r.repairBetween(err)
}

// between reads an end tag, or markup that is no tag, in the innermost container.
func (r *Reader) between() error {
	limit := r.opts.Limits.Head
	in := &r.open[len(r.open)-1]
	switch r.in.unread()[1] {
	case '/':
		end, err := r.token(limit, func(b []byte) (int, *syntaxError) { return endTag(b, 0, []byte(in.name)) })
		if err != nil {
			return err
		}
		r.in.skip(end)
		r.open = r.open[:len(r.open)-1]
	default:
		end, err := r.token(limit, func(b []byte) (int, *syntaxError) { return markup(b, 0) })
		if err != nil {
			return err
		}
		if err := r.check(end, &in.scope); err != nil {
			return err
		}
		r.in.skip(end)
	}
	return nil
}

// child reads a child of the innermost container. If the reader is lenient, a
// child that is not well-formed is repaired, its start tag first, and read again.
func (r *Reader) child() (e Entry, found bool, err error) {
	for range 3 {
		violations := len(r.violations)
		var c childState
		for again := true; again; {
			again = false
			r.violations = r.violations[:violations]
			e, found, err = r.readChild(&c, &again)
		}
		if err == nil || !r.mayRepair(err) {
			return e, found, err
		}
		r.violations, r.scan.undefined = r.violations[:violations], ""
		if err := r.repairChild(c, err); err != nil || len(r.open) == 0 {
			return Entry{}, false, err
		}
	}
	return e, found, err
}

// childState is how far a child was read: whether its start tag was, and whether
// it is an entry.
type childState struct{ tagRead, isEntry bool }

// readChild reads a child of the innermost container. After an error, nothing is
// skipped. It asks to be called again where entities have been expanded.
func (r *Reader) readChild(c *childState, again *bool) (e Entry, found bool, err error) {
	var t tag
	limits := r.opts.Limits
	if _, err := r.token(max(limits.Entry, limits.Head), func(b []byte) (end int, err *syntaxError) {
		t, err = r.scan.tag(b, 0)
		return t.end, err
	}); err != nil {
		return Entry{}, false, err
	}
	if *again, err = r.expandHere(t.end); *again || err != nil {
		return Entry{}, false, err
	}
	c.tagRead = true
	if len(r.open) >= limits.Depth {
		return Entry{}, false, r.malformed(&syntaxError{detail: tooDeep}, limits.Entry)
	}
	outer := &r.open[len(r.open)-1]
	b := r.in.unread()
	scope := r.inner(&outer.scope, b, t)
	in, local, declared := scope.resolve(b[1:t.nameEnd])
	switch {
	case r.isContainer(in.space, local):
		r.named = true
		if r.own != atom && r.meta.ID == "" {
			r.attrs = attributes(r.attrs[:0], b, t)
			about, _ := r.attribute(&scope, rdf, "about")
			r.meta.ID = clipText(trim(about))
		}
		err = r.enter(t, scope)
		return Entry{}, false, err
	case r.isEntry(in.space, local):
		deleted := in.space == tombstones
		c.isEntry = true
		if err := r.readElement(t, limits.Entry); err != nil {
			return Entry{}, false, err
		}
		if *again, err = r.expandHere(r.element.end); *again || err != nil {
			return Entry{}, false, err
		}
		e, err = r.entry(outer, &scope, deleted)
		return e, err == nil, err
	}
	if err := r.readElement(t, limits.Head-r.head); err != nil {
		return Entry{}, false, err
	}
	if *again, err = r.expandHere(r.element.end); *again || err != nil {
		return Entry{}, false, err
	}
	r.head += r.element.end
	if err := r.check(r.element.end, &outer.scope); err != nil {
		return Entry{}, false, err
	}
	b = r.in.unread()
	_, local = cutPrefix(b[1:t.nameEnd])
	r.describe(&scope, in.space, local, declared)
	r.tellUndefined()
	r.in.skip(r.element.end)
	return Entry{}, false, nil
}

// expandHere expands the declared entities in the n unread bytes that were read as
// an element or as a tag. It reports whether there were any; then these bytes have to
// be read again. It fails if an entity would change what the element consists of.
func (r *Reader) expandHere(n int) (again bool, err error) {
	if r.scan.undefined == "" || len(r.entities) == 0 {
		return false, nil
	}
	expanded, changed, fault := r.expand(r.in.unread()[:n])
	if fault != "" {
		detail := "the value of the entity &" + Excerpt(fault) + "; is no text and no complete element"
		if !r.opts.Lenient {
			return false, r.failed(ErrMalformed, 0, "%s", detail)
		}
		r.repaired(ErrMalformed, 0, detail+"; its markup is taken for text")
	}
	if !changed {
		return false, nil
	}
	r.in.replace(n, expanded)
	r.scan.undefined = ""
	return true, nil
}

// enter goes into the element whose tag the unread bytes start with.
func (r *Reader) enter(t tag, s scope) error {
	if err := r.check(t.end, &s); err != nil {
		return err
	}
	r.tellUndefined()
	if !t.empty {
		inherit := newInheritance(&s)
		if size := inherit.size(); size > mostInherited {
			return r.failed(ErrTooLarge, 0, "the entries would inherit %d bytes of namespaces, xml:base and xml:lang, where %d are the most", size, mostInherited)
		}
		if r.root == nil {
			defer func() { r.root = slices.Clone(r.open) }()
		}
		r.open = append(r.open, container{name: string(r.in.unread()[1:t.nameEnd]), scope: s, inherit: inherit})
	}
	r.in.skip(t.end)
	return nil
}

// skipText skips text, and returns with two unread bytes at least, of which the
// first is a <.
func (r *Reader) skipText() error {
	limit := r.opts.Limits.Head
	for {
		b := r.in.unread()
		n := bytes.IndexByte(b, '<')
		if n >= 0 && n+1 < len(b) {
			if n > limit {
				return r.tooLarge(limit)
			}
			if err := r.scan.references(b, 0, n); err != nil {
				return r.malformed(err, limit)
			}
			r.tellUndefined()
			if !isBlank(b[:n]) {
				if err := r.check(n, &r.open[len(r.open)-1].scope); err != nil {
					return err
				}
			}
			r.in.skip(n)
			return nil
		}
		if err := r.more(max(n, 0), limit); err != nil {
			return err
		}
	}
}

// token has scan look at the unread bytes until it finds the end of the token
// that they start with.
func (r *Reader) token(limit int, scan func(b []byte) (end int, err *syntaxError)) (int, error) {
	for {
		end, err := scan(r.in.unread())
		switch {
		case err != nil:
			return 0, r.malformed(err, limit)
		case end > limit:
			return 0, r.tooLarge(limit)
		case end > 0:
			return end, nil
		}
		if err := r.more(0, limit); err != nil {
			return 0, err
		}
	}
}

// trailer reads what follows the root element: nothing, or comments.
func (r *Reader) trailer() error {
	for {
		b := r.in.unread()
		if n := len(b) - len(bytes.TrimLeft(b, " \t\r\n")); n > 0 {
			r.in.skip(n)
			continue
		}
		end := 0
		var wrong *syntaxError
		switch {
		case len(b) == 0, len(b) == 1 && b[0] == '<':
		case b[0] == '<' && (b[1] == '!' || b[1] == '?'):
			end, wrong = markup(b, 0)
		default:
			wrong = syntax(0, "")
		}
		if wrong != nil || len(b) > r.opts.Limits.Head && end == 0 || bytes.HasPrefix(b[:end], openCDATA) {
			return r.failed(ErrTrailing, 0, "something follows the root element: %s", r.ahead())
		}
		if end > 0 {
			if err := r.check(end, &scope{}); err != nil {
				return err
			}
			r.in.skip(end)
			continue
		}
		var char illegal
		switch err := r.in.more(0, r.opts.Limits.Head); {
		case errors.Is(err, io.EOF) && len(b) == 0:
			return io.EOF
		case errors.Is(err, io.EOF) || errors.Is(err, errHalfCharacter) || errors.As(err, &char):
			return r.failed(ErrTrailing, 0, "something follows the root element: %s", r.ahead())
		case err != nil:
			return err
		}
	}
}
