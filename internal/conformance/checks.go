package conformance

import (
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
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// The checks of a [Prober] and of [Pages.Compare].
const (
	checkHead        = "head"
	checkDate        = "date"
	checkETag        = "etag"
	checkSince       = "since"
	checkConditional = "conditional"
	checkCache       = "cache"
	checkClosed      = "closed"
	checkOpen        = "open"
	checkURLs        = "urls"
	checkNext        = "next"
	checkCurrent     = "current"
	checkFlag        = "flag"
	checkMembers     = "members"
	checkItemIDs     = "item ids"
	checkContent     = "content"
	checkMedia       = "media type"
	checkPosition    = "position"
)

// Checks are the results of checks by their names.
type Checks map[string]*check

type check struct {
	tested int // how many times
	failed Violations
	reason string // why it was not tested
}

func (c Checks) of(name string) *check {
	if c[name] == nil {
		c[name] = new(check)
	}
	return c[name]
}

// record records the result of checks of a page: what is wrong with it, if that is not empty, or the error
// that prevented the checks.
func (c Checks) record(page, fault string, err error, names ...string) {
	for _, name := range names {
		switch check := c.of(name); {
		case err != nil:
			check.reason = err.Error()
		case fault != "":
			check.failed.add(Evidence{page, fault})
			fallthrough
		default:
			check.tested++
		}
	}
}

func (c Checks) untested(reason string, names ...string) {
	c.record("", "", errors.New(reason), names...)
}

// NotReadAgain records why the pages were not read a second time.
func (c Checks) NotReadAgain(err error) {
	c.record("", "", fmt.Errorf("the feed could not be read again: %w", err), checkClosed, checkOpen, checkURLs)
}

// unless returns a fault, or nothing if all is well.
func unless(well bool, fault string, args ...any) string {
	if well {
		return ""
	}
	return fmt.Sprintf(fault, args...)
}

// Prober makes the requests that a crawl does not make.
type Prober struct {
	Client *source.Client
	URL    string // of the feed

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
	switch {
	case r.Format == "jsonfeed":
		p.checkJSONFeed(ctx)
	case r.Format == httpfeed.Kind:
		p.checkEvents(ctx)
	case r.Dialect == syndication.Archived:
		p.checkArchives(ctx)
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

// difference returns how the header of an answer to HEAD differs from that of GET; empty if it does not.
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
	name, r := checkETag, source.Request{Method: http.MethodGet, URL: url, IfNoneMatch: tag}
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
		name, r.IfModifiedSince = checkSince, modified
	}
	fault := ""
	switch res, err := p.request(ctx, r); {
	case err != nil:
		p.checks.record(url, "", err, name, checkConditional)
		return
	case res.Status == http.StatusNotModified:
	case res.Header.Get("ETag") == tag && res.Header.Get("Last-Modified") == modified:
		fault = fmt.Sprintf("a request with If-None-Match %q and If-Modified-Since %q is answered with %d, and the same validators", r.IfNoneMatch, r.IfModifiedSince, res.Status)
	case tries > 1:
		p.checkConditional(ctx, url, res, tries-1)
		return
	default:
		p.checks.record(url, "", errChanging, name, checkConditional)
		return
	}
	p.checks.record(url, fault, nil, name, checkConditional)
}

// read returns the beginning of the document at a URL.
func (p *Prober) read(ctx context.Context, url string) (*source.Response, []byte, error) {
	res, err := p.Client.Do(ctx, source.Request{Method: http.MethodGet, URL: url})
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, mostOfDocument))
	return res, b, err
}

// readJSON parses the feed, and checks its media type. If it cannot be parsed, the checks with these names
// are not tested.
func (p *Prober) readJSON(ctx context.Context, media string, into any, names ...string) bool {
	res, b, err := p.read(ctx, p.URL)
	if err == nil {
		is := res.Header.Get("Content-Type")
		p.checks.record(p.URL, unless(mediaType(is) == media, "it has the Content-Type %q", is), nil, checkMedia)
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		p.checks.record(p.URL, "", fmt.Errorf("the document cannot be parsed as a whole: %w", err), append(names, checkMedia)...)
	}
	return err == nil
}

func (p *Prober) checkJSONFeed(ctx context.Context) {
	var document map[string]any
	if !p.readJSON(ctx, "application/feed+json", &document, checkMembers, checkItemIDs, checkContent) {
		return
	}
	_, version := document["version"].(string)
	_, title := document["title"].(string)
	items, listed := document["items"].([]any)
	p.checks.record(p.URL, unless(version && title && listed, "version is a string: %t, title is a string: %t, items is a list: %t", version, title, listed), nil, checkMembers)
	for i, item := range items {
		members, _ := item.(map[string]any)
		p.checks.record(p.URL, unless(textOf(members, "id") != "", "item %d has the id %v", i, members["id"]), nil, checkItemIDs)
		content := members["content_html"] != nil || members["content_text"] != nil
		p.checks.record(p.URL, unless(content, "item %d, %v, has neither", i, members["id"]), nil, checkContent)
	}
}

// textOf returns the text of a member; empty if it is none.
func textOf(members map[string]any, name string) string {
	text, _ := members[name].(string)
	return text
}

func (p *Prober) checkEvents(ctx context.Context) {
	var events, behind []map[string]any
	if !p.readJSON(ctx, "application/cloudevents-batch+json", &events, checkMembers, checkPosition) {
		return
	}
	if len(events) == 0 {
		p.checks.untested("the list has no events", checkMembers, checkPosition)
		return
	}
	for i, event := range events {
		for _, name := range []string{"id", "source", "type", "specversion"} {
			p.checks.record(p.URL, unless(textOf(event, name) != "", "event %d has the %s %v", i, name, event[name]), nil, checkMembers)
		}
	}
	first := textOf(events[0], "id")
	at, fault := p.behind(first), ""
	_, b, err := p.read(ctx, at)
	if err == nil {
		err = json.Unmarshal(b, &behind)
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

// checkArchives follows the archives from the subscription document, some of them.
func (p *Prober) checkArchives(ctx context.Context) {
	at, newer := p.URL, ""
	for n := range mostProbed {
		res, b, err := p.read(ctx, at)
		if err != nil {
			return // the crawl reports it
		}
		document := feedxml.NewReader(strings.NewReader(string(b)), feedxml.Options{URL: res.URL.String(), ContentType: res.Header.Get("Content-Type")})
		for err == nil {
			_, err = document.Next()
		}
		m := document.Meta()
		if n > 0 {
			_, links := m.Link("current")
			p.checks.record(at, unless(links > 0, "it has no link current"), nil, checkCurrent)
			p.checks.record(at, unless(m.Archive, "it has no fh:archive"), nil, checkFlag)
		}
		if n > 1 {
			link, links := m.Link("next-archive")
			fault := unless(links > 0, "it has no link next-archive")
			if links > 0 && link.Href != newer {
				fault = fmt.Sprintf("its link next-archive leads to %s, and the document whose link prev-archive leads here is %s", link.Href, newer)
			}
			p.checks.record(at, fault, nil, checkNext)
		}
		older, links := m.Link("prev-archive")
		if links == 0 {
			return
		}
		newer, at = at, older.Href
	}
}
