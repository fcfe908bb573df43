package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/feedbridge/feedbridge/feed"
)

// ErrTruncated reports that a page ends before its closing delimiter. It is
// transient: the next request may get the whole page.
var ErrTruncated = fmt.Errorf("the page breaks off before its closing delimiter; it is read again; if this persists, the provider writes broken pages: %w", io.ErrUnexpectedEOF)

const (
	firstChunk    = 16 << 10 // bytes; small, because most polls find a few entities
	largestChunk  = 64 << 10 // bytes; larger ones leave the processor's cache before they are read
	largestHeader = 64 << 10 // bytes of a part's header
	// largestPadding is the largest number of blanks behind a delimiter. Without it a
	// Reader would wait for the end of a line that has none.
	largestPadding = 1 << 10
)

// Part is one part of a page. Its header and body share memory with other parts
// and must not be written to. They stay valid, and do not change, when the Reader reads on, until
// the [Buffers] that they belong to are freed.
type Part struct {
	Header feed.Header
	Body   []byte
	Offset int64 // of the part's first byte in the page, after its delimiter line
}

// Reader reads the parts of a page. Lines end with CRLF or LF, in any mixture. A
// delimiter is a line that starts with "--" and the boundary, followed by blanks only,
// or by "--", which ends the page. Every other line is data.
//
// Parts are returned without copying: each is a slice of the chunk that it was read
// into. A chunk is written only after the bytes that were read before, so a part that
// was returned never changes. A chunk is garbage when all of its parts are, or is used again when
// the [Buffers] of all of its parts have been freed. Chunks have
// 64 KiB at most. A larger part has memory of its own, which it shares with no other
// part, and of which at most an eighth is unused. A part above the limit is refused as
// soon as so many of its bytes were read.
//
// A Reader is used by one goroutine.
type Reader struct {
	r         io.Reader
	page      string // for errors
	maxEntity int    // bytes, headers and body
	// delimiter is the beginning of every delimiter: a line end, "--" and the
	// boundary.
	delimiter []byte

	// chunk[start:end] was read and not yet returned. The methods below count
	// positions from start.
	chunk      []byte
	start, end int
	offset     int64 // of chunk[start] in the page
	nextChunk  int   // size of the chunk after this one
	maxChunk   int   // size of the largest chunk, unless it is a part's own
	// own reports that the chunk belongs to the part at its start, and to no other.
	own bool
	// pooled has the chunk, if it can be used again; else it is nil.
	pooled *chunk
	// lastOwn is the size of the last part that had memory of its own.
	lastOwn int
	// Reserve is called before n bytes are allocated, for parts and for the fields of their headers,
	// except for the first chunk and for
	// those that follow a part with memory of its own. If it fails, Next returns its error,
	// and can be called again: nothing of the page is lost. If grows is set, a large part, or its
	// beginning, is in memory and needs them. That stays
	// allocated if Reserve fails, so it should wait rather than fail. Nil reserves nothing.
	Reserve func(n int, grows bool) error
	// Free is called when n bytes that were reserved are no longer used. The bytes of parts
	// that were returned are never freed. It may be nil.
	Free func(n int)
	// Buffers hold the memory of the parts that Next returns from now on. Nil leaves it to the
	// garbage collector.
	Buffers *Buffers
	readErr error // of r, which is not read again after it

	begun  bool  // the first delimiter was read
	closed bool  // the closing delimiter was read
	err    error // that Next returned, and returns from then on

	fieldEnds []int        // of the header that was read last
	last      feed.Header  // of the part that was returned last
	fields    []feed.Field // that headers are cut from
}

// reserveError is an error of Reader.Reserve.
type reserveError struct{ error }

// NewReader returns a reader of the page whose body is r. The name of the page is used
// in errors. Parts of more than maxEntity bytes, headers and body together, are refused.
func NewReader(r io.Reader, boundary, page string, maxEntity int) *Reader {
	p := &Reader{
		r: r, page: page, maxEntity: maxEntity,
		delimiter: []byte("\n--" + boundary),
		chunk:     make([]byte, firstChunk), nextChunk: 2 * firstChunk, maxChunk: largestChunk,
	}
	// The first line of the page may be a delimiter, too, so a line end is put before it.
	p.chunk[0] = '\n'
	p.end, p.offset = 1, -1
	return p
}

