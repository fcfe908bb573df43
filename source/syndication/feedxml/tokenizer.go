package feedxml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// tokenizer reads the tokens and elements of a document, within limits. Its errors
// have the line, the column and the text there.
type tokenizer struct {
	opts    Options
	in      input
	charset string
	scan    scanner
	element element // that was read last
	names   []span  // of the elements that are open in it
	outer   int     // how many elements are open around it
}

// token has scan look at the unread bytes until it finds the end of the token
// that they start with.
func (r *tokenizer) token(limit int, scan func(b []byte) (end int, err *syntaxError)) (int, error) {
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
func (r *tokenizer) trailer() error {
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

// skipBlanks returns with two unread bytes at least, of which the first is a <.
func (r *tokenizer) skipBlanks() error {
	skipped := 0
	for {
		b := r.in.unread()
		n := len(b) - len(bytes.TrimLeft(b, " \t\r\n"))
		if skipped += n; skipped > r.opts.Limits.Head {
			return r.tooLarge(r.opts.Limits.Head)
		}
		r.in.skip(n)
		switch b = b[n:]; {
		case len(b) > 0 && b[0] != '<':
			kind := "text"
			if b[0] == '{' || b[0] == '[' {
				kind = "JSON"
			}
			return r.failed(ErrNotFeed, 0, "the document is %s, not XML: %s", kind, r.ahead())
		case len(b) > 1:
			return nil
		}
		err := r.in.more(0, r.opts.Limits.Head)
		if errors.Is(err, io.EOF) && len(b) == 0 {
			return r.failed(ErrTruncated, 0, "the document is empty")
		}
		if err != nil {
			return r.ended(err)
		}
	}
}

// more reads more of a piece of no more than limit bytes, of which the part
// before from has been looked at. Where it fails, the document ends within the
// piece, or the piece is too large.
func (r *tokenizer) more(from, limit int) error {
	if len(r.in.unread()) > limit {
		return r.tooLarge(limit)
	}
	err := r.in.more(from, limit)
	if err == nil {
		return nil
	}
	return r.ended(err)
}

// ended is what the end of the input means before that of the document.
func (r *tokenizer) ended(err error) error {
	at := len(r.in.unread())
	var char illegal
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, errHalfCharacter):
		return r.failed(ErrTruncated, at, "the document ends")
	case errors.As(err, &char) && char.first >= 0x80:
		return r.failed(ErrCharset, at, "there are bytes that are no character of %s", r.charset)
	case errors.As(err, &char):
		return r.failed(ErrMalformed, at, "there is the character U+%04X, which XML does not have", char.first)
	}
	return err
}

func (r *tokenizer) malformed(err *syntaxError, limit int) error {
	switch {
	case err.at > limit:
		return r.tooLarge(limit)
	case err.detail == tooManyAttributes:
		return r.failed(ErrTooLarge, err.at, "%s: more than %d", err.detail, r.opts.Limits.Attributes)
	case err.detail == tooDeep:
		return r.failed(ErrTooLarge, err.at, "%s: more than %d levels", err.detail, r.opts.Limits.Depth)
	case err.detail == tooManyChildren:
		return r.failed(ErrTooLarge, err.at, "%s: more than %d", err.detail, mostChildren)
	}
	return r.failed(ErrMalformed, err.at, "%s", err.detail)
}

func (r *tokenizer) tooLarge(limit int) error {
	option := ""
	if limit == r.opts.Limits.Entry {
		option = " (limits.entity)"
	}
	return r.failed(ErrTooLarge, 0, "what begins here has more than %d bytes%s", limit, option)
}

// failed is an error of the given kind at a byte of the unread ones.
func (r *tokenizer) failed(kind error, at int, format string, args ...any) error {
	page := r.opts.URL
	if page == "" {
		page = "the document"
	}
	return fmt.Errorf("%s: %s%s%s: %w", page, r.where(at), fmt.Sprintf(format, args...), r.near(at), kind)
}

// where is the place of an unread byte, for errors.
func (r *tokenizer) where(at int) string {
	line, column := r.in.position(at)
	return fmt.Sprintf("line %d, column %d: ", line, column)
}

// near quotes the text at an unread byte, for errors, with a little of what is
// before it. It does not depend on how the bytes arrive.
func (r *tokenizer) near(at int) string {
	const before, ahead = 20, 256
	end := at + longestExcerpt + ahead
	for len(r.in.unread()) <= end && r.in.fill() == nil {
	}
	b := r.in.unread()
	b = b[:min(len(b), end)]
	at = min(max(at-before, 0), len(b))
	for at > 0 && at < len(b) && !utf8.RuneStart(b[at]) {
		at--
	}
	// A secret is recognised by what is before it in its URL.
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

// ahead quotes what comes next.
func (r *tokenizer) ahead() string {
	for len(r.in.unread()) <= longestExcerpt && r.in.fill() == nil {
	}
	return Excerpt(r.in.unread())
}

// moreJunk reads more of what is not well-formed. It reports false at the end of the
// document, or if there are [mostJunk] bytes.
func (r *tokenizer) moreJunk() bool {
	return len(r.in.unread()) < mostJunk && r.in.more(0, mostJunk) == nil
}

// mostJunk is how many bytes before the root element are searched for it.
const mostJunk = 64 << 10
