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
	// ahead requests pages before their turn.
	ahead *source.PagesAhead
	log   *slog.Logger
	// url is the entry point of the feed, and maxEntity the largest entity of a page in
	// bytes.
	url       string
	maxEntity int
	// reserved is the reservation of the batch that is being read.
	reserved reservation
	// newest is the newest time that the entry point had.
	newest newestTime
	// noHead reports that the server answers HEAD otherwise than GET, which is used instead.
	noHead bool
	// lastHead is the last answer to a HEAD request in the present call of Next. headFaults counts answers that differ from those
	// to GET, and headFault is the violation that is not reported yet.
	lastHead   page.Header
	headFaults int
	headFault  sightings
}

// head is the header of a page.
type head struct {
	page.Header
	length     int64 // Content-Length, or -1
	violations []feed.Violation
}

// requestHead requests the header of a page: with HEAD, unless the server has answered that
// otherwise than GET (case 88). needsNext reports that a newer page links back to the page, so that it has a
// next link.
func (c *pageClient) requestHead(ctx context.Context, url string, needsNext bool) (head, error) {
	if c.noHead {
		return c.requestHeader(ctx, http.MethodGet, url)
	}
	h, err := c.requestHeader(ctx, http.MethodHead, url)
	if err == nil && needsNext && h.Next == "" {
		err = errNoNext
	}
	switch {
	case err == nil:
		c.lastHead = h.Header
		return h, nil
	case !mayBeOnlyHead(err):
		return head{}, err
	}
	got, again := c.requestHeader(ctx, http.MethodGet, url)
	if again != nil || errors.Is(err, errNoNext) && got.Next == "" {
		return got, again
	}
	c.recordHeadFault(url, err)
	return got, nil
}

// requestHeader requests a page by a method, and returns its header.
func (c *pageClient) requestHeader(ctx context.Context, method, url string) (head, error) {
	resp, err := c.client.Do(ctx, source.Request{Method: method, URL: url})
	if err != nil {
		return head{}, err
	}
	defer resp.Body.Close()
	return parseHead(resp)
}

// parseHead returns the header of the page that was answered, of which the body may be missing.
func parseHead(resp *source.Response) (head, error) {
	if resp.Status == http.StatusNoContent {
		return head{}, errNoContent
	}
	header, violations, err := page.ParseHeader(resp.Header, resp.URL, false)
	return head{header, contentLength(resp.Header), violations}, err
}

// requestEntry requests the page at the entry point with GET and returns its header. If that page
// is requested next, by the URL of its self link, the same answer is returned.
func (c *pageClient) requestEntry(ctx context.Context) (head, error) {
	resp, err := c.client.Do(ctx, source.Request{Method: http.MethodGet, URL: c.url})
	if err != nil {
		return head{}, err
	}
	h, err := parseHead(resp)
	if err != nil {
		resp.Body.Close()
		return head{}, err
	}
	c.client.HandOver(source.Request{Method: http.MethodGet, URL: h.Self}, resp, nil)
	return h, nil
}

// openPage is a page that is being read.
type openPage struct {
	head
	etag     string
	date     time.Time
	answered time.Time // when the header arrived, by this machine's clock
	// ahead reports that the page was requested ahead of its turn.
	ahead    bool
	body     io.Closer
	parts    *page.Reader
	parsed   int          // number of entities so far
	reserved *reservation // of the pageClient
	// undated reports that an entity without a time was reported.
	undated bool
}

// requestPage requests a page. It returns nil if the page is not modified.
func (c *pageClient) requestPage(ctx context.Context, url, etag string) (*openPage, error) {
	var resp *source.Response
	var err error
	if etag == "" {
		resp, err = c.ahead.Get(ctx, url)
	} else {
		resp, err = c.client.Do(ctx, source.Request{Method: http.MethodGet, URL: url, IfNoneMatch: etag})
	}
	if err != nil {
		return nil, err
	}
	return c.openResponse(ctx, url, resp)
}

// openResponse opens the page that was answered. It returns nil if the page is not modified.
func (c *pageClient) openResponse(ctx context.Context, url string, resp *source.Response) (*openPage, error) {
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
	if err := c.compareWithHead(header); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return &openPage{
		head:     head{header, contentLength(resp.Header), violations},
		etag:     resp.Header.Get("ETag"),
		date:     resp.Date,
		answered: resp.Answered,
		ahead:    resp.Ahead,
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

// lastEntity returns the ID and the time of the last entity of a page, if it has any, and the time of
// the page.
func (c *pageClient) lastEntity(ctx context.Context, url string) (last feed.Entity, modified time.Time, found bool, err error) {
	p, err := c.requestPage(ctx, url, "")
	if err != nil {
		return feed.Entity{}, time.Time{}, false, err
	}
	defer p.body.Close()
	for {
		used := c.reserved.used
		e, _, err := p.nextEntity(ctx, true)
		switch {
		case errors.Is(err, errPageEnd):
			return last, p.Modified, found, nil
		case err != nil:
			return feed.Entity{}, time.Time{}, false, err
		}
		last, found = feed.Entity{ID: strings.Clone(e.ID), Modified: e.Modified}, true
		c.reserved.freeSince(used)
	}
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
	if h, err := c.requestHead(ctx, c.url, false); err == nil {
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
	return errors.Is(err, feed.ErrPermanent) && source.StatusOf(err) == 0 && originOf(page) != originOf(c.url)
}

func originOf(page string) string {
	u, err := url.Parse(page)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

func contentLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
