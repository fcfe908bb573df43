package syndication

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/feedbridge/feedbridge/source"
)

// copyBlock is the size of the parts in which a copy is compressed, in bytes. A copy that is
// written or read has one such part uncompressed.
const copyBlock = 64 << 10

// responseCopy is an answer whose body is in memory, compressed. It can be read any number of
// times. The documents of a feed repeat their element names, and often much of their text, so
// they usually compress to a fifth.
type responseCopy struct {
	response source.Response // Body is not used
	received time.Time
	blocks   [][]byte
	size     int64 // in memory, in bytes
	// err is the error with which the body ended; [io.EOF] if it is complete.
	err error
}

// open returns the answer with a body to read.
func (c *responseCopy) open() *source.Response {
	r := c.response
	r.Body = io.NopCloser(&copyReader{copy: c})
	return &r
}

// memorySize returns the memory of the copy, in bytes; 0 for nil.
func (c *responseCopy) memorySize() int64 {
	if c == nil {
		return 0
	}
	return c.size
}

// copyReader reads the body of a copy.
type copyReader struct {
	copy   *responseCopy
	next   int // block
	buffer []byte
	rest   []byte // of buffer
}

func (r *copyReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.next == len(r.copy.blocks) {
			return 0, r.copy.err
		}
		var err error
		if r.buffer, err = s2.Decode(r.buffer, r.copy.blocks[r.next]); err != nil {
			return 0, err
		}
		r.next++
		r.rest = r.buffer
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// errCopyLimit is the error of a copyWriter whose copy would be too large.
var errCopyLimit = errors.New("the copy of the document would be too large")

// copyWriter makes a copy of a body.
type copyWriter struct {
	limit  int64 // of size, in bytes
	blocks [][]byte
	size   int64
	plain  []byte // not compressed yet
	err    error  // of the last read; nil is [io.EOF]
}

// stepBytes is the estimated memory of a document of a pending poll without its entries and
// its URL, in bytes.
const stepBytes = 300

// newCopyWriter returns a writer for the copy of an answer. The copy may take limit bytes.
func newCopyWriter(resp *source.Response, limit int64) *copyWriter {
	return &copyWriter{limit: limit, size: stepBytes + int64(headerSize(resp.Header))}
}

// memorySize returns the memory of the unfinished copy, in bytes; 0 for nil.
func (w *copyWriter) memorySize() int64 {
	if w == nil {
		return 0
	}
	return w.size + int64(cap(w.plain))
}

// write adds a part of the body. After errCopyLimit the copy is of no use.
func (w *copyWriter) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), copyBlock-len(w.plain))
		w.plain, p = append(w.plain, p[:n]...), p[n:]
		if len(w.plain) == copyBlock {
			w.compress()
		}
		if w.size > w.limit {
			return errCopyLimit
		}
	}
	return nil
}

func (w *copyWriter) compress() {
	// A block that is encoded has room for one that does not compress.
	block := bytes.Clone(s2.EncodeBetter(nil, w.plain))
	w.blocks, w.size, w.plain = append(w.blocks, block), w.size+int64(len(block)), w.plain[:0]
}

// finish returns the copy of an answer, or nil if it would be too large.
func (w *copyWriter) finish(resp *source.Response, received time.Time) *responseCopy {
	if len(w.plain) > 0 {
		w.compress()
	}
	if w.plain = nil; w.size > w.limit {
		return nil
	}
	c := &responseCopy{response: *resp, received: received, blocks: w.blocks, size: w.size, err: cmp.Or(w.err, io.EOF)}
	c.response.Body = nil
	return c
}

// headerSize returns the estimated memory of a header, in bytes.
func headerSize(h http.Header) int {
	n := 0
	for name, values := range h {
		n += len(name) + 50
		for _, v := range values {
			n += len(v) + 20
		}
	}
	return n
}
