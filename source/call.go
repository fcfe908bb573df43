package source

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/credential"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/safetext"
)

const (
	// maxWait bounds a Retry-After, so that a typing error does not stop a feed for
	// good.
	maxWait = time.Hour
	// maxExcerpt limits the part of an error's body that is shown, in characters. More is
	// read, so that no secret is cut in half before it is masked.
	maxExcerpt = 200
	// readExcerpt limits the part that is read for it, in bytes.
	readExcerpt = 4 << 10
)

// call is one request under way and its response.
type call struct {
	client   *Client
	deadline *deadline
	request  *http.Request
	response *http.Response
	token    *credential.Token // the oauth2 token that was sent, if any
	date     time.Time
}

// String names the request in errors.
func (c *call) String() string {
	return c.request.Method + " " + c.client.redact.URL(c.request.URL.String())
}

// closeCall drops the rest of the call, and its connection if necessary.
func (c *call) closeCall() {
	_ = newBody(c, false, nil).Close()
}

// startCall sends a request to u and returns with the header of the response. The
// caller must end it with close, fail or result.
func (c *Client) startCall(ctx context.Context, r Request, u *url.URL) (*call, error) {
	x := &call{client: c}
	asked := *u
	asked.Fragment, asked.RawFragment = "", ""
	x.request = &http.Request{Method: r.Method, URL: &asked, Host: asked.Host, Header: make(http.Header)}
	if err := c.hosts.waitForHost(ctx, hostPort(u), c.cfg.Limits.Rate); err != nil {
		return nil, fmt.Errorf("%s: %w", x, err)
	}

	header := x.request.Header
	header.Set("User-Agent", c.userAgent)
	header.Set("Accept-Encoding", "gzip")
	if r.IfNoneMatch != "" {
		header.Set("If-None-Match", r.IfNoneMatch)
	}
	if r.IfModifiedSince != "" {
		header.Set("If-Modified-Since", r.IfModifiedSince)
	}
	transport := c.viaOthers
	if c.atOrigin(u) {
		var err error
		transport = c.viaOrigin
		if x.token, err = c.credentials.setHeaders(ctx, header); err != nil {
			return nil, fmt.Errorf("%s: %w", x, err)
		}
	}

	x.deadline = newDeadline(ctx)
	timeouts := c.cfg.Timeouts
	x.request = x.request.WithContext(httptrace.WithClientTrace(x.deadline.ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			x.deadline.startWait(&timeoutError{"no answer came", timeouts.Header, "timeouts.header", "raise it if the server is always so slow"})
		},
	}))
	x.deadline.startWait(&timeoutError{"no connection was made", timeouts.Connect, "timeouts.connect", "check the host and port of the url, and the firewalls on the way"})
	var err error
	x.response, err = transport.RoundTrip(x.request) //nolint:bodyclose // the call owns it
	x.deadline.stopWait()
	if err != nil {
		if reason := x.deadline.endReason(); reason != nil {
			err = reason
		} else {
			err = explainTransport(err, c.cfg.Limits)
		}
		x.deadline.endRequest()
		return nil, fmt.Errorf("%s: %w", x, err)
	}
	var known bool
	if x.date, _, known = message.ParseDate(x.response.Header.Get("Date")); !known {
		x.date = time.Now()
	}
	switch x.response.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if wait := retryAfter(x.response.Header, x.date); wait > 0 {
			c.hosts.pauseHost(hostPort(u), wait)
		}
	}
	return x, nil
}

