package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// Prober makes the requests that a crawl does not make.
type Prober struct {
	Client    *source.Client
	URL       string     // of the feed
	Documents *Documents // that the crawl has got

	report *Report
	checks Checks
}

const (
	// mostProbed is the number of pages that are probed, the oldest and the newest among them.
	mostProbed = 8
	// mostOfDocument limits the part of a document that is parsed, in bytes.
	mostOfDocument = 16 << 20
)

// Check probes some of the pages, and adds the results to checks.
func (p *Prober) Check(ctx context.Context, r *Report, pages *Pages, checks Checks) {
	p.report, p.checks = r, checks
	p.probe(ctx, p.URL, false)
	most, last := min(mostProbed, len(pages.order)), len(pages.order)-1
	for i := range most {
		n := i * last / max(1, most-1)
		switch page := pages.order[n]; {
		case r.Format == httpfeed.Kind:
			p.probe(ctx, p.behind(page), false)
		case page != p.URL:
			// The newest archive may get a link to the next one.
			p.probe(ctx, page, n < last && r.Format == datareplication.Kind || n < last-1 && r.Dialect == syndication.Archived)
		}
	}
	if r.Format == httpfeed.Kind {
		p.checkPosition(ctx, p.Documents.event)
	}
	for _, check := range checks {
		if check.reason == errChanging.Error() {
			r.AddNote("%s: HEAD and conditional requests could not be compared", check.reason)
		}
	}
}

// request returns the answer to a request, without its body.
func (p *Prober) request(ctx context.Context, r source.Request) (*source.Response, error) {
	res, err := p.Client.Do(ctx, r)
	if err == nil {
		_ = res.Body.Close()
	}
	return res, err
}

// probe makes the requests about one page. closed is whether it should not change any more.
func (p *Prober) probe(ctx context.Context, url string, closed bool) {
	get, err := p.request(ctx, source.Request{Method: http.MethodGet, URL: url})
	if err != nil {
		p.checks.record(url, "", err, checkHead, checkETag, checkSince, checkDate, checkCache)
		return
	}
	if url == p.URL && get.URL.String() != url {
		p.report.AddNote("the URL redirects to %s", get.URL)
	}
	fault, err := p.compareHead(ctx, url, get)
	p.checks.record(url, fault, err, checkHead)
	p.checkConditional(ctx, url, get, 3)
	modified, date := get.Header.Get("Last-Modified"), get.Header.Get("Date")
	if at, _, dated := message.ParseDate(modified); dated && date == "" {
		p.checks.untested("the responses have no Date", checkDate)
	} else if dated {
		p.checks.record(url, unless(!at.After(get.Date), "it has the Last-Modified %s and the Date %s", modified, date), nil, checkDate)
	}
	if closed {
		p.checks.record(url, uncacheable(get.Header), nil, checkCache)
	}
}

// uncacheable returns why no cache stores the response for long; empty if one may.
func uncacheable(h http.Header) string {
	control := strings.ToLower(strings.Join(h.Values("Cache-Control"), ","))
	if control == "" && h.Get("Expires") == "" {
		return "it has neither Cache-Control nor Expires"
	}
	for directive := range strings.SplitSeq(control, ",") {
		switch strings.TrimSpace(directive) {
		case "no-store", "no-cache", "max-age=0":
			return "it has Cache-Control: " + control
		}
	}
	return ""
}

// compared are the fields that HEAD should have as GET has them.
var compared = []string{"Content-Type", "Last-Modified", "ETag", "Link", "Content-Length"}

// difference returns how the headers of the answers to HEAD and GET differ; empty if it does not.
func difference(head, get *source.Response) string {
	if head.Status != get.Status {
		return fmt.Sprintf("HEAD is answered with %d and GET with %d", head.Status, get.Status)
	}
	for _, name := range compared {
		h, g := strings.Join(head.Header.Values(name), ", "), strings.Join(get.Header.Values(name), ", ")
		switch name {
		case "Content-Length":
			// An answer to HEAD may lack it.
			if h == "" || g == "" || head.Header.Get("Content-Encoding") != get.Header.Get("Content-Encoding") {
				continue
			}
		case "Content-Type": // a boundary may be another one each time
			h, g = mediaType(h), mediaType(g)
		}
		if h != g {
			return fmt.Sprintf("HEAD has %s %q and GET %q", name, h, g)
		}
	}
	return ""
}

