package feedxml

import (
	"bytes"
	"errors"
)

// containerReader reads the children of the containers of a document.
type containerReader struct {
	lenientReader
	*vocabulary
	entities entityTable
	about    metaReader
	entries  entryReader

	large *largeEntry // the entry in whose place the unread one is read; nil for none
	named bool        // the document has the elements that its format requires, such as a channel
	head  int         // bytes of elements that are not entries
}

// readNext reads the next child, text or end tag in the innermost container. found
// reports that it was a child that is an entry.
func (r *containerReader) readNext() (e Entry, found bool, err error) {
	if err := r.skipText(); err != nil {
		return Entry{}, false, r.repairBetween(err)
	}
	if isNameStart[r.in.unreadBytes()[1]] {
		return r.readAndRepairChild()
	}
	return Entry{}, false, r.repairBetween(r.readBetween())
}

// readBetween reads the end tag of the innermost container, or markup in it that is no
// tag.
func (r *containerReader) readBetween() error {
	limit := r.opts.Limits.Head
	in := &r.open[len(r.open)-1]
	switch r.in.unreadBytes()[1] {
	case '/':
		end, err := r.readToken(limit, func(b []byte) (int, *syntaxError) { return scanEndTag(b, 0, in.name) })
		if err != nil {
			return err
		}
		r.in.discardBytes(end)
		r.open = r.open[:len(r.open)-1]
	default:
		end, err := r.readToken(limit, func(b []byte) (int, *syntaxError) { return r.scan.scanMarkup(b, 0) })
		if err != nil {
			return err
		}
		r.in.discardBytes(end)
	}
	return nil
}

// mostTries is the maximum number of attempts to repair and read a child.
const mostTries = 3

// readAndRepairChild reads a child of the innermost container. If the reader is lenient, a
// child that is not well-formed is repaired, its start tag first, and read again.
func (r *containerReader) readAndRepairChild() (e Entry, found bool, err error) {
	limits := &r.opts.Limits
	for try := range mostTries {
		violations := len(r.list)
		c := childState{limit: max(limits.Entry, limits.Head)}
		for again := true; again; {
			again = false
			r.list = r.list[:violations]
			e, found, err = r.readChild(&c, &again)
		}
		if err == nil {
			return e, found, nil
		}
		r.list, r.scan.undefined = r.list[:violations], ""
		if try == mostTries-1 {
			err = r.describeError(err) // it is returned after the repair
		}
		failed := err
		if r.mayRepair(err) {
			failed = r.repairChild(c, err)
		}
		if c.isEntry && r.opts.CutEntries && errors.Is(failed, errLargePiece) {
			if r.large, failed = shrinkEntry(&r.tokenizer, failed); errors.Is(failed, ErrTruncated) && r.opts.Lenient {
				r.skipTruncatedChild(c, len(r.in.unreadBytes()))
				failed = nil
			}
		}
		if failed != nil || len(r.open) == 0 {
			return Entry{}, false, failed
		}
	}
	return e, found, err
}

// readChild reads a child of the innermost container. After an error, nothing is
// skipped. It sets again if it has expanded entities, so that the child has to be read
// again.
func (r *containerReader) readChild(c *childState, again *bool) (e Entry, found bool, err error) {
	limits := &r.opts.Limits
	t, err := r.readStartTag(max(limits.Entry, limits.Head))
	if err != nil {
		return Entry{}, false, err
	}
	if *again = r.expandHere(t.end); *again {
		return Entry{}, false, nil
	}
	c.tagRead, c.limit = true, limits.Head-r.head
	if len(r.open) >= limits.Depth {
		return Entry{}, false, r.malformedError(&syntaxError{detail: tooDeep, limit: limits.Depth})
	}
	outer := &r.open[len(r.open)-1]
	b := r.in.unreadBytes()
	scope := r.innerScope(&outer.scope, b, t)
	in, local, _ := scope.resolveName(b[1:t.nameEnd])
	switch {
	case r.isContainer(len(r.open), in.space, local):
		r.named = true
		if meta := &r.about.meta; r.own != atom && meta.ID == "" {
			r.attrs = attributes(r.attrs[:0], b, t)
			about, _ := r.attribute(&scope, rdf, "about")
			meta.ID = clipText(trimSpace(about))
		}
		err = r.enterContainer(t, scope)
		return Entry{}, false, err
	case r.isEntry(len(r.open), in.space, local):
		c.isEntry, c.limit = true, limits.Entry
		r.expectNext(b[1:t.nameEnd], true)
		r.named = r.named || r.format == Atom
		e, *again, err = r.readEntry(t, outer, &scope, in.space == tombstones)
		return e, err == nil && !*again, err
	}
	r.expectNext(b[1:t.nameEnd], false)
	*again, err = r.readMetaElement(t, outer, &scope)
	return Entry{}, false, err
}