// toResponse turns the response into the caller's, or into an error.
func (c *call) toResponse(r Request) (*Response, error) {
	conditional := r.IfNoneMatch != "" || r.IfModifiedSince != ""
	res := &Response{Status: c.response.StatusCode, Header: c.response.Header, URL: c.request.URL, Body: http.NoBody, Date: c.date}
	switch {
	case (res.Status == http.StatusOK || r.Partial && res.Status == http.StatusIMUsed) && c.request.Method == http.MethodGet:
		packed, err := c.isGzip()
		if size := c.response.ContentLength; err == nil && size > c.client.cfg.Limits.Page {
			err = tooLarge("the page has %d bytes and may have %d (limits.page); raise it if the provider has pages so large", size, c.client.cfg.Limits.Page)
		}
		if err != nil {
			c.closeCall()
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		res.Body = newBody(c, packed, &timeoutError{"no bytes of the body came", c.client.cfg.Timeouts.Idle, "timeouts.idle", "raise it if the server always pauses so long"})
		return res, nil
	case res.Status == http.StatusOK, res.Status == http.StatusNoContent, res.Status == http.StatusNotModified && conditional:
		c.closeCall()
		return res, nil
	case res.Status == http.StatusNotModified:
		return nil, c.failWithStatus(StatusError{note: "the request had no condition"})
	case res.Status == http.StatusUnauthorized && c.token != nil && !c.token.Fresh:
		// The next request shows whether the token was at fault.
		c.client.credentials.tokens.Drop(c.token)
		return nil, c.failWithStatus(StatusError{note: "the token was dropped: the next request has a new one", transient: true})
	case res.Status == http.StatusUnauthorized, res.Status == http.StatusForbidden:
		if c.token != nil {
			c.client.credentials.tokens.Drop(c.token)
		}
		if !c.client.atOrigin(c.request.URL) {
			return nil, c.failWithStatus(StatusError{note: "auth and headers are not sent there: it is not the origin of the feed"})
		}
		return nil, c.failWithStatus(StatusError{note: "check auth and headers of the feed"})
	}
	return nil, c.failWithStatus(StatusError{})
}

// isGzip reports whether the body is compressed by gzip.
func (c *call) isGzip() (bool, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(strings.Join(c.response.Header.Values("Content-Encoding"), ","))); encoding {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		return true, nil
	default:
		return false, feed.Permanent(fmt.Errorf("the body has the Content-Encoding %q; only gzip can be read", encoding))
	}
}

// failWithStatus ends the call with err, after it has set the exported fields.
func (c *call) failWithStatus(err StatusError) error {
	err.Method, err.URL, err.Status = c.request.Method, c.client.redact.URL(c.request.URL.String()), c.response.StatusCode
	err.Wait = retryAfter(c.response.Header, c.date)
	packed, unreadable := c.isGzip()
	c.deadline.startWait(drainTimeout)
	body := newBody(c, packed, nil)
	if unreadable == nil && isText(c.response.Header.Get("Content-Type")) {
		text, _ := io.ReadAll(io.LimitReader(body, readExcerpt))
		err.Excerpt = excerptBody(c.client.redact, string(text), c.client.credentials.secrets(c.request.Header)...)
	}
	_ = body.Close()
	return feed.RetryAfter(&err, err.Wait)
}

func isText(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml")
}

// excerptBody returns the start of a text that a server wrote, without the secrets of
// URLs, and without those that the server was sent and may have repeated.
func excerptBody(redact *safetext.Redactor, text string, secrets ...string) string {
	// Not the end of it: a secret may be cut in half there.
	return redact.Excerpt(credential.Mask(text, secrets...), maxExcerpt)
}

// retryAfter parses Retry-After in both its forms, a date relative to the server's own
// clock. An invalid value is no wait.
func retryAfter(header http.Header, date time.Time) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") != "" {
		if at, _, ok := message.ParseDate(value); ok {
			return min(max(at.Sub(date), 0), maxWait)
		}
		return 0
	}
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds > int(maxWait/time.Second) { // the only error left is too many digits
		return maxWait
	}
	return time.Duration(seconds) * time.Second
}

// observed reports each exchange that a transport makes.
type observed struct {
	transport http.RoundTripper
	observe   func(Exchange)
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	response, err := o.transport.RoundTrip(r)
	e := Exchange{Method: r.Method, Host: r.URL.Host, Err: err, Took: time.Since(start)}
	if response != nil {
		e.Status = response.StatusCode
	}
	o.observe(e)
	return response, err
}
