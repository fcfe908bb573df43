package feedxml

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// The errors that end the reading of a document. None of them is permanent: the next
// request may get a correct document.
var (
	// ErrNotFeed reports that the document is something else, such as an error
	// page that came with status 200.
	ErrNotFeed = errors.New("check that the url is a feed's; if it is, the provider answers with something else")
	// ErrTruncated reports that the document broke off before the end tag of its
	// root element.
	ErrTruncated = fmt.Errorf("the document breaks off before it is complete; it is read again; if this persists, the provider writes broken documents: %w", io.ErrUnexpectedEOF)
	// ErrMalformed reports that the document is not well-formed XML.
	ErrMalformed = errors.New("nothing after it is read until the provider corrects the document")
	// ErrTrailing reports that something follows the root element. All of the
	// document's entries were read before.
	ErrTrailing = errors.New("the provider has to end the document there")
	// ErrTooLarge reports that a part of the document is above its limit.
	ErrTooLarge = errors.New("raise the key that is named here; if there is none, the limit is fixed: report this to the provider")
	// ErrCharset reports that the document's encoding is not known, or that it has
	// bytes which are invalid in this encoding.
	ErrCharset = errors.New("the provider has to send UTF-8, or to name the encoding that it uses")
)

// errLargePiece is the kind of error of a piece that is above its limit, as opposed to one with
// too many attributes, children or levels.
var errLargePiece = fmt.Errorf("%w", ErrTooLarge)

// largeError is the error of a piece that is not well-formed, and above its limit.
type largeError struct{ error }

func (e largeError) Unwrap() error        { return e.error }
func (e largeError) Is(target error) bool { return target == errLargePiece }

// syntaxError is a breach of XML, or of a limit that is not 0, at a byte of the piece that is being read.
type syntaxError struct {
	at     int
	detail string
	limit  int
}

func (e *syntaxError) Error() string { return e.detail }

func syntaxErrorf(at int, format string, args ...any) *syntaxError {
	return &syntaxError{at: at, detail: fmt.Sprintf(format, args...)}
}

// documentError is an error at a byte of the document. A lenient reader repairs most of
// them, and quoting the text there takes longer than a repair, so the text of an error
// is made only when it is returned.
type documentError struct {
	kind   error
	at     int // an unread byte
	detail string
	text   string // "" until the error is described
}

func (e *documentError) Error() string {
	if e.text == "" {
		return e.detail + ": " + e.kind.Error()
	}
	return e.text
}

func (e *documentError) Unwrap() error { return e.kind }

// longestExcerpt is the maximum length of a quotation in an error, in characters.
const longestExcerpt = 60

// Excerpt quotes the beginning of a text of a document, without the secrets of URLs. It
// begins where the text does, so the names of parameters are part of it, and those that
// the user has named can be hidden later.
func Excerpt[T string | []byte](text T) string {
	var redact *safetext.Redactor
	return redact.Excerpt(string(text[:min(len(text), longestAddress)]), longestExcerpt)
}

// excerptName is [Excerpt] for a name of XML, in which no secret can be. It does not read all of a
// long name, because a document may have one that many errors quote.
func excerptName[T string | []byte](name T) string {
	return Excerpt(name[:min(len(name), (longestExcerpt+1)*utf8.UTFMax)])
}

// quoteNames replaces each %s of a text by the excerpt of a name. Without names, the text
// stays as it is.
func quoteNames(text string, names []string) string {
	if len(names) == 0 {
		return text
	}
	excerpts := make([]any, len(names))
	for i, name := range names {
		excerpts[i] = excerptName(name)
	}
	return fmt.Sprintf(text, excerpts...)
}

// fault is a breach of XML that was repaired, at a byte of the piece.
type fault struct {
	at     int
	detail string
}

// mostFaults is the maximum number of faults that are described.
const mostFaults = 3
