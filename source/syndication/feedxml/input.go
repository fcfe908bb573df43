package feedxml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

const (
	// firstBuffer is the size of the first buffer, in bytes. It is small, because most
	// polls find a few entries.
	firstBuffer = 16 << 10
	// usualBuffer is the usual size of later buffers. A larger one does not fit into
	// the processor's cache.
	usualBuffer = 64 << 10
)

// input is a stream of legal XML characters in UTF-8, with a buffer of the part that
// was read and not yet skipped. The buffer is reused, so a slice of it is valid until
// the next read. It grows to at most twice the largest piece.
type input struct {
	r io.Reader
	// buf[start:end] was read and is legal. buf[end:filled] is the beginning
	// of a character.
	buf                []byte
	start, end, filled int
	offset             int64 // of buf[start] in the stream
	// line is the number of lines that end before buf[start], and lineStart the offset
	// in the stream at which the current line begins.
	line      int
	lineStart int64
	replaced  bool  // r writes U+FFFD for bytes that it cannot decode
	err       error // the error behind buf[end]; r is not read after it

	// mixed reports that bytes which are not UTF-8 are windows-1252, and repair that
	// characters which XML does not allow are left out. report is called with the first
	// repairs, at their indexes in the unread bytes, and with the number of those after them.
	mixed, repair bool
	// strictUTF8 reports that bytes which are not UTF-8 are not repaired: what they are is not known.
	strictUTF8 bool
	report     func(first []fault, more int)
	// The first replacedBytes unread bytes replace bytes of the stream. owed is the
	// number of bytes by which they are longer.
	replacedBytes, owed int
}

// illegalByte is the error of an input at a byte that XML does not allow.
type illegalByte struct{ first byte }

func (illegalByte) Error() string { return "there is a character that XML does not have" }

// errHalfCharacter is the error of an input that ends within a character.
var errHalfCharacter = errors.New("the document ends within a character")

func (in *input) unreadBytes() []byte { return in.buf[in.start:in.end] }

// discardBytes skips the first n unread bytes.
func (in *input) discardBytes(n int) {
	if n == 0 {
		return // replaced bytes are still unread
	}
	b := in.buf[in.start : in.start+n]
	in.start += n
	in.offset += int64(n - in.owed)
	in.owed, in.replacedBytes = 0, 0
	if lines := bytes.Count(b, lineFeed); lines > 0 {
		in.line += lines
		in.lineStart = in.offset - int64(len(b)-1-bytes.LastIndexByte(b, '\n'))
	}
}

var lineFeed = []byte("\n")

// lineColumn returns the line and the column of an unread byte, both from 1. The
// column counts bytes.
func (in *input) lineColumn(at int) (line, column int) {
	b := in.unreadBytes()[:min(at, len(in.unreadBytes()))]
	line = in.line + bytes.Count(b, lineFeed) + 1
	if i := bytes.LastIndexByte(b, '\n'); i >= in.replacedBytes {
		return line, at - i
	}
	return line, int(in.offsetOf(at)-in.lineStart) + 1
}

// offsetOf returns where in the stream an unread byte is.
func (in *input) offsetOf(at int) int64 {
	if at >= in.replacedBytes {
		at -= in.owed
	}
	return in.offset + int64(at)
}

// replace replaces the first n unread bytes. The next discardBytes has to skip all of
// the new bytes. Offsets still count the bytes of the stream.
func (in *input) replace(n int, with []byte) {
	more := len(with) - n
	switch {
	case more <= in.start:
		in.start -= more
	case in.filled+more <= len(in.buf):
		copy(in.buf[in.start+len(with):], in.buf[in.start+n:in.filled])
		in.end += more
		in.filled += more
	default:
		buf := make([]byte, 2*(in.filled-in.start+more))
		kept := copy(buf[len(with):], in.buf[in.start+n:in.filled])
		in.end = len(with) + in.end - in.start - n
		in.start, in.filled, in.buf = 0, len(with)+kept, buf
	}
	copy(in.buf[in.start:], with)
	in.owed += more
	in.replacedBytes = len(with)
}

