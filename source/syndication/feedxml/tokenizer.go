package feedxml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// tokenizer reads the tokens and elements of a document, within limits. Its errors have
// the line, the column and an excerpt.
type tokenizer struct {
	opts Options
	// exclusions has the elements that have no part in the hash.
	exclusions exclusions
	in         input
	charset    string
	scan       scanner
	element    element // the last that was read
	names      []span  // of the open elements in it
	outer      int     // the number of open elements around it
	reached    int     // the index up to which it was read
	// beginsNext reports whether an element ends, without an end tag, before a tag of that name;
	// nil if it does not.
	beginsNext func(name []byte) bool
}

// readToken calls scan with more and more unread bytes until it finds the end of the
// token that they start with.
func (r *tokenizer) readToken(limit int, scan func(b []byte) (end int, err *syntaxError)) (int, error) {
	for {
		end, err := scan(r.pieceBytes(limit))
		switch {
		case err != nil:
			r.scan.charge(err.at + 1)
			return 0, r.malformedError(err)
		case end > limit:
			return 0, r.tooLargeError(limit)
		case end > 0:
			r.scan.charge(end)
			return end, nil
		}
		if err := r.readMore(0, limit); err != nil {
			return 0, err
		}
		r.scan.charge(len(r.pieceBytes(limit))) // they are scanned again
	}
}

// readStartTag reads the start tag at the start of the unread bytes.
func (r *tokenizer) readStartTag(limit int) (t tag, err error) {
	_, err = r.readToken(limit, func(b []byte) (end int, err *syntaxError) {
		t, err = r.scan.scanTag(b, 0)
		return t.end, err
	})
	return t, err
}

// readTrailer reads the rest of the document behind the root element: nothing, or
// comments.
func (r *tokenizer) readTrailer() error {
	for {
		b := r.in.unreadBytes()
		if n := len(b) - len(bytes.TrimLeft(b, " \t\r\n")); n > 0 {
			r.in.discardBytes(n)
			continue
		}
		end := 0
		var wrong *syntaxError
		switch {
		case len(b) == 0, len(b) == 1 && b[0] == '<':
		case b[0] == '<' && (b[1] == '!' || b[1] == '?'):
			end, wrong = r.scan.scanMarkup(r.pieceBytes(r.opts.Limits.Head), 0)
		default:
			wrong = syntaxErrorf(0, "")
		}
		if wrong != nil || end > r.opts.Limits.Head || len(b) > r.opts.Limits.Head && end == 0 || bytes.HasPrefix(b[:end], openCDATA) {
			return r.errorAt(ErrTrailing, 0, "something follows the root element")
		}
		if end > 0 {
			r.in.discardBytes(end)
			continue
		}
		var char illegalByte
		switch err := r.in.readMore(0, r.opts.Limits.Head); {
		case errors.Is(err, io.EOF) && len(b) == 0:
			return io.EOF
		case errors.Is(err, io.EOF) || errors.Is(err, errHalfCharacter) || errors.As(err, &char):
			return r.errorAt(ErrTrailing, 0, "something follows the root element")
		case err != nil:
			return err
		}
	}
}

// skipBlanks skips white space. It returns with at least two unread bytes, of which the
// first is a <.
func (r *tokenizer) skipBlanks() error {
	skipped := 0
	for {
		b := r.in.unreadBytes()
		n := len(b) - len(bytes.TrimLeft(b, " \t\r\n"))
		if skipped += n; skipped > r.opts.Limits.Head {
			return r.tooLargeError(r.opts.Limits.Head)
		}
		r.in.discardBytes(n)
		switch b = b[n:]; {
		case len(b) > 0 && b[0] != '<':
			kind := "text"
			if b[0] == '{' || b[0] == '[' {
				kind = "JSON"
			}
			return r.errorAt(ErrNotFeed, 0, "the document is %s, not XML", kind)
		case len(b) > 1:
			return nil
		}
		err := r.in.readMore(0, r.opts.Limits.Head)
		if errors.Is(err, io.EOF) && len(b) == 0 {
			return r.errorAt(ErrTruncated, 0, "the document is empty")
		}
		if err != nil {
			return r.endError(err)
		}
	}
}

