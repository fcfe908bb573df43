package source

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
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
	decoded io.Reader // wire, or the gunzip that unpacks it
	n       int64     // bytes read from decoded
	limit   int64
	err     error // what ended the body; every later Read returns it
}

// newBody returns the body raw of the answer to request. It may have limit bytes on the wire, and as many
// unpacked. size is its Content-Length, or negative if that is unknown. idle limits the wait for each read. If
// it is nil, the current deadline of the call stays in force.
func newBody(request string, raw io.ReadCloser, size int64, d *deadline, limit int64, packed bool, idle *timeoutError) *body {
	w := &wire{raw: raw, deadline: d, idle: idle, limit: limit, size: size}
	b := &body{request: request, wire: w, decoded: w, limit: limit}
	if packed {
		b.decoded = &gunzip{wire: w}
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
		n, err = n-int(over), tooLarge("the page has more than %d bytes (limits.page); raise it if the provider has pages so large", b.limit)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // only the bare value is a good end
		if reason := b.wire.deadline.endReason(); reason != nil {
			err = reason
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the body ended early; it is requested again; if this persists, the provider sends broken pages: %w", err)
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
}

func (w *wire) Read(p []byte) (int, error) {
	if w.idle != nil {
		w.deadline.startWait(w.idle)
		defer w.deadline.stopWait()
	}
	n, err := w.raw.Read(p)
	w.n += int64(n)
	if over := w.n - w.limit; over > 0 {
		return n - int(over), tooLarge("the page has more than %d bytes on the wire (limits.page); raise it if the provider has pages so large", w.limit)
	}
	return n, err
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

// gunzip unpacks a body. Unlike [gzip.Reader] it reads nothing before the
// first Read, and returns an error for an empty body, which is not an empty page.
type gunzip struct {
	wire *wire
	unz  *gzip.Reader
	n    int64
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.unz == nil {
		unz, err := gzip.NewReader(bufio.NewReaderSize(g.wire, 32<<10))
		if err == io.EOF { //nolint:errorlint // only the bare value means that there was nothing
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		g.unz = unz
	}
	n, err := g.unz.Read(p)
	g.n += int64(n)
	if g.n > bombFloor && g.n > bombRatio*g.wire.n {
		return 0, tooLarge("the page unpacks to more than %d times its size; if that is right, add the header \"Accept-Encoding: identity\"", bombRatio)
	}
	return n, err
}
