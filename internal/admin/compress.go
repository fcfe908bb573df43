package admin

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
)

// compressors has gzip writers that are not in use. Each has buffers of about a megabyte.
var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is valid
	return w
}}

// leastCompressed is the size of the smallest answer that is compressed, in bytes. For a smaller
// one the buffers take more time and memory than a client on the network could save.
const leastCompressed = 32 << 10

// compress compresses large answers of next for clients that accept gzip. The status of thousands
// of feeds has many megabytes, of which about a tenth is left. An answer counts as large by its
// first Write.
func compress(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !acceptsGzip(r) {
			next(w, r)
			return
		}
		answer := compressedAnswer{ResponseWriter: w, status: http.StatusOK}
		next(&answer, r)
		answer.close()
	}
}

// acceptsGzip reports whether the client accepts gzip, with any preference.
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		refused := strings.Trim(strings.TrimPrefix(strings.TrimSpace(weight), "q="), "0.") == "" && weight != ""
		if strings.EqualFold(strings.TrimSpace(name), "gzip") && !refused {
			return true
		}
	}
	return false
}

// compressedAnswer compresses the body of an answer if it is large.
type compressedAnswer struct {
	http.ResponseWriter
	status int
	begun  bool         // the header was sent
	body   *gzip.Writer // nil if the answer is not compressed
}

// WriteHeader keeps the status until it is known whether the answer is compressed.
func (a *compressedAnswer) WriteHeader(status int) { a.status = status }

func (a *compressedAnswer) Write(b []byte) (int, error) {
	a.begin(len(b) >= leastCompressed)
	if a.body == nil {
		return a.ResponseWriter.Write(b)
	}
	return a.body.Write(b)
}

// begin sends the header, unless it was sent.
func (a *compressedAnswer) begin(large bool) {
	if a.begun {
		return
	}
	a.begun = true
	if large {
		a.Header().Set("Content-Encoding", "gzip")
		a.body = compressors.Get().(*gzip.Writer)
		a.body.Reset(a.ResponseWriter)
	}
	a.ResponseWriter.WriteHeader(a.status)
}

func (a *compressedAnswer) close() {
	a.begin(false)
	if a.body == nil {
		return
	}
	_ = a.body.Close() // the client has gone
	a.body.Reset(io.Discard)
	compressors.Put(a.body)
}
