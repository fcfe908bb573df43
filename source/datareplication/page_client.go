package datareplication

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

const (
	// newestEvery is the interval of requests for the time of the newest page, while older
	// pages are read.
	newestEvery = 30 * time.Second
	// newestTimeout limits how long reading waits for the answer to such a request.
	newestTimeout = 2 * time.Second
)

// pageClient requests the pages of one feed.
type pageClient struct {
	client *source.Client
	log    *slog.Logger
	// url is the entry point of the feed, and maxEntity the largest entity of a page in
	// bytes.
	url       string
	maxEntity int
	// reserved is the reservation of the batch that is being read.
	reserved reservation
	// newest is the newest time that the entry point had.
	newest newestTime
	// noHead reports that the server does not answer HEAD requests.
	noHead bool
}

// head is the result of a HEAD request for a page.
type head struct {
	page.Header
	length     int64 // Content-Length, or -1
	violations []feed.Violation
}

// requestHead requests the header of a page, with GET if the server does not answer HEAD (case 88).
func (c *pageClient) requestHead(ctx context.Context, url string) (head, error) {
	method := http.MethodHead
	if c.noHead {
		method = http.MethodGet
	}
	resp, err := c.client.Do(ctx, source.Request{Method: method, URL: url})
	if status := statusOf(err); !c.noHead && (status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented) {
		c.noHead = true
		c.log.Info("the server does not answer HEAD; using GET", "url", url)
		return c.requestHead(ctx, url)
	}
	if err != nil {
		return head{}, err
	}
	defer resp.Body.Close()
	if resp.Status == http.StatusNoContent {
		return head{}, errNoContent
	}
	header, violations, err := page.ParseHeader(resp.Header, resp.URL, false)
	return head{header, contentLength(resp.Header), violations}, err
}

// openPage is a page that is being read.
type openPage struct {
	head
	etag     string
	date     time.Time
	body     io.Closer
	parts    *page.Reader
	parsed   int          // number of entities so far
	reserved *reservation // of the pageClient
	// undated reports that an entity without a time was reported.
	undated bool
}

// requestPage requests a page. It returns nil if the page is not modified.
func (c *pageClient) requestPage(ctx context.Context, url, etag string) (*openPage, error) {
	resp, err := c.client.Do(ctx, source.Request{Method: http.MethodGet, URL: url, IfNoneMatch: etag})
	if err != nil {
		return nil, err
	}
	switch resp.Status {
	case http.StatusNotModified:
		defer resp.Body.Close()
		if l, _, err := page.ParseLinks(resp.Header.Values("Link"), resp.URL); err != nil || l.Next != "" {
			// The ETag does not cover the links.
			return c.requestPage(ctx, url, "")
		}
		return nil, nil
	case http.StatusNoContent:
		resp.Body.Close()
		return nil, errNoContent
	}
	header, violations, err := page.ParseHeader(resp.Header, resp.URL, true)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return &openPage{
		head:     head{header, contentLength(resp.Header), violations},
		etag:     resp.Header.Get("ETag"),
		date:     resp.Date,
		body:     resp.Body,
		parts:    c.newPartReader(resp.Body, header.Boundary, header.Self),
		reserved: &c.reserved,
	}, nil
}

// newPartReader returns a reader of the parts of a page, which reserves its memory for the
// batch that is being read.
func (c *pageClient) newPartReader(body io.Reader, boundary, name string) *page.Reader {
	parts := page.NewReader(body, boundary, name, c.maxEntity)
	parts.Reserve, parts.Free = c.reserved.reserve, c.reserved.free
	return parts
}

// errPageEnd reports that a page has no more entities.
var errPageEnd = errors.New("the page ends here")

// nextEntity returns the next entity of the page and its violations. After the last one it fails
// with errPageEnd. If there is no memory for the entity, it waits until there is, or, without
// wait, fails with errNoMemory and returns the entity at the next call.
func (p *openPage) nextEntity(ctx context.Context, wait bool) (feed.Entity, []feed.Violation, error) {
	part, err := p.nextPart(ctx, wait)
	if err != nil {
		return feed.Entity{}, nil, err
	}
	e, violations, err := page.NewEntity(part, p.Self, p.parsed)
	p.parsed++
	return e, violations, err
}

// nextPart returns the next part of the page. Its errors are those of nextEntity.
func (p *openPage) nextPart(ctx context.Context, wait bool) (page.Part, error) {
	p.reserved.ctx, p.reserved.wait = ctx, wait
	defer func() { p.reserved.ctx = nil }()
	next, err := p.parts.Next()
	if err == io.EOF { //nolint:errorlint // only the bare value is a good end
		err = errPageEnd
	}
	return next, err
}

// updateNewest requests the time of the newest page every newestEvery. It is used to report
// the lag, and for nothing else.
func (c *pageClient) updateNewest(ctx context.Context) {
	if time.Since(c.newest.looked) < newestEvery {
		return
	}
	c.newest.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, newestTimeout)
	defer cancel()
	if h, err := c.requestHead(ctx, c.url); err == nil {
		c.newest.advance(h.Modified)
	}
}

// newestTime is the newest time of upstream, as far as it is known.
type newestTime struct{ at, looked time.Time }

func (n *newestTime) advance(t time.Time) {
	n.looked = time.Now()
	if n.at.Before(t) {
		n.at = t
	}
}

// refused reports whether the client may have refused to request a page, because it is on
// another host than the feed's URL: the feed has moved, and the configuration has its new
// URL.
func (c *pageClient) refused(err error, page string) bool {
	return errors.Is(err, feed.ErrPermanent) && statusOf(err) == 0 && originOf(page) != originOf(c.url)
}

func originOf(page string) string {
	u, err := url.Parse(page)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// errNoContent is the answer 204 to a request for a page.
var errNoContent = errors.New("the server answers 204 No Content")

func isGone(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusGone || errors.Is(err, errNoContent)
}

func statusOf(err error) int {
	var status *source.StatusError
	if errors.As(err, &status) {
		return status.Status
	}
	return 0
}

func contentLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
