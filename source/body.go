package source

import (
	"bufio"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/andybalholm/brotli"
)

const (
	mostPage = 1 << 30 // bytes of a page
	// bombFloor and bombRatio bound the size of a decompressed body: after the first 16
	// MiB, no text of a real feed was seen that compresses to a 500th, while a body made to
	// exhaust its reader compresses to a 1000th.
	bombFloor = 16 << 20
	bombRatio = 500
	// drainBytes and drainTime bound the effort to read a body to its end, so
	// that the connection can be used again.
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// drainTimeout ends a drain. It is not returned to the caller: the connection is closed.
var drainTimeout = &timeoutError{what: "the rest of the body did not arrive", limit: drainTime}

// body is a response's body as the caller reads it: decoded, limited before
// and after that, and with a deadline for each read. Its errors name the request.
type body struct {
	request string // "GET https://..."
	wire    *wire
	decoded io.Reader // wire, or the unpacker that decodes it
	n       int64     // bytes read from decoded
	limit   int64
	err     error // what ended the body; every later Read returns it
}

// newBody returns the body raw of the answer to request, which open unpacks; nil if it is not compressed. It may
// have limit bytes on the wire, and as many unpacked. size is its Content-Length, or negative if that is unknown.
// idle limits the wait for each read. If it is nil, the current deadline of the call stays in force.
func newBody(request string, raw io.ReadCloser, size int64, d *deadline, limit int64, open decoding, idle *timeoutError) *body {
	w := &wire{raw: raw, deadline: d, idle: idle, limit: limit, size: size}
	b := &body{request: request, wire: w, decoded: w, limit: limit}
	if open != nil {
		b.decoded = &unpacker{wire: w, open: open}
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.decoded.Read(p)
	b.n += int64(n)
	if over := b.n - b.limit; over > 0 {
		n, err = n-int(over), errPageTooLarge(b.limit)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // only the bare value is a good end
		switch reason := b.wire.deadline.endReason(); {
		case reason != nil:
			err = reason
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = fmt.Errorf("the body ended early; it is requested again; if this persists, the provider sends broken pages: %w", err)
		case !b.wire.failed && !errors.Is(err, ErrTooLarge):
			err = fmt.Errorf("the body is not what its Content-Encoding says; it is requested again; if this persists, add the header \"Accept-Encoding: identity\": %w", err)
		}
		err = fmt.Errorf("%s: %w", b.request, err)
	}
	b.err = err
	return n, err
}

// Close makes the connection available for other requests, or closes it if too much of the
// body is left.
func (b *body) Close() error {
	if b.err == nil {
		b.wire.drainRest()
		b.err = fmt.Errorf("%s: %w", b.request, http.ErrBodyReadAfterClose)
	}
	return b.wire.close()
}

// wire is the body as it comes from the connection.
type wire struct {
	raw      io.ReadCloser
	deadline *deadline
	idle     *timeoutError
	n, limit int64
	size     int64 // the Content-Length, or -1
	failed   bool  // an error other than the end has come
}

func (w *wire) Read(p []byte) (int, error) {
	if w.idle != nil {
		w.deadline.startWait(w.idle)
		defer w.deadline.stopWait()
	}
	n, err := w.raw.Read(p)
	w.n += int64(n)
	w.failed = err != nil && err != io.EOF
	if over := w.n - w.limit; over > 0 {
		// The decoders may read on after an error.
		return n - int(min(over, int64(n))), errPageTooLarge(w.limit)
	}
	return n, err
}

func errPageTooLarge(limit int64) error {
	return tooLarge("the page has more than %d bytes, and no larger one is read; the provider must divide it into several", limit)
}

// drainRest reads the rest, unless there is none or too much of it.
func (w *wire) drainRest() {
	if w.raw == http.NoBody || w.size-w.n > drainBytes {
		return
	}
	w.deadline.startWait(drainTimeout)
	_, _ = io.CopyN(io.Discard, w.raw, drainBytes)
	w.deadline.stopWait()
}

func (w *wire) close() error {
	err := w.raw.Close()
	w.deadline.endRequest()
	return err
}

// decoding returns a reader of the unpacked bytes of a body.
type decoding func(*bufio.Reader) (io.Reader, error)

// decodings has the values of Content-Encoding that can be read (RFC 9110, section 8.4.1). Only gzip is
// requested; some servers and caches send the others nevertheless.
var decodings = map[string]decoding{
	"": nil, "identity": nil, "gzip": openGzip, "x-gzip": openGzip, "deflate": openDeflate,
	"br": func(r *bufio.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
}

func openGzip(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// openDeflate opens a body in the zlib format, or in the bare deflate format that some servers send under that
// name. The first two bytes distinguish them: those of zlib name the method 8 and are a multiple of 31.
func openDeflate(r *bufio.Reader) (io.Reader, error) {
	if head, err := r.Peek(2); err != nil || head[0]&15 != 8 || binary.BigEndian.Uint16(head)%31 != 0 {
		return flate.NewReader(r), nil // which returns the error
	}
	return zlib.NewReader(r)
}

// unpacker decodes a compressed body. It reads nothing before the first Read, and returns an error for an empty
// body, which is not an empty page, and for one that has more than what was compressed.
type unpacker struct {
	wire *wire
	open decoding
	in   *bufio.Reader // of wire; nil before the first Read
	out  io.Reader
	n    int64
}

func (u *unpacker) Read(p []byte) (int, error) {
	if u.out == nil {
		u.in = bufio.NewReaderSize(u.wire, 32<<10)
		_, err := u.in.Peek(1)
		if err == nil {
			u.out, err = u.open(u.in)
		}
		if err == io.EOF { //nolint:errorlint // only the bare value means that there was nothing
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
	}
	n, err := u.out.Read(p)
	u.n += int64(n)
	if u.n > bombFloor && u.n > bombRatio*u.wire.n {
		return 0, tooLarge("the page unpacks to more than %d times its size; if that is right, add the header \"Accept-Encoding: identity\"", bombRatio)
	}
	if err == io.EOF {
		// The end of the wire has to be seen for the connection to be used again.
		if _, end := u.in.Peek(1); end != io.EOF {
			return n, cmp.Or(end, errors.New("there are bytes behind the compressed body"))
		}
	}
	return n, err
}
