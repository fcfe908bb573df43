package syndication

import (
	"errors"
	"io"
)

const (
	// firstBuffer is how much is read at first, in bytes; small, because most
	// polls find a few entries.
	firstBuffer = 16 << 10
	// usualBuffer is how much is read at once later. More falls out of the
	// processor's cache before it is looked at.
	usualBuffer = 64 << 10
)

// input is a stream of legal XML characters in UTF-8, and the part of it that
// was read and not yet left behind. The buffer is used again for what comes
// next, so a slice of it is good until the next fill. It grows to twice the
// largest piece at most.
type input struct {
	r io.Reader
	// buf[start:end] was read and is legal. buf[end:filled] is the beginning
	// of a character.
	buf                []byte
	start, end, filled int
	offset             int64 // of buf[start] in the stream
	replaced           bool  // r writes U+FFFD for what it cannot decode
	err                error // what comes behind buf[end]; r is not read after it
}

// illegal is what an input fails with at a byte that XML does not have.
type illegal struct{ first byte }

func (illegal) Error() string { return "there is a character that XML does not have" }

// errHalfCharacter is what an input fails with if it ends within a character.
var errHalfCharacter = errors.New("the document ends within a character")

func (in *input) unread() []byte { return in.buf[in.start:in.end] }

// skip leaves the first n unread bytes behind.
func (in *input) skip(n int) {
	in.start += n
	in.offset += int64(n)
}

// more reads until what is unread behind from has doubled, so that a token that
// is looked at again after each reading is not looked at too often, or until
// there is more than limit. It fails only if it got nothing.
func (in *input) more(from, limit int) error {
	had := in.end - in.start
	enough := min(had+max(had-from, 1), max(had, limit)+1)
	for in.end-in.start < enough {
		if err := in.fill(); err != nil {
			if in.end-in.start > had {
				return nil
			}
			return err
		}
	}
	return nil
}

// fill reads once. It returns nil only if it got something.
func (in *input) fill() error {
	for range 100 {
		if in.err != nil {
			return in.err
		}
		in.room()
		n, err := in.r.Read(in.buf[in.filled:])
		in.filled += n
		good, bad := legal(in.buf[in.end:in.filled], in.replaced)
		in.end += good
		switch {
		case bad:
			in.err = illegal{in.buf[in.end]}
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

// room makes room in the buffer.
func (in *input) room() {
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
