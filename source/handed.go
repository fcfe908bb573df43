package source

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"
)

// handedFor is how long a response that was handed over may answer a request.
const handedFor = 10 * time.Second

// handed is a response that answers the next request, if that asks for the same.
type handed struct {
	request  Request
	response *Response
}

// handedSlot holds a response that was handed over, if there is one. It is safe for concurrent use.
type handedSlot struct{ newest atomic.Pointer[handed] }

// putResponse stores a response to r, of whose body read was read. It closes the one before it.
func (s *handedSlot) putResponse(r Request, response *Response, read []byte) {
	again := *response
	again.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), response.Body), response.Body}
	if old := s.newest.Swap(&handed{r, &again}); old != nil {
		old.response.Body.Close()
	}
}

// takeResponse returns the response that was handed over for r, or nil. It closes one for another
// request.
func (s *handedSlot) takeResponse(r Request) *Response {
	h := s.newest.Swap(nil)
	if h == nil {
		return nil
	}
	same := r.Method == h.request.Method && r.URL == h.request.URL && r.IfNoneMatch == "" && r.IfModifiedSince == ""
	if same && time.Since(h.response.Answered) < handedFor {
		return h.response
	}
	h.response.Body.Close()
	return nil
}