// expectNext has an element end where the next entry begins in it, once the reader no longer reads
// ahead. A repair then ends the element there.
func (r *containerReader) expectNext(own []byte, entry bool) {
	if r.beginsNext = nil; !r.readsAhead() {
		own := bytes.Clone(own) // it is valid until the next read
		r.beginsNext = func(name []byte) bool { return beginsNext(entry, own, name) }
	}
}

// readMetaElement reads an element that is neither an entry nor a container. It reports
// whether entities in it have been expanded, so that it has to be read again.
func (r *containerReader) readMetaElement(t tag, outer *container, s *scope) (again bool, err error) {
	if again, err = r.readWhole(t, r.opts.Limits.Head-r.head); again || err != nil {
		return again, err
	}
	r.head += r.element.end
	b := r.in.unreadBytes()
	in, local, declared := s.resolveName(b[1:t.nameEnd])
	r.about.readElement(b, &r.element, len(r.open), s, in.space, local, declared)
	r.about.addUndefined(&r.scan, r.in.offset)
	r.in.discardBytes(r.element.end)
	return false, nil
}

// readEntry reads an entry of the container outer, whose start tag is t and in which the scope is s. It reports
// whether entities in it have been expanded, so that it has to be read again.
func (r *containerReader) readEntry(t tag, outer *container, s *scope, deleted bool) (e Entry, again bool, err error) {
	if again, err = r.readWhole(t, r.opts.Limits.Entry); again || err != nil {
		return Entry{}, again, err
	}
	b := r.in.unreadBytes()
	e = r.entries.readEntry(b, &r.element, &outer.inherit, s, deleted, r.in.offset)
	e.Undefined = r.scan.undefined
	r.about.addUndefined(&r.scan, r.in.offset)
	if r.large != nil {
		e = r.large.complete(e, &outer.inherit, s.base, b, t)
		r.large = nil
	}
	r.in.discardBytes(r.element.end)
	return e, false, nil
}

// readWhole reads an element of at most limit bytes whose start tag is t, and expands the entities in it.
func (r *containerReader) readWhole(t tag, limit int) (again bool, err error) {
	if err := r.readElement(t, limit, len(r.open)); err != nil {
		return false, err
	}
	return r.expandHere(r.element.end), nil
}

// expandHere expands the declared entities in the first n unread bytes, which are an
// element or a tag. It reports whether there were any; then these bytes have to be read
// again.
func (r *containerReader) expandHere(n int) (again bool) {
	if r.scan.undefined == "" || len(r.entities.declared) == 0 {
		return false
	}
	expanded, changed := r.entities.expandEntities(r.in.unreadBytes()[:n])
	if changed {
		r.in.replace(n, expanded)
		r.scan.undefined = ""
	}
	return changed
}

// enterContainer makes the element at whose start tag the unread bytes begin the
// innermost container.
func (r *containerReader) enterContainer(t tag, s scope) error {
	r.about.addUndefined(&r.scan, r.in.offset)
	if !t.empty {
		inherit := newInheritance(&s)
		if size := inherit.totalBytes(); size > mostInherited {
			return r.errorAt(ErrTooLarge, 0, "the entries would inherit %d bytes of namespaces, xml:base and xml:lang, where %d are the most", size, mostInherited)
		}
		r.open = append(r.open, container{name: string(r.in.unreadBytes()[1:t.nameEnd]), scope: s, inherit: inherit})
	}
	r.in.discardBytes(t.end)
	return nil
}

// skipText skips text, and returns with two unread bytes at least, of which the
// first is a <.
func (r *containerReader) skipText() error {
	limit := r.opts.Limits.Head
	for {
		b := r.in.unreadBytes()
		n := bytes.IndexByte(b, '<')
		if n > limit || n < 0 && len(b) > limit {
			return r.tooLargeError(limit)
		}
		if n >= 0 && n+1 < len(b) {
			if err := r.scan.scanReferences(b, 0, n); err != nil {
				return r.malformedError(err)
			}
			r.about.addUndefined(&r.scan, r.in.offset)
			r.in.discardBytes(n)
			return nil
		}
		// The < and the byte behind it are not part of the text.
		if err := r.in.readMore(max(n, 0), limit+1); err != nil {
			return r.endError(err)
		}
	}
}
