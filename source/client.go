// Package source is the HTTP client of the sources.
//
// A [Client] reads one feed. It sends conditional requests, keeps to a rate for each
// host, follows Retry-After, bounds the memory and the time that an upstream can take,
// and sends credentials only to the origin that they were configured for.
//
// It never repeats a request. Its caller backs off after an error: errors report
// whether a person has to act ([feed.ErrPermanent]) and how long to wait at least
// ([feed.RetryDelay]).
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// Options are the settings of a client that do not come from the feed's configuration.
type Options struct {
	// UserAgent identifies the client to upstreams, with an address for complaints.
	// Default "feedbridge (+https://github.com/feedbridge/feedbridge)".
	UserAgent string
	// Observe is called after each exchange with a server, for metrics. It
	// may be called by several goroutines at a time.
	Observe func(Exchange)
	// Wrap returns a RoundTripper that makes requests by the one that it is given, to trace
	// them. It may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Hosts is shared by the clients of a process. Nil shares nothing.
	Hosts *Hosts
	// Redact hides the secrets of the URLs and of the answers that errors quote. Nil
	// knows the usual names of parameters only.
	Redact *safetext.Redactor
}

// Exchange is one request and the header of its response.
type Exchange struct {
	Method string
	Host   string // as in the URL; only hosts that the configuration names
	Status int    // 0 if there was no response
	Err    error
	Took   time.Duration // to the end of the header
}

// Client sends requests to the upstream of one feed. It is safe for concurrent use.
type Client struct {
	cfg         Config
	origin      *url.URL
	allowed     []string // AllowHosts
	credentials credentials
	userAgent   string
	observe     func(Exchange)
	hosts       *Hosts
	redact      *safetext.Redactor
	// toOrigin makes connections to the origin and the token server, and toOthers those to
	// other hosts, which do not get the client certificate.
	toOrigin, toOthers *http.Transport
	// viaOrigin and viaOthers make requests by them, and report each.
	viaOrigin, viaOthers http.RoundTripper
}

// NewClient returns a client for cfg. Its errors are those of
// [Config.Validate], and those of the files that auth.tls names.
func NewClient(cfg Config, opts Options) (*Client, error) {
	if err := errors.Join(cfg.Validate()...); err != nil {
		return nil, feed.Permanent(err)
	}
	origin, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, feed.Permanent(err)
	}
	c := &Client{
		cfg: cfg, origin: origin, allowed: cfg.AllowHosts,
		credentials: credentials{headers: make(http.Header), auth: cfg.Auth, limits: cfg.Limits, redact: opts.Redact},
		userAgent:   opts.UserAgent, observe: opts.Observe, hosts: opts.Hosts, redact: opts.Redact,
	}
	if c.userAgent == "" {
		c.userAgent = "feedbridge (+https://github.com/feedbridge/feedbridge)"
	}
	if c.observe == nil {
		c.observe = func(Exchange) {}
	}
	if c.hosts == nil {
		c.hosts = new(Hosts)
	}
	for _, line := range cfg.Headers {
		name, value, err := parseHeader(line)
		if err != nil {
			return nil, feed.Permanent(err)
		}
		c.credentials.headers.Add(name, value)
	}
	if c.toOrigin, err = c.hosts.transport(cfg, true); err != nil {
		return nil, err
	}
	if c.toOthers, err = c.hosts.transport(cfg, false); err != nil {
		return nil, err
	}
	c.viaOrigin, c.viaOthers = observed{c.toOrigin, c.observe}, observed{c.toOthers, c.observe}
	if opts.Wrap != nil {
		c.viaOrigin, c.viaOthers = opts.Wrap(c.viaOrigin), opts.Wrap(c.viaOthers)
	}
	if cfg.Auth.OAuth2.hasAnyKey() {
		c.credentials.tokens = newTokens(cfg, c.viaOrigin)
	}
	return c, nil
}

