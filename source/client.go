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
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/message"
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
	// Log gets a line when a host has refused requests, and when its feeds make as many as before. Nil logs nothing.
	Log *slog.Logger
	// Redact hides the secrets of the URLs and of the answers that errors quote. Nil
	// knows the usual names of parameters only.
	Redact *safetext.Redactor
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
	log         *slog.Logger
	standing    standing
	handed      handedSlot
	reached     reachedHosts
	// toOrigin makes connections to the origin and the token server, and toOthers those to the
	// hosts of AllowHosts, which do not get the client certificate. toPublic makes those to hosts
	// that only a redirect names: they must have a public address.
	toOrigin, toOthers, toPublic *renewedTransport
	// viaOrigin, viaOthers and viaPublic are the HTTP transports for the feed's origin, for the hosts of
	// AllowHosts and for other public hosts. They report each request.
	viaOrigin, viaOthers, viaPublic http.RoundTripper
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
		userAgent: opts.UserAgent, observe: opts.Observe, hosts: opts.Hosts, redact: opts.Redact, log: opts.Log,
	}
	c.credentials = credentials{cfg: &c.cfg, redact: opts.Redact}
	if c.userAgent == "" {
		c.userAgent = "feedbridge (+https://github.com/feedbridge/feedbridge)"
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
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
		if c.credentials.headers == nil {
			c.credentials.headers = http.Header{}
		}
		c.credentials.headers.Add(name, value)
	}
	for _, kind := range []struct {
		to                   **renewedTransport
		via                  *http.RoundTripper
		certificate, guarded bool
	}{{&c.toOrigin, &c.viaOrigin, true, false}, {&c.toOthers, &c.viaOthers, false, false}, {&c.toPublic, &c.viaPublic, false, true}} {
		if *kind.to, err = c.hosts.transport(cfg, kind.certificate, kind.guarded); err != nil {
			return nil, err
		}
		if *kind.via = (observed{*kind.to, c.observe}); opts.Wrap != nil {
			*kind.via = opts.Wrap(*kind.via)
		}
	}
	if cfg.Auth.OAuth2.IsSet() {
		c.credentials.tokens = newTokens(cfg, c.viaOrigin)
	}
	return c, nil
}

// Spacing returns the time between two polls of the feed with which the feeds of its host need no more requests than
// a host that refused some allows; zero for any other host. With it feeds wait between polls rather
// than each within one.
func (c *Client) Spacing() time.Duration {
	return c.hosts.spacing(hostKey{hostPort(c.origin), c.cfg.Limits.Rate})
}

// CloseIdle closes the connections that wait for another request, and a response that was handed over. Clients that
// share them open new ones when they need them.
func (c *Client) CloseIdle() {
	c.DropHandedOver()
	c.toOrigin.CloseIdleConnections()
	c.toOthers.CloseIdleConnections()
	c.toPublic.CloseIdleConnections()
}

// HandOver makes response the answer to the next call of Do, if that is the request r and comes
// within 10 s. So a page is not requested twice if the format of the feed was detected from its
// beginning, or if its header shows that reading starts with it. read is the part of the body that
// was read. The client closes the response.
func (c *Client) HandOver(r Request, response *Response, read []byte) {
	c.handed.putResponse(r, response, read)
}

// DropHandedOver closes a response that was handed over and has answered no request.
func (c *Client) DropHandedOver() { c.handed.takeResponse(Request{}) }

// Do sends a request and follows redirects. It does not try again after an error. Errors
// name the request; a status that is not a valid answer is a [StatusError].
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, feed.Permanent(fmt.Errorf("%s %q: this is not a URL: %w", r.Method, c.redact.URL(r.URL), parseError(err)))
	}
	if err := c.checkLink(ctx, r, u); err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, c.redact.URL(u.String()), err)
	}
	if res := c.handed.takeResponse(r); res != nil {
		return res, nil
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
		if redirects == mostRedirects {
			return nil, answer.failWithStatus(StatusError{note: fmt.Sprintf("after %d redirects in a row; check where the url leads: a loop, or a login page", redirects)})
		}
		answer.closeCall()
		next, err := u.Parse(location)
		if err != nil {
			return nil, feed.Permanent(fmt.Errorf("%s: redirect to %q: this is not a URL: %w", answer, c.redact.URL(location), parseError(err)))
		}
		if err := c.checkRedirect(u, next); err != nil {
			return nil, fmt.Errorf("%s: redirect to %s: %w", answer, c.redact.URL(next.String()), err)
		}
		u = next
	}
}

