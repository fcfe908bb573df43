package source

import (
	"io"
	"net/http"
	"net/url"
	"time"
)

// Request is a request to the upstream.
type Request struct {
	// Method is GET or HEAD. Redirects do not change it.
	Method string
	// URL is absolute. It may come from the feed: a URL that Config does not allow is
	// refused without a request.
	URL string
	// IfNoneMatch and IfModifiedSince are sent if they are set. Only with them 304 is a
	// valid answer.
	IfNoneMatch, IfModifiedSince string
	// Partial makes 226 (RFC 3229) a valid answer to a GET. The body of such an answer has
	// only the new entries.
	Partial bool
}

// Response is a valid answer: 200, 204, 304 to a conditional request, or 226 if
// the request allows it.
type Response struct {
	Status int
	// Header holds the header as it was received. Its Content-Length and Content-Encoding
	// describe the body on the wire.
	Header http.Header
	// URL is the URL of the answer, after redirects. It is the base of relative links.
	URL *url.URL
	// Moved reports that there were redirects, all of them permanent (301, 308).
	Moved bool
	// Body is decoded, and empty unless a GET was answered with 200 or 226. The
	// caller reads it from one goroutine and must close it. Its errors name
	// the request.
	Body   io.ReadCloser
	length int64 // of Body on the wire; -1 if that is unknown
	// Date is the Date header of the response, or this machine's time if
	// there is none.
	Date time.Time
	// Answered is when the header arrived, by this machine's clock.
	Answered time.Time
	// Ahead reports that the page was requested ahead of its turn, so that the server may have
	// closed its connection since.
	Ahead bool
}

// longBody is the size above which a body is read in large pieces, in bytes. Of shorter pages fewer
// would fit into the memory of a feed: a copy to Kafka of pages of 500 KiB became slower when they were read in
// pieces of 256 KiB, ahead and when it was their turn.
const longBody = 1 << 20

// isLong reports whether the body is known to be longer than longBody. Large pieces of it save
// system calls.
func (r *Response) isLong() bool { return r.length > longBody }
