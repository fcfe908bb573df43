package feedxml

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// What ends the reading of a document. None of them is permanent by itself: the
// next request may get a whole document.
var (
	// ErrNotFeed says that the document is something else, such as an error
	// page that came with status 200.
	ErrNotFeed = errors.New("check that the url is a feed's; if it is, the provider answers with something else")
	// ErrTruncated says that the document broke off before the end tag of its
	// root element.
	ErrTruncated = fmt.Errorf("the document breaks off before it is complete; it is read again, and if it stays so the provider writes broken documents: %w", io.ErrUnexpectedEOF)
	// ErrMalformed says that the document is not well-formed XML.
	ErrMalformed = errors.New("nothing behind it is read until the provider has mended it")
	// ErrTrailing says that something follows the root element. All of the
	// document's entries were read before.
	ErrTrailing = errors.New("the provider has to end the document there")
	// ErrTooLarge says that a part of the document is above its limit.
	ErrTooLarge = errors.New("raise the limit if the provider's documents are so large")
	// ErrCharset says that the document's encoding is not known, or that it has
	// bytes that this encoding has not.
	ErrCharset = errors.New("the provider has to send UTF-8, or to name the encoding that it uses")
)

// syntaxError is a breach of XML at a byte of the piece that is being read.
type syntaxError struct {
	at     int
	detail string
}

func (e *syntaxError) Error() string { return e.detail }

func syntax(at int, format string, args ...any) *syntaxError {
	return &syntaxError{at: at, detail: fmt.Sprintf(format, args...)}
}

// The kinds of violation that are seen while a document is read and that do not
// stop the reading.
const (
	NotWellFormed    = "not_well_formed" // what a lenient reader repaired
	UndefinedEntity  = "undefined_entity"
	UndeclaredPrefix = "undeclared_prefix"
	CharsetMismatch  = "charset_mismatch"
	LateDeclaration  = "late_xml_declaration"
	BadDate          = "invalid_date"
	BadHref          = "invalid_link"
	BadFlag          = "invalid_flag"
	BadHint          = "invalid_polling_hint"
	RepeatedFlag     = "repeated_flag"
	WeakID           = "weak_identity"
	LongID           = "long_id"
	TooManyLinks     = "too_many_links"
	MissingRef       = "missing_ref"
	MissingWhen      = "missing_when"
)

// mostViolations is how many violations are kept until they are asked for.
const mostViolations = 100

func (r *Reader) violation(kind, format string, args ...any) {
	if len(r.violations) < mostViolations {
		r.violations = append(r.violations, feed.Violation{Kind: kind, Page: r.opts.URL, Detail: fmt.Sprintf(format, args...)})
	}
}

// failed is an error of the given kind at a byte of the unread ones.
func (r *Reader) failed(kind error, at int, format string, args ...any) error {
	page := r.opts.URL
	if page == "" {
		page = "the document"
	}
	return fmt.Errorf("%s: %s%s%s: %w", page, r.where(at), fmt.Sprintf(format, args...), r.near(at), kind)
}

// where is the place of an unread byte, for errors.
func (r *Reader) where(at int) string {
	line, column := r.in.position(at)
	return fmt.Sprintf("line %d, column %d: ", line, column)
}

// near quotes the text at an unread byte, for errors, with a little of what is
// before it. It does not depend on how the bytes arrive.
func (r *Reader) near(at int) string {
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

// longestExcerpt is how much of a document an error quotes, in characters.
const longestExcerpt = 60

// ahead quotes what comes next.
func (r *Reader) ahead() string {
	for len(r.in.unread()) <= longestExcerpt && r.in.fill() == nil {
	}
	return Excerpt(r.in.unread())
}

// excerpt quotes a little of a document, without the secrets of URLs. What it shows
// begins where text does, so that the names of parameters are part of it, and those
// that the user has named can be hidden later.
func Excerpt[T string | []byte](text T) string {
	var redact *safetext.Redactor
	return redact.Excerpt(string(text[:min(len(text), longestAddress)]), longestExcerpt)
}
