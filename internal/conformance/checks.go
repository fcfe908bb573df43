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

func (c Checks) tested(name string) { c.of(name).tested++ }

func (c Checks) failed(name, page, format string, args ...any) {
	c.tested(name)
	c.of(name).failed.add(Evidence{page, fmt.Sprintf(format, args...)})
}

func (c Checks) untested(name, format string, args ...any) {
	c.of(name).reason = fmt.Sprintf(format, args...)
}

// NotReadAgain records why the pages were not read a second time.
func (c Checks) NotReadAgain(err error) {
	for _, name := range []string{checkClosed, checkOpen, checkURLs} {
		c.untested(name, "the feed could not be read again: %v", err)
	}
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

// answer is a response of which the body was not read.
type answer struct {
	status int
	header http.Header
	date   time.Time
	url    string
}

func (p *Prober) request(ctx context.Context, r source.Request) (answer, error) {
	res, err := p.Client.Do(ctx, r)
	if err != nil {
		return answer{}, err
	}
	_ = res.Body.Close()
	return answer{res.Status, res.Header, res.Date, res.URL.String()}, nil
}

// probe makes the requests about one page. closed is whether it should not change any more.
func (p *Prober) probe(ctx context.Context, url string, closed bool) {
	get, err := p.request(ctx, source.Request{Method: http.MethodGet, URL: url})
	if err != nil {
		for _, name := range []string{checkHead, checkETag, checkSince, checkDate, checkCache} {
			p.checks.untested(name, "%v", err)
		}
		return
	}
	if url == p.URL && get.url != url {
		p.report.AddNote("the URL redirects to %s", get.url)
	}
	p.checkHead(ctx, url, get)
	p.checkConditional(ctx, url, get)
	modified, _, dated := message.ParseDate(get.header.Get("Last-Modified"))
	switch {
	case !dated:
	case get.header.Get("Date") == "":
		p.checks.untested(checkDate, "the responses have no Date")
	case modified.After(get.date):
		p.checks.failed(checkDate, url, "it has the Last-Modified %s and the Date %s", get.header.Get("Last-Modified"), get.header.Get("Date"))
	default:
		p.checks.tested(checkDate)
	}
	if closed {
		if fault := uncacheable(get.header); fault != "" {
			p.checks.failed(checkCache, url, "%s", fault)
		} else {
			p.checks.tested(checkCache)
		}
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
func difference(head, get answer) string {
	if head.status != get.status {
		return fmt.Sprintf("HEAD is answered with %d and GET with %d", head.status, get.status)
	}
	for _, name := range compared {
		h, g := head.header.Values(name), get.header.Values(name)
		switch name {
		case "Content-Length":
			// An answer to HEAD may lack it.
			if len(h) == 0 || len(g) == 0 || head.header.Get("Content-Encoding") != get.header.Get("Content-Encoding") {
				continue
			}
		case "Content-Type": // a boundary may be another one each time
			h, g = mediaTypes(h), mediaTypes(g)
		}
		if !slices.Equal(h, g) {
			return fmt.Sprintf("HEAD has %s %q and GET %q", name, h, g)
		}
	}
	return ""
}

// mediaTypes returns values of Content-Type without their parameters.
func mediaTypes(values []string) []string {
	var types []string
	for _, v := range values {
		media, _, _ := strings.Cut(v, ";")
		types = append(types, strings.ToLower(strings.TrimSpace(media)))
	}
	return types
}

func (p *Prober) checkHead(ctx context.Context, url string, get answer) {
	for range 3 {
		head, err := p.request(ctx, source.Request{Method: http.MethodHead, URL: url})
		status, refused := errors.AsType[*source.StatusError](err)
		if err != nil && (!refused || status.Status == http.StatusTooManyRequests) {
			p.checks.untested(checkHead, "%v", err)
			return
		}
		again, errAgain := p.request(ctx, source.Request{Method: http.MethodGet, URL: url})
		if errAgain != nil {
			p.checks.untested(checkHead, "%v", errAgain)
			return
		}
		if difference(again, get) != "" {
			get = again // it has changed meanwhile
			continue
		}
		if refused {
			p.checks.failed(checkHead, url, "%v", err)
		} else if differs := difference(head, get); differs != "" {
			p.checks.failed(checkHead, url, "%s", differs)
		}
		p.checks.tested(checkHead)
		return
	}
	p.report.AddNote("%s changed with each request", url)
	p.checks.untested(checkHead, "the pages change with each request")
}

func (p *Prober) checkConditional(ctx context.Context, url string, get answer) {
	tag, modified := get.header.Get("ETag"), get.header.Get("Last-Modified")
	at, _, dated := message.ParseDate(modified)
	name, r := checkETag, source.Request{Method: http.MethodGet, URL: url, IfNoneMatch: tag}
	switch {
	case tag != "":
		p.checks.untested(checkSince, "the pages have an ETag")
	case dated && get.date.Sub(at) >= 2*time.Second: // a page may change twice in a second
		p.checks.untested(checkETag, "the pages have no ETag")
		name, r = checkSince, source.Request{Method: http.MethodGet, URL: url, IfModifiedSince: modified}
	case dated:
		p.checks.untested(checkSince, "the pages were changed just now")
		return
	default:
		p.checks.untested(checkETag, "the pages have no ETag")
		p.checks.untested(checkSince, "the pages have no Last-Modified")
		if get.status != http.StatusNoContent && url == p.URL {
			p.checks.failed(checkConditional, url, "it has neither ETag nor Last-Modified")
		}
		return
	}
	for range 3 {
		answer, err := p.request(ctx, r)
		switch {
		case err != nil:
			p.checks.untested(name, "%v", err)
			return
		case answer.status == http.StatusNotModified:
			p.checks.tested(name)
			p.checks.tested(checkConditional)
			return
		case answer.header.Get("ETag") == tag && answer.header.Get("Last-Modified") == modified:
			for _, name := range []string{name, checkConditional} {
				p.checks.failed(name, url, "a request with If-None-Match %q and If-Modified-Since %q is answered with %d, and the same validators", r.IfNoneMatch, r.IfModifiedSince, answer.status)
			}
			return
		}
		tag, modified = answer.header.Get("ETag"), answer.header.Get("Last-Modified")
		if r.IfNoneMatch = tag; tag == "" {
			r.IfModifiedSince = modified
		}
	}
	p.report.AddNote("%s changed with each request", url)
	p.checks.untested(name, "the validators change with each request")
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

// expectMedia checks the media type of a response.
func (p *Prober) expectMedia(res *source.Response, want string) {
	if p.checks.tested(checkMedia); mediaTypes([]string{res.Header.Get("Content-Type")})[0] != want {
		p.checks.failed(checkMedia, p.URL, "it has the Content-Type %q", res.Header.Get("Content-Type"))
	}
}

func (p *Prober) checkJSONFeed(ctx context.Context) {
	res, b, err := p.read(ctx, p.URL)
	var document map[string]any
	if err == nil {
		p.expectMedia(res, "application/feed+json")
		err = json.Unmarshal(b, &document)
	}
	if err != nil {
		for _, name := range []string{checkMembers, checkItemIDs, checkContent, checkMedia} {
			p.checks.untested(name, "the document cannot be parsed as a whole: %v", err)
		}
		return
	}
	_, version := document["version"].(string)
	_, title := document["title"].(string)
	items, listed := document["items"].([]any)
	if p.checks.tested(checkMembers); !version || !title || !listed {
		p.checks.failed(checkMembers, p.URL, "version is a string: %t, title is a string: %t, items is a list: %t", version, title, listed)
	}
	for i, item := range items {
		members, _ := item.(map[string]any)
		if p.checks.tested(checkItemIDs); textOf(members, "id") == "" {
			p.checks.failed(checkItemIDs, p.URL, "item %d has the id %v", i, members["id"])
		}
		if p.checks.tested(checkContent); members["content_html"] == nil && members["content_text"] == nil {
			p.checks.failed(checkContent, p.URL, "item %d, %v, has neither", i, members["id"])
		}
	}
}

// textOf returns the text of a member; empty if it is none.
func textOf(members map[string]any, name string) string {
	text, _ := members[name].(string)
	return text
}

func (p *Prober) checkEvents(ctx context.Context) {
	res, b, err := p.read(ctx, p.URL)
	var events []map[string]any
	if err == nil {
		p.expectMedia(res, "application/cloudevents-batch+json")
		err = json.Unmarshal(b, &events)
	}
	if err != nil || len(events) == 0 {
		for _, name := range []string{checkMembers, checkPosition, checkMedia} {
			p.checks.untested(name, "the list has no events, or cannot be parsed as a whole: %v", err)
		}
		return
	}
	for i, event := range events {
		p.checks.tested(checkMembers)
		for _, name := range []string{"id", "source", "type", "specversion"} {
			if textOf(event, name) == "" {
				p.checks.failed(checkMembers, p.URL, "event %d has the %s %v", i, name, event[name])
			}
		}
	}
	first := textOf(events[0], "id")
	at := p.behind(first)
	var behind []map[string]any
	if _, b, err = p.read(ctx, at); err == nil {
		err = json.Unmarshal(b, &behind)
	}
	switch {
	case err != nil:
		p.checks.failed(checkPosition, at, "the list behind the first event cannot be read: %v", err)
	case slices.ContainsFunc(behind, func(e map[string]any) bool { return textOf(e, "id") == first }):
		p.checks.failed(checkPosition, at, "the list behind %q has this event again", first)
	default:
		p.checks.tested(checkPosition)
	}
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
			p.expectLink(m, at, "current", checkCurrent, "")
			if p.checks.tested(checkFlag); !m.Archive {
				p.checks.failed(checkFlag, at, "it has no fh:archive")
			}
		}
		if n > 1 {
			p.expectLink(m, at, "next-archive", checkNext, newer)
		}
		older, links := m.Link("prev-archive")
		if links == 0 {
			return
		}
		newer, at = at, older.Href
	}
}

// expectLink checks that a document has a link, and that it leads to a URL if that is not empty.
func (p *Prober) expectLink(m *feedxml.Meta, at, rel, name, to string) {
	p.checks.tested(name)
	switch link, n := m.Link(rel); {
	case n == 0:
		p.checks.failed(name, at, "it has no link %s", rel)
	case to != "" && link.Href != to:
		p.checks.failed(name, at, "its link %s leads to %s, and the document whose link prev-archive leads here is %s", rel, link.Href, to)
	}
}