// Next returns the next part after it has read the delimiter that ends it. After the
// closing delimiter it returns [io.EOF] itself; the rest of the page is ignored and may be
// left unread. If the page ends without a closing delimiter, the error matches
// [ErrTruncated]. An error of the body is returned unchanged. A malformed page gives an
// error that matches [feed.ErrPermanent]. All of these are returned again by the next
// call. An error of Reserve is returned unchanged, and once.
func (r *Reader) Next() (Part, error) {
	if r.err != nil {
		return Part{}, r.err
	}
	next, err := r.readPart()
	if refused, ok := errors.AsType[*reserveError](err); ok {
		return Part{}, refused.error
	}
	r.err = err
	if err == nil && r.pooled != nil {
		if r.Buffers == nil {
			r.pooled = nil // without Buffers parts are not freed, so the chunk is not used again
		} else {
			r.Buffers.retain(r.pooled)
		}
	}
	return next, err
}

// Close ends the use of the Reader. Parts that were returned stay valid. A Reader that is not
// closed leaves its last chunk to the garbage collector.
func (r *Reader) Close() {
	r.pooled.release()
	r.pooled, r.chunk, r.start, r.end = nil, nil, 0, 0
	r.fields, r.last = nil, nil
	r.err = errClosed
}

var errClosed = errors.New("the reader of the page is closed")

func (r *Reader) readPart() (Part, error) {
	if !r.begun {
		if err := r.skipPreamble(); err != nil {
			return Part{}, err
		}
		r.begun = true
	}
	if r.closed {
		return Part{}, io.EOF
	}
	header, err := r.readHeader()
	if err != nil {
		return Part{}, err
	}
	// If there is no body, the line end of the blank line may be that of the delimiter.
	bodyEnd, behind, kind, err := r.readBody(header.blank)
	if err != nil {
		return Part{}, err
	}
	var next Part
	if r.own {
		next, err = r.cutOwn(header, bodyEnd, behind)
	} else if next, err = r.cutPart(r.unreadBytes(), header, bodyEnd); err == nil {
		r.discardBytes(behind)
	}
	if err != nil {
		return Part{}, err // the part is still there if a reservation was refused
	}
	r.closed = kind == closing
	return next, nil
}

// cutPart returns the part at the start of b, whose body ends at bodyEnd.
func (r *Reader) cutPart(b []byte, header headerExtent, bodyEnd int) (Part, error) {
	fields, err := r.parseHeader(b[:header.size], header)
	if err != nil {
		return Part{}, err
	}
	return Part{Header: fields, Body: b[min(header.end, bodyEnd):bodyEnd:bodyEnd], Offset: r.offset}, nil
}

// cutOwn is cut for a part that has memory of its own. The Reader keeps nothing that
// refers to that memory, because a page may stay open after its parts were published.
func (r *Reader) cutOwn(header headerExtent, bodyEnd, behind int) (Part, error) {
	b, rest := r.chunk[:bodyEnd], r.chunk[behind:r.end]
	if err := r.reserveBytes(len(r.fieldEnds)*fieldSize, true); err != nil {
		return Part{}, err
	}
	r.lastOwn = behind
	if unused := len(r.chunk) - bodyEnd; unused > bodyEnd/8 {
		b = make([]byte, bodyEnd)
		copy(b, r.chunk)
		r.freeBytes(unused)
	}
	r.fields = make([]feed.Field, 0, len(r.fieldEnds))
	next, err := r.cutPart(b, header, bodyEnd)
	r.fields, r.last = nil, nil
	chunk := make([]byte, max(firstChunk, len(rest)))
	r.start, r.end = 0, copy(chunk, rest)
	r.offset += int64(behind)
	r.chunk, r.own = chunk, false
	return next, err
}

// A delimiterKind is a result of search.
type delimiterKind int

const (
	noDelimiter      delimiterKind = iota
	unfinished                     // more bytes are needed to decide
	opening                        // another part follows
	closing                        // the page ends here
	delimiterTooLong               // it is followed by more blanks than we read
)