// pieceBytes returns the unread bytes that show whether a piece of at most limit bytes ends. So
// what is found in a piece that is too large does not depend on the number of bytes that were
// read at once.
func (r *tokenizer) pieceBytes(limit int) []byte {
	b := r.in.unreadBytes()
	if len(b) > limit {
		b = b[:limit+1]
	}
	return b
}

// readMore reads more of a piece of at most limit bytes, of which the part before from
// has been scanned. It returns an error if the document ends within the piece, or if
// the piece is too large.
func (r *tokenizer) readMore(from, limit int) error {
	if len(r.in.unreadBytes()) > limit {
		return r.tooLargeError(limit)
	}
	err := r.in.readMore(from, limit)
	if err == nil {
		return nil
	}
	return r.endError(err)
}

// endError returns the error for an input that ends before the document does.
func (r *tokenizer) endError(err error) error {
	at := len(r.in.unreadBytes())
	var char illegalByte
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, errHalfCharacter):
		return r.errorAt(ErrTruncated, at, "the document ends")
	case errors.As(err, &char) && char.first >= 0x80:
		return r.errorAt(ErrCharset, at, "there are bytes that are no character of %s", r.charset)
	case errors.As(err, &char):
		return r.errorAt(ErrMalformed, at, "there is the character U+%04X, which is not allowed", char.first)
	}
	return err
}

func (r *tokenizer) malformedError(err *syntaxError) error {
	if err.limit > 0 {
		return r.errorAt(ErrTooLarge, err.at, "%s: more than %d", err.detail, err.limit)
	}
	return r.errorAt(ErrMalformed, err.at, "%s", err.detail)
}

func (r *tokenizer) tooLargeError(limit int) error {
	option := ""
	if limit == r.opts.Limits.Entry {
		option = " (limits.entity)"
	}
	return r.errorAt(errLargePiece, 0, "what begins here has more than %d bytes%s", limit, option)
}

// errorAt returns an error of the given kind at an unread byte. Its text has no
// position and no excerpt until describeError adds them.
func (r *tokenizer) errorAt(kind error, at int, format string, args ...any) *documentError {
	return &documentError{kind: kind, at: at, detail: fmt.Sprintf(format, args...)}
}

// describeError completes the text of an error of errorAt and returns it. No byte may
// have been skipped or replaced since errorAt. It leaves other errors as they are.
func (r *tokenizer) describeError(err error) error {
	if e, ok := errors.AsType[*documentError](err); ok && e.text == "" {
		page := cmp.Or(r.opts.URL, "the document")
		e.text = page + ": " + r.positionText(e.at) + e.detail + r.quoteNear(e.at) + ": " + e.kind.Error()
	}
	return err
}

// positionText returns the line and the column of an unread byte, for errors.
func (r *tokenizer) positionText(at int) string {
	line, column := r.in.lineColumn(at)
	return fmt.Sprintf("line %d, column %d: ", line, column)
}

// excerptAhead is the number of bytes after an excerpt that are read to decide whether
// it ends within a secret. It is fixed, so that errors do not depend on the sizes of
// reads.
const excerptAhead = 256

