package feedxml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
)

const (
	// An element without an end tag ends where the next entry begins in it. To know that, the
	// repairer reads ahead, and reads the same bytes again for the next entry. Once mostAhead
	// bytes have been read in vain, and aheadPerByte more for each byte of the document, elements
	// end at the next entry at once.
	mostAhead    = 1 << 20
	aheadPerByte = 4
)

// lenientReader reads the tokens and elements of a document, and repairs them if [Options.Lenient] is set.
type lenientReader struct {
	tokenizer
	faults Faults
	open   []container // containers around the unread bytes, the root first
	ahead  int64       // see mostAhead
}

// recordRepair records a fault at an unread byte. Each %s of detail quotes one of the names.
func (r *lenientReader) recordRepair(kind error, at int, detail string, names ...string) {
	r.faults.Truncated = r.faults.Truncated || errors.Is(kind, ErrTruncated)
	offset := r.in.offsetOf(at)
	if r.faults.countFault(offset) {
		detail = quoteNames(detail, names)
		r.faults.insertFault(locatedFault{offset, r.positionText(at) + detail + r.quoteNear(at), r.describeError(r.errorAt(kind, at, "%s", detail))})
	}
}

// recordCharacters records characters that the input has repaired, the first of them and the
// number of the others. It does not quote the text there, because that has not been read yet.
func (r *lenientReader) recordCharacters(first []fault, more int) {
	for _, one := range first {
		if offset := r.in.offsetOf(one.at); r.faults.countFault(offset) {
			page, text := cmp.Or(r.opts.URL, "the document"), r.positionText(one.at)+one.detail
			r.faults.insertFault(locatedFault{offset, text, fmt.Errorf("%s: %s: %w", page, text, ErrMalformed)})
		}
	}
	r.faults.Count += more
}

// recordRepairs records the faults of the piece at the start of the unread bytes.
func (r *lenientReader) recordRepairs(p *repairer) {
	for _, one := range p.first {
		r.recordRepair(ErrMalformed, one.at, one.detail)
	}
	r.faults.Count += p.faults - len(p.first)
}

// mayRepair reports whether the reader is lenient and can continue after an error.
func (r *lenientReader) mayRepair(err error) bool {
	return r.opts.Lenient && (errors.Is(err, ErrMalformed) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrTooLarge))
}

// readsAhead reports whether an element in which an entry begins is read to its end.
func (r *lenientReader) readsAhead() bool { return r.ahead <= mostAhead+aheadPerByte*r.in.offset }

// childState is the progress of reading a child: its start tag was read, and it is an
// entry.
type childState struct {
	tagRead, isEntry bool
	limit            int // the maximum size of the part that was not read, in bytes
}

// repairChild replaces the child of the innermost container that could not be read by a
// repaired one, so that it can be read again: only its start tag, or the whole child if
// the start tag could be read. It returns cause if it cannot repair it. If the document
// ends within the child, the child and the rest of the document are skipped.
func (r *lenientReader) repairChild(c childState, cause error) error {
	if !c.tagRead && errors.Is(cause, ErrTooLarge) {
		return cause
	}
	p := repairer{scan: &r.scan, entry: c.isEntry, cutAtOnce: !r.readsAhead(), maxDepth: r.opts.Limits.Depth}
	for _, open := range r.open {
		p.outer = append(p.outer, open.name)
	}
	tooLarge := false
	for {
		// Bytes behind the limit are ignored, however many of them are in the buffer.
		p.b = r.in.unreadBytes()
		p.b = p.b[:min(len(p.b), c.limit)]
		end := p.repairPart(c)
		switch {
		case r.scan.stopped != nil:
			return r.scan.stopped
		case end > 0:
			if tooLarge && !p.cut {
				return largeError{cause}
			}
			if p.cut {
				r.ahead += int64(max(p.reached, r.reached) - end)
			}
			r.faults.HeadLeftOut = r.faults.HeadLeftOut || c.tagRead && !c.isEntry && p.cut
			r.recordRepairs(&p)
			r.in.replace(end, p.out)
			return nil
		case p.whole && tooLarge:
			return largeError{cause}
		case !p.whole && len(r.in.unreadBytes()) > c.limit:
			p, tooLarge = p.newAttempt(true), true
			continue
		case p.whole:
			r.skipTruncatedChild(c, len(p.b))
			return nil
		}
		whole := false
		if err := r.in.readMore(0, c.limit); err != nil {
			if err = r.endError(err); !errors.Is(err, ErrTruncated) {
				return err
			}
			whole = true
		}
		p = p.newAttempt(whole)
	}
}