// skipPreamble skips everything up to and including the first delimiter.
func (r *Reader) skipPreamble() error {
	for {
		at, behind, kind := r.findDelimiter(0)
		switch kind {
		case opening, closing:
			r.discardBytes(behind)
			r.closed = kind == closing
			return nil
		case delimiterTooLong:
			return r.breachAt(kindBadPart, at+1, "a delimiter is followed by more than %d blanks", largestPadding)
		}
		r.discardBytes(at)
		if err := r.readMore(); err != nil {
			return err
		}
	}
}

// headerExtent is the position of a part's header. The ends of its fields are in
// Reader.fieldEnds.
type headerExtent struct {
	size    int  // of the fields
	blank   int  // the last byte of the blank line that ends the header
	end     int  // after the blank line
	folded  bool // whether some field has several lines
	returns int  // number of carriage returns that belong to line ends
}

// readHeader reads up to and including the blank line after a part's header.
func (r *Reader) readHeader() (headerExtent, error) {
	r.fieldEnds = r.fieldEnds[:0]
	var extent headerExtent
	line, scanned := 0, 0
	for {
		b := r.unreadBytes()
		i := bytes.IndexByte(b[scanned:], '\n')
		if i < 0 {
			scanned = len(b)
			if len(b) > largestHeader+len("\r\n") {
				return headerExtent{}, r.headerTooLarge()
			}
			if err := r.readMore(); err != nil {
				return headerExtent{}, err
			}
			continue
		}
		eol := scanned + i
		if eol == line || eol == line+1 && b[line] == '\r' {
			extent.size, extent.blank, extent.end = line, eol, eol+1
			return extent, nil
		}
		if eol > largestHeader {
			return headerExtent{}, r.headerTooLarge()
		}
		if mark := r.delimiter[1:]; b[line] == '-' && bytes.HasPrefix(b[line:], mark) {
			if _, kind := classify(b[line+len(mark) : eol+1]); kind != noDelimiter {
				return headerExtent{}, r.breachAt(kindBadPart, line, "a part's header ends in a delimiter, without a blank line")
			}
		}
		if b[eol-1] == '\r' {
			extent.returns++
		}
		// A line that starts with a blank continues the field before it.
		if last := len(r.fieldEnds) - 1; isBlank(b[line]) && last >= 0 {
			r.fieldEnds[last] = eol + 1
			extent.folded = true
		} else {
			r.fieldEnds = append(r.fieldEnds, eol+1)
		}
		line, scanned = eol+1, eol+1
	}
}

func (r *Reader) headerTooLarge() error {
	return r.breachAt(kindEntityHeaderTooLarge, 0, "a part's header is larger than %d bytes", largestHeader)
}

// readBody reads up to and including the next delimiter that starts at from or
// later. It returns the end of the body before the delimiter, the position after the
// delimiter, and its kind.
func (r *Reader) readBody(from int) (bodyEnd, behind int, kind delimiterKind, err error) {
	for {
		at, behind, kind := r.findDelimiter(from)
		b := r.unreadBytes()
		bodyEnd = at
		if at > 0 && b[at-1] == '\r' {
			bodyEnd--
		}
		// Without a delimiter, at is the first position where one may still start.
		if bodyEnd > r.maxEntity {
			return 0, 0, kind, r.breachAt(kindEntityTooLarge, 0, "an entity is larger than the limit of %d bytes", r.maxEntity)
		}
		switch kind {
		case opening, closing:
			return bodyEnd, behind, kind, nil
		case delimiterTooLong:
			return 0, 0, kind, r.breachAt(kindBadPart, at+1, "a delimiter is followed by more than %d blanks", largestPadding)
		}
		from = at
		if err := r.readMore(); err != nil {
			return 0, 0, kind, err
		}
	}
}

// findDelimiter looks for a delimiter that starts at from or later. If there is one,
// or may be one, it starts at at; otherwise at is the first position where one may still
// start. behind is the end of the delimiter's line.
func (r *Reader) findDelimiter(from int) (at, behind int, kind delimiterKind) {
	b := r.unreadBytes()
	for {
		i := bytes.Index(b[from:], r.delimiter)
		if i < 0 {
			return max(from, len(b)-len(r.delimiter)+1), 0, noDelimiter
		}
		at = from + i
		behind = at + len(r.delimiter)
		if n, kind := classify(b[behind:]); kind != noDelimiter {
			return at, behind + n, kind
		}
		from = at + 1
	}
}

