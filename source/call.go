package source

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// readExcerpt limits the part of an error's body that is read for an excerpt, in bytes. It is
// larger than the excerpt, so that no secret is cut in half before it is masked.
const readExcerpt = 4 << 10

// call is one request under way and its response.
type call struct {
	redact      *safetext.Redactor
	credentials *credentials
	toOrigin    bool // the request goes to the origin of the feed, with the credentials
	pageLimit   int64
	idle        time.Duration // timeout

	deadline *deadline
	request  *http.Request
	response *http.Response
	token    *credential.Token // the oauth2 token that was sent, if any
	date     time.Time
	wait     time.Duration // that the answer asks for
	refused  bool          // because there were too many requests
}

// String names the request in errors.
func (c *call) String() string {
	return c.request.Method + " " + c.redact.URL(c.request.URL.String())
}

// closeCall drops the rest of the call, and its connection if necessary.
func (c *call) closeCall() {
	w := wire{raw: c.response.Body, deadline: c.deadline, size: c.response.ContentLength}
	w.drainRest()
	_ = w.close()
}

// newBody returns the body of the response. idle limits the wait for each read; see [newBody].
func (c *call) newBody(open decoding, idle *timeoutError) *body {
	return newBody(c.String(), c.response.Body, c.response.ContentLength, c.deadline, c.pageLimit, open, idle)
}

// toResponse turns the response into the caller's, or into an error.
func (c *call) toResponse(r Request) (*Response, error) {
	conditional := r.IfNoneMatch != "" || r.IfModifiedSince != ""
	res := &Response{Status: c.response.StatusCode, Header: c.response.Header, URL: c.request.URL, Body: http.NoBody, length: c.response.ContentLength, Date: c.date, Answered: time.Now()}
	switch {
	case (res.Status == http.StatusOK || r.Partial && res.Status == http.StatusIMUsed) && c.request.Method == http.MethodGet:
		open, err := c.decoding()
		if err != nil {
			c.closeCall()
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		res.Body = c.newBody(open, &timeoutError{"no bytes of the body came", c.idle, "timeout", "raise it if the server always pauses so long"})
		return res, nil
	case res.Status == http.StatusOK, res.Status == http.StatusNoContent, res.Status == http.StatusNotModified && conditional:
		c.closeCall()
		return res, nil
	case res.Status == http.StatusNotModified:
		return nil, c.failWithStatus(StatusError{note: "the request had no condition"})
	case c.refused:
		return nil, c.failWithStatus(StatusError{transient: true})
	case res.Status == http.StatusUnauthorized && c.token != nil && !c.token.Fresh:
		// The next request shows whether the token was at fault.
		c.credentials.tokens.Drop(c.token)
		return nil, c.failWithStatus(StatusError{note: "the token was dropped: the next request has a new one", transient: true})
	case res.Status == http.StatusUnauthorized, res.Status == http.StatusForbidden:
		if c.token != nil {
			c.credentials.tokens.Drop(c.token)
		}
		if !c.toOrigin {
			return nil, c.failWithStatus(StatusError{note: "auth and headers are not sent there: it is not the origin of the feed"})
		}
		return nil, c.failWithStatus(StatusError{note: "check auth and headers of the feed"})
	}
	return nil, c.failWithStatus(StatusError{})
}

// decoding returns how the body is unpacked; nil if it is not compressed.
func (c *call) decoding() (decoding, error) {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(c.response.Header.Values("Content-Encoding"), ",")))
	open, ok := decodings[encoding]
	if !ok {
		return nil, feed.Permanent(fmt.Errorf("the body has the Content-Encoding %q; only gzip, deflate and br can be read", encoding))
	}
	return open, nil
}

// failWithStatus ends the call with err, after it has set the exported fields.
func (c *call) failWithStatus(err StatusError) error {
	err.Method, err.URL, err.Status = c.request.Method, c.redact.URL(c.request.URL.String()), c.response.StatusCode
	err.Wait = c.wait
	open, unreadable := c.decoding()
	c.deadline.startWait(drainTimeout)
	body := c.newBody(open, nil)
	if unreadable == nil && isText(c.response.Header.Get("Content-Type")) {
		text, _ := io.ReadAll(io.LimitReader(body, readExcerpt))
		err.Excerpt = excerptBody(c.redact, string(text), c.credentials.secrets(c.request.Header)...)
	}
	_ = body.Close()
	return feed.RetryAfter(&err, err.Wait)
}

func isText(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml")
}