// repairPart repairs the start tag of a child, or the whole child if its start tag could be
// read. It returns the end of that part; 0 if b ends before it.
func (r *repairer) repairPart(c childState) (end int) {
	if c.tagRead {
		return r.repairElement()
	}
	end = r.repairStartTag(0)
	r.scan.charge(cmp.Or(end, len(r.b)))
	return end
}

// skipTruncatedChild skips the n bytes of a child in which the document ends.
func (r *lenientReader) skipTruncatedChild(c childState, n int) {
	r.recordRepair(ErrTruncated, n, "the document ends")
	if c.isEntry {
		r.faults.LeftOut++
	}
	r.in.discardBytes(n)
	r.open = nil
}

// newAttempt returns a repairer for the same element after more of it was read. whole
// reports that there is no more.
func (r *repairer) newAttempt(whole bool) repairer {
	return repairer{scan: r.scan, entry: r.entry, cutAtOnce: r.cutAtOnce, maxDepth: r.maxDepth, outer: r.outer, whole: whole}
}

// repairBetween returns the error of reading between the children of the innermost
// container. A lenient reader skips the markup that caused it: text, an end tag, a comment
// or the like. It returns cause if it cannot skip it.
func (r *lenientReader) repairBetween(cause error) error {
	if !r.mayRepair(cause) || errors.Is(cause, ErrTooLarge) {
		return cause
	}
	r.scan.undefined = ""
	b := r.in.unreadBytes()
	if errors.Is(cause, ErrTruncated) {
		r.recordRepair(ErrTruncated, len(b), "the document ends")
		r.in.discardBytes(len(b))
		r.open = nil
		return nil
	}
	p := repairer{scan: &r.scan, b: b, whole: true}
	switch {
	case b[0] != '<':
		n := bytes.IndexByte(b, '<') // skipText has found it
		p.repairText(0, n)
		r.recordRepairs(&p)
		r.in.discardBytes(n)
	case len(b) > 1 && b[1] == '/':
		return r.skipEndTag(cause)
	case len(b) > 1 && (b[1] == '!' || b[1] == '?'):
		p.b, p.whole = b[:min(len(b), mostJunk)], false
		end := 0
		for end = p.repairMarkup(0); end == 0; end = p.repairMarkup(0) {
			p.whole = !r.moreJunk()
			p.b = r.pieceBytes(mostJunk - 1)
		}
		r.recordRepairs(&p)
		r.in.discardBytes(end)
	default:
		r.recordRepair(ErrMalformed, 0, "there is a < that begins no tag")
		r.in.discardBytes(1)
	}
	return nil
}

// skipEndTag skips an end tag that does not match the innermost container. If it
// matches an outer one, the containers within that have ended too.
func (r *lenientReader) skipEndTag(cause error) error {
	p := repairer{b: r.pieceBytes(mostJunk - 1)}
	name, end, _ := p.scanFaultyEndTag(0)
	for end == 0 {
		if !r.moreJunk() {
			return cause
		}
		p.b = r.pieceBytes(mostJunk - 1)
		name, end, _ = p.scanFaultyEndTag(0)
	}
	r.recordRepair(ErrMalformed, 0, "the element %s ends with </%s", r.open[len(r.open)-1].name, name)
	for k := len(r.open) - 1; k >= 0; k-- {
		if strings.EqualFold(r.open[k].name, name) {
			r.open = r.open[:k]
			break
		}
	}
	r.in.discardBytes(end)
	return nil
}

// skipJunk skips text before the document, such as the warnings of a script. It returns
// cause if it finds no beginning of a document.
func (r *lenientReader) skipJunk(cause error) error {
	if !errors.Is(cause, ErrNotFeed) && !errors.Is(cause, ErrMalformed) || r.in.offset >= mostJunk {
		return cause
	}
	b := r.readJunk()
	if len(b) == 0 || b[0] == '{' || b[0] == '[' {
		return cause
	}
	at := rootTag.FindIndex(b[1:])
	if at == nil {
		return cause
	}
	r.recordRepair(ErrMalformed, 0, "there is content before the root element")
	r.in.discardBytes(1 + at[0])
	return nil
}