// CloseIdle closes the connections that wait for another request. Clients that
// share them open new ones when they need them.
func (c *Client) CloseIdle() {
	c.toOrigin.CloseIdleConnections()
	c.toOthers.CloseIdleConnections()
}

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
	Body io.ReadCloser
	// Date is the server's clock: the Date header, or this machine's time if
	// there is none.
	Date time.Time
}

// Do sends a request and follows redirects. It does not try again after an error. Errors
// name the request; a status that is not a valid answer is a [StatusError].
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, fmt.Errorf("%s %s: a feed is read with GET and HEAD", r.Method, c.redact.URL(r.URL))
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, feed.Permanent(fmt.Errorf("%s %q: this is not a URL: %w", r.Method, c.redact.URL(r.URL), parseError(err)))
	}
	if err := c.checkHost(c.origin, u); err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, c.redact.URL(u.String()), err)
	}
	moved := true
	for redirects := 0; ; redirects++ {
		answer, err := c.startCall(ctx, r, u)
		if err != nil {
			return nil, err
		}
		location := answer.response.Header.Get("Location")
		if location == "" || !slices.Contains(followed, answer.response.StatusCode) {
			res, err := answer.toResponse(r)
			if err == nil {
				res.Moved = moved && redirects > 0
			}
			return res, err
		}
		switch answer.response.StatusCode {
		case http.StatusMovedPermanently, http.StatusPermanentRedirect:
		default:
			moved = false
		}
		if redirects == c.cfg.Limits.Redirects {
			return nil, answer.failWithStatus(StatusError{note: fmt.Sprintf("after %d redirects in a row (limits.redirects); check where the url leads: a loop, or a login page", redirects)})
		}
		answer.closeCall()
		next, err := u.Parse(location)
		if err != nil {
			return nil, feed.Permanent(fmt.Errorf("%s: redirect to %q: this is not a URL: %w", answer, c.redact.URL(location), parseError(err)))
		}
		if err := c.checkHost(u, next); err != nil {
			return nil, fmt.Errorf("%s: redirect to %s: %w", answer, c.redact.URL(next.String()), err)
		}
		u = next
	}
}

// followed are the status codes of redirects that are followed. None of them turns a HEAD
// into a GET here.
var followed = []int{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
	http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
}

// checkHost returns an error unless a link or a redirect may lead from one URL to the
// other.
func (c *Client) checkHost(from, to *url.URL) error {
	refuse := func(format string, args ...any) error { return feed.Permanent(fmt.Errorf(format, args...)) }
	switch {
	case to.Scheme != "http" && to.Scheme != "https":
		return refuse("only http and https URLs can be read, and they must be absolute")
	case to.Hostname() == "":
		return refuse("the URL has no host")
	case to.User != nil:
		return refuse("links and redirects must not contain credentials; ask the provider to fix them")
	case to.Scheme == "http" && (from.Scheme == "https" || c.origin.Scheme == "https"):
		return refuse("a redirect or link from https back to http is refused; ask the provider to fix it")
	case c.atOrigin(to) || c.allowsHost(to):
		return nil
	case to.Scheme == "https" && strings.EqualFold(to.Hostname(), c.origin.Hostname()):
		return refuse("%s is not the origin of the feed, %s://%s: if the feed has moved to https, write that in its url, or name %s in allow_hosts",
			to.Host, c.origin.Scheme, c.origin.Host, to.Host)
	}
	return refuse("%s is not the host of the feed, %s: name it in allow_hosts if the feed may lead there", to.Host, c.origin.Host)
}

func (c *Client) atOrigin(u *url.URL) bool {
	return u.Scheme == c.origin.Scheme && hostPort(u) == hostPort(c.origin)
}

func (c *Client) allowsHost(u *url.URL) bool {
	return slices.ContainsFunc(c.allowed, func(host string) bool {
		return hostPort(&url.URL{Scheme: u.Scheme, Host: host}) == hostPort(u)
	})
}