// readMore reads until the unread bytes behind from have doubled, so that a token that
// is scanned again after each read is not scanned too often, or until there are more
// than limit. It returns an error only if it read nothing.
func (in *input) readMore(from, limit int) error {
	had := in.end - in.start
	enough := min(had+max(had-from, 1), max(had, min(limit, math.MaxInt-1))+1)
	for in.end-in.start < enough {
		if err := in.readOnce(); err != nil {
			if in.end-in.start > had {
				return nil
			}
			return err
		}
	}
	return nil
}

// readOnce reads once. It returns nil only if it read something.
func (in *input) readOnce() error {
	for empty := 0; empty < 100; empty++ {
		if in.err != nil {
			return in.err
		}
		in.makeRoom()
		n, err := in.r.Read(in.buf[in.filled:])
		if n > 0 {
			empty = 0 // it may be characters only that are left out
		}
		in.filled += n
		good, bad := legalPrefix(in.buf[in.end:in.filled], in.replaced)
		var faults []fault
		more := 0
		if bad && (in.mixed || in.repair) {
			good, bad, faults, more = in.repairBytes()
		}
		in.end += good
		if len(faults) > 0 {
			in.report(faults, more)
		}
		switch {
		case bad:
			in.err = illegalByte{in.buf[in.end]}
		case err == io.EOF && in.end < in.filled && in.repair:
			in.report([]fault{{in.end - in.start, "the document ends within a character"}}, 0)
			in.filled, in.err = in.end, err
		case err == io.EOF && in.end < in.filled:
			in.err = errHalfCharacter
		case err != nil:
			in.err = err
		}
		if good > 0 {
			return nil
		}
	}
	if in.err == nil {
		in.err = io.ErrNoProgress
	}
	return in.err
}

// repairBytes replaces illegal bytes behind buf[end], and returns how many bytes are
// legal then, the first faults, and how many more there were.
func (in *input) repairBytes() (good int, bad bool, faults []fault, more int) {
	rest := bytes.Clone(in.buf[in.end:in.filled])
	var out []byte
	tell := func(at int, format string, args ...any) {
		if len(faults) == mostFaults {
			more++
			return
		}
		faults = append(faults, fault{at, fmt.Sprintf(format, args...)})
	}
	for {
		n, found := legalPrefix(rest, in.replaced)
		out = append(out, rest[:n]...)
		rest = rest[n:]
		if !found {
			break
		}
		c := rest[0]
		char, size := utf8.DecodeRune(rest)
		isEncoding := c >= utf8.RuneSelf && size == 1
		if mends := in.repair && (!isEncoding || !in.strictUTF8) || in.mixed && isEncoding; !mends {
			bad = true
			break
		}
		at := in.end - in.start + len(out)
		switch {
		case isEncoding:
			if char = charmap.Windows1252.DecodeByte(c); !isChar(char) || char < ' ' {
				char = utf8.RuneError
			}
			out = utf8.AppendRune(out, char)
			if !in.mixed {
				tell(at, "there is the byte %#x, which is no UTF-8; it is taken for windows-1252", c)
			}
		case char == utf8.RuneError:
			out = append(out, rest[:size]...)
			tell(at, "there are bytes that are no character of the document's encoding")
		default:
			tell(at, "there is the character U+%04X, which is not allowed", char)
		}
		rest = rest[size:]
	}
	if in.end+len(out)+len(rest) > len(in.buf) {
		buf := make([]byte, 2*(in.end-in.start+len(out)+len(rest)))
		in.end = copy(buf, in.buf[in.start:in.end])
		in.start, in.buf = 0, buf
	}
	copy(in.buf[in.end:], out)
	in.filled = in.end + len(out) + copy(in.buf[in.end+len(out):], rest)
	return len(out), bad, faults, more
}

// makeRoom makes room in the buffer.
func (in *input) makeRoom() {
	if in.filled < len(in.buf) {
		return
	}
	buf := in.buf
	if kept := in.filled - in.start; 2*kept > len(buf) || len(buf) < usualBuffer {
		buf = make([]byte, max(firstBuffer, 2*len(buf)))
	}
	in.filled = copy(buf, in.buf[in.start:in.filled])
	in.end -= in.start
	in.start, in.buf = 0, buf
}