// mostRedirects is the number of redirects in a row that are followed: a feed that moves to
// https, to another host and to another path needs three.
const mostRedirects = 5

// startCall sends a request to u and returns with the header of the response. The
// caller must end it with closeCall, failWithStatus or toResponse.
func (c *Client) startCall(ctx context.Context, r Request, u *url.URL) (*call, error) {
	x := &call{
		redact: c.redact, credentials: &c.credentials, toOrigin: c.atOrigin(u),
		pageLimit: cmp.Or(c.cfg.LargestPage, mostPage), idle: c.cfg.Timeout,
	}
	asked := *u
	asked.Fragment, asked.RawFragment = "", ""
	x.request = &http.Request{Method: r.Method, URL: &asked, Host: asked.Host, Header: make(http.Header)}
	host := hostPort(u)
	if err := c.hosts.checkRefused(host, &c.standing); err != nil {
		return nil, fmt.Errorf("%s: %w", x, err)
	}
	key := hostKey{host, c.cfg.Limits.Rate}
	err := c.hosts.waitForRate(ctx, key)
	if err != nil {
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
	transport := c.viaPublic
	switch {
	case x.toOrigin:
		transport = c.viaOrigin
		if x.token, err = c.credentials.setHeaders(ctx, header); err != nil {
			return nil, fmt.Errorf("%s: %w", x, err)
		}
	case c.allowsHost(u):
		transport = c.viaOthers
	}

	x.deadline = newDeadline(ctx)
	x.request = x.request.WithContext(httptrace.WithClientTrace(x.deadline.ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			x.deadline.startWait(&timeoutError{"no answer came", c.cfg.Timeout, "timeout", "raise it if the server is always so slow"})
		},
	}))
	x.deadline.startWait(&timeoutError{"no connection was made", c.cfg.connectTimeout(), "10s, or timeout if that is less", "check the host and port of the url, and the firewalls on the way"})
	sent := time.Now()
	x.response, err = transport.RoundTrip(x.request) //nolint:bodyclose // the call owns it
	x.deadline.stopWait()
	if err != nil {
		if reason := x.deadline.endReason(); reason != nil {
			err = reason
		} else {
			err = explainTransport(err)
		}
		x.deadline.endRequest()
		return nil, fmt.Errorf("%s: %w", x, err)
	}
	var known bool
	if x.date, _, known = message.ParseDate(x.response.Header.Get("Date")); !known {
		x.date = time.Now()
	}
	x.wait, x.refused = askedWait(x.response, x.date)
	c.noteAnswer(key, hostAnswer{x.response.StatusCode, sent, x.refused, x.wait})
	return x, nil
}

// noteAnswer is [Hosts.noteAnswer], and logs when the host is slowed down more, and when that has ended.
func (c *Client) noteAnswer(key hostKey, a hostAnswer) {
	slow, changed := c.hosts.noteAnswer(key, &c.standing, a)
	switch {
	case changed && slow.rate > 0:
		c.log.Warn("a host has refused requests, so its feeds make fewer; set limits.rate to what the provider allows", "host", key.host, "status", a.status, "requests_per_minute", 60*slow.rate, "for", slow.calm)
	case changed:
		c.log.Info("a host has refused no requests for long, so its feeds make as many as before", "host", key.host)
	}
}

// followed are the status codes of redirects that are followed. None of them turns a HEAD
// into a GET here.
var followed = []int{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
	http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
}