// quoteNear quotes the text at an unread byte, for errors, with a few characters before
// it. The result does not depend on the sizes of reads.
func (r *tokenizer) quoteNear(at int) string {
	const before = 20
	end := at + longestExcerpt + excerptAhead
	for len(r.in.unreadBytes()) <= end && r.in.readOnce() == nil {
	}
	b := r.in.unreadBytes()
	b = b[:min(len(b), end)]
	at = min(max(at-before, 0), len(b))
	for at > 0 && at < len(b) && !utf8.RuneStart(b[at]) {
		at--
	}
	// A secret is recognised by the text before it in its URL.
	word := at
	for word > max(0, at-longestAddress) && !isSpace[b[word-1]] && (word == len(b) || b[word] != '<') {
		word--
	}
	text := r.opts.Redact.Excerpt(string(b[at:]), longestExcerpt)
	if whole := string(b[word:]); r.opts.Redact.Text(whole) != whole {
		text = r.opts.Redact.Excerpt(whole, longestExcerpt+before)
	}
	if text != "" {
		return fmt.Sprintf(", near %q", text)
	}
	return ""
}

// moreJunk reads more of a part that is not well-formed. It reports false at the end of
// the document, or if there are [mostJunk] bytes.
func (r *tokenizer) moreJunk() bool {
	return len(r.in.unreadBytes()) < mostJunk && r.in.readMore(0, mostJunk) == nil
}

// readJunk reads the next [mostJunk] bytes, or as many as there are.
func (r *tokenizer) readJunk() []byte {
	for r.moreJunk() {
	}
	return r.pieceBytes(mostJunk - 1)
}

// mostJunk is the maximum number of bytes before the root element.
const mostJunk = 64 << 10

// readElement reads the element at the start of the unread bytes, whose start tag is t,
// into r.element. limit is the maximum number of its bytes. outer is the number of
// elements that are open around it.
func (r *tokenizer) readElement(t tag, limit, outer int) error {
	r.outer = outer
	el := &r.element
	el.reset(t)
	r.reached = t.end
	if t.end > limit {
		return r.tooLargeError(limit)
	}
	if t.empty {
		return nil
	}
	r.names = append(r.names[:0], span{1, t.nameEnd})
	err := r.readContent(t.end, limit)
	r.scan.charge(r.reached)
	return err
}

// readContent is [tokenizer.readElement] from the end of the start tag on.
func (r *tokenizer) readContent(i, limit int) error {
	el, b := &r.element, r.pieceBytes(limit)
	for r.scan.stopped == nil {
		r.reached = i
		// Text up to the next tag.
		n := bytes.IndexByte(b[i:], '<')
		if n < 0 || i+n+1 == len(b) {
			if err := r.readMore(i, limit); err != nil {
				return err
			}
			b = r.pieceBytes(limit)
			continue
		}
		if n > 0 {
			if err := r.scan.scanReferences(b, i, i+n); err != nil {
				return r.malformedError(err)
			}
			i += n
		}
		end, done, err := r.readTag(b, i)
		switch {
		case err != nil:
			return r.malformedError(err)
		case end == 0:
			if err := r.readMore(i, limit); err != nil {
				return err
			}
			b = r.pieceBytes(limit)
		case end > limit:
			return r.tooLargeError(limit)
		case done:
			el.close, el.end = i, end
			return nil
		default:
			i = end
		}
	}
	return r.scan.stopped
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
		if r.beginsNext != nil && r.beginsNext(b[i+1:t.nameEnd]) {
			return 0, false, syntaxErrorf(i, "an entry begins in an element")
		}
		if depth == 1 {
			if err := r.element.addChild(b, i, t); err != nil {
				return 0, false, err
			}
		}
		if r.exclusions.mayExclude(b[i+1 : t.nameEnd]) {
			r.element.addExcluded(i, t)
		}
		if t.empty {
			return t.end, false, nil
		}
		if r.outer+depth >= r.opts.Limits.Depth {
			return 0, false, &syntaxError{at: i, detail: tooDeep, limit: r.opts.Limits.Depth}
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
		r.element.closeExcluded(name.start-1, end)
		if depth == 2 {
			r.element.closeChild(name.start-1, i, end)
		}
		return end, depth == 1, nil
	case c == '!' || c == '?':
		end, err := r.scan.scanMarkup(b, i)
		return end, false, err
	}
	return 0, false, syntaxErrorf(i, "there is a < that begins no tag")
}