// classify reports which kind of delimiter a line is, given the bytes after "--" and the
// boundary. For a delimiter, n is the number of those bytes that belong to it.
func classify(rest []byte) (n int, kind delimiterKind) {
	if len(rest) > 0 && rest[0] == '-' {
		switch {
		case len(rest) == 1:
			return 0, unfinished
		case rest[1] == '-':
			return 2, closing
		}
		return 0, noDelimiter
	}
	for n < len(rest) && (rest[n] == ' ' || rest[n] == '\t') {
		n++
	}
	switch rest = rest[n:]; {
	case n > largestPadding:
		return 0, delimiterTooLong
	case len(rest) == 0 || len(rest) == 1 && rest[0] == '\r':
		return 0, unfinished
	case rest[0] == '\n':
		return n + 1, opening
	case rest[0] == '\r' && rest[1] == '\n':
		return n + 2, opening
	}
	return 0, noDelimiter
}

// unreadBytes returns the bytes that were read and not yet returned.
func (r *Reader) unreadBytes() []byte { return r.chunk[r.start:r.end] }

// discardBytes discards the first n unread bytes.
func (r *Reader) discardBytes(n int) {
	r.start += n
	r.offset += int64(n)
}

// readMore reads more bytes. It returns nil only if it read at least one.
func (r *Reader) readMore() error {
	if r.end == len(r.chunk) {
		if err := r.growChunk(); err != nil {
			return err
		}
	}
	for range 100 {
		if r.readErr != nil {
			break
		}
		var n int
		// A part's own memory should have few bytes of the parts after it.
		n, r.readErr = r.r.Read(r.chunk[r.end:min(len(r.chunk), r.end+r.maxChunk)])
		if n > 0 {
			r.end += n
			return nil
		}
	}
	switch {
	case r.readErr == nil:
		return io.ErrNoProgress
	case errors.Is(r.readErr, io.EOF):
		return fmt.Errorf("%s ends at byte %d: %w", r.page, r.offset+int64(r.end-r.start), ErrTruncated)
	}
	return r.readErr
}

// growChunk moves the unread bytes to another chunk, which has room for more.
func (r *Reader) growChunk() error {
	rest := r.unreadBytes()
	// No part needs more than enough bytes.
	enough := r.maxEntity + len(r.delimiter) + largestChunk
	size := max(r.nextChunk, min(2*len(rest), enough))
	own := r.begun && size > r.maxChunk
	if own {
		// Parts are often about as large as the one before.
		size = max(size, min(r.lastOwn+largestPadding, enough))
	}
	if err := r.reserveBytes(size, r.own); err != nil {
		return err
	}
	// The chunk before is released after its rest was copied.
	before := r.pooled
	defer before.release()
	var chunk []byte
	if r.pooled = nil; r.Buffers != nil && size == largestChunk {
		r.pooled = newChunk()
		chunk = r.pooled.bytes
	} else {
		chunk = make([]byte, size)
	}
	n := copy(chunk, rest)
	if r.own {
		r.freeBytes(len(r.chunk))
	}
	r.start, r.end = 0, n
	r.chunk, r.own = chunk, own
	// Arrays of fields refer to the chunks of their parts.
	r.fields, r.last = nil, nil
	if !own {
		r.nextChunk = min(2*r.nextChunk, r.maxChunk)
	}
	return nil
}

// reserveBytes calls Reserve. Its error matches reserveError.
func (r *Reader) reserveBytes(n int, grows bool) error {
	if r.Reserve == nil || n == 0 {
		return nil
	}
	if err := r.Reserve(n, grows); err != nil {
		return &reserveError{err}
	}
	return nil
}

func (r *Reader) freeBytes(n int) {
	if r.Free != nil {
		r.Free(n)
	}
}

// breachAt returns the error about a breach at an unread byte.
func (r *Reader) breachAt(kind string, at int, format string, args ...any) error {
	return newBreach(kind, r.page, format+", at byte %d", append(args, r.offset+int64(at))...)
}