// mediaType returns a Content-Type without its parameters.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// errChanging is the reason why a page could not be checked.
var errChanging = errors.New("the pages or their validators change with each request")

// compareHead returns how the answer to HEAD differs from that to GET.
func (p *Prober) compareHead(ctx context.Context, url string, get *source.Response) (string, error) {
	for range 3 {
		head, err := p.request(ctx, source.Request{Method: http.MethodHead, URL: url})
		if status, refused := errors.AsType[*source.StatusError](err); refused && status.Status != http.StatusTooManyRequests {
			return err.Error(), nil
		} else if err != nil {
			return "", err
		}
		again, err := p.request(ctx, source.Request{Method: http.MethodGet, URL: url})
		if err != nil {
			return "", err
		}
		if difference(again, get) == "" {
			return difference(head, get), nil
		}
		get = again // it has changed meanwhile
	}
	return "", errChanging
}

// checkConditional sends a request with the validators of the page, and again if it has changed meanwhile.
func (p *Prober) checkConditional(ctx context.Context, url string, get *source.Response, tries int) {
	tag, modified := get.Header.Get("ETag"), get.Header.Get("Last-Modified")
	at, _, dated := message.ParseDate(modified)
	name, validator, r := checkETag, "If-None-Match", source.Request{Method: http.MethodGet, URL: url, IfNoneMatch: tag}
	switch {
	case tag != "":
		p.checks.untested("the pages have an ETag", checkSince)
	case !dated:
		p.checks.untested("the pages have neither ETag nor Last-Modified", checkETag, checkSince)
		if get.Status != http.StatusNoContent && url == p.URL {
			p.checks.record(url, "it has neither ETag nor Last-Modified", nil, checkConditional)
		}
		return
	case get.Date.Sub(at) < 2*time.Second: // a page may change twice in a second
		p.checks.untested("the pages were changed just now", checkSince)
		return
	default:
		p.checks.untested("the pages have no ETag", checkETag)
		name, validator, r.IfModifiedSince = checkSince, "If-Modified-Since", modified
	}
	fault := ""
	switch res, err := p.request(ctx, r); {
	case err != nil:
		p.checks.record(url, "", err, name, checkConditional)
		return
	case res.Status == http.StatusNotModified:
	case res.Header.Get("ETag") == tag && res.Header.Get("Last-Modified") == modified:
		fault = fmt.Sprintf("a request with %s %s is answered with %d, and the same validators", validator, cmp.Or(tag, modified), res.Status)
	case tries > 1:
		p.checkConditional(ctx, url, res, tries-1)
		return
	default:
		p.checks.record(url, "", errChanging, name, checkConditional)
		return
	}
	p.checks.record(url, fault, nil, name, checkConditional)
}

// checkPosition checks that the list behind an event begins after it.
func (p *Prober) checkPosition(ctx context.Context, first string) {
	if first == "" {
		p.checks.untested("the list has no events", checkPosition)
		return
	}
	at, fault := p.behind(first), ""
	var behind []map[string]any
	res, err := p.Client.Do(ctx, source.Request{Method: http.MethodGet, URL: at})
	if err == nil {
		err = json.NewDecoder(io.LimitReader(res.Body, mostOfDocument)).Decode(&behind)
		_ = res.Body.Close()
	}
	if err != nil {
		fault = fmt.Sprintf("the list behind the first event cannot be read: %v", err)
	} else if slices.ContainsFunc(behind, func(e map[string]any) bool { return textOf(e, "id") == first }) {
		fault = fmt.Sprintf("the list behind %q has this event again", first)
	}
	p.checks.record(at, fault, nil, checkPosition)
}

// behind returns the URL of the events behind the one with an ID.
func (p *Prober) behind(id string) string {
	at, err := url.Parse(p.URL)
	if err != nil {
		return p.URL
	}
	query := at.Query()
	query.Set("lastEventId", id)
	at.RawQuery = query.Encode()
	return at.String()
}
