package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Documents checks each document that a crawl gets, as it was sent: the sources repair and complete much of what they
// read.
type Documents struct {
	mu       sync.Mutex // guards the fields below
	checks   Checks
	done     bool                    // the results were taken
	checked  map[string]uint64       // the hash of each document, by its URL
	first    string                  // the URL of the first document
	event    string                  // the ID of the first event
	archives map[string]feedxml.Meta // with links between archives
	jsonFeed bool                    // a document is a JSON Feed, but perhaps for its version
}

// NewDocuments returns a Documents for one crawl.
func NewDocuments() *Documents {
	return &Documents{checks: Checks{}, checked: map[string]uint64{}, archives: map[string]feedxml.Meta{}}
}

// Results ends the checks, and returns their results. A document without version may be why the format of r is not known.
func (d *Documents) Results(r *Report) Checks {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done = true; d.jsonFeed && r.Format == "auto" {
		r.Format = "jsonfeed"
	}
	if r.Dialect == syndication.Archived {
		d.checkArchives()
	}
	return d.checks
}

// Wrap returns a transport that passes what next gets to the checks.
func (d *Documents) Wrap(next http.RoundTripper) http.RoundTripper { return &recorder{d, next} }

type recorder struct {
	documents *Documents
	next      http.RoundTripper
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	res, err := r.next.RoundTrip(request)
	if err == nil && request.Method == http.MethodGet && res.StatusCode == http.StatusOK {
		res.Body = &recording{ReadCloser: res.Body, documents: r.documents, url: request.URL.String(), response: res}
	}
	return res, err
}

// recording is a body that is checked when it ends or is closed.
type recording struct {
	io.ReadCloser
	documents *Documents
	url       string
	response  *http.Response
	read      bytes.Buffer
	done      bool
}

func (b *recording) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Write(p[:max(0, min(n, mostOfDocument-b.read.Len()))])
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

func (b *recording) Close() error {
	b.end(false)
	return b.ReadCloser.Close()
}

// end checks the body. ended is whether its end was read.
func (b *recording) end(ended bool) {
	if b.done {
		return
	}
	b.done = true
	body, r := b.read.Bytes(), b.response
	if r.Header.Get("Content-Encoding") == "gzip" {
		if unpacked, err := gzip.NewReader(&b.read); err == nil {
			body, _ = io.ReadAll(io.LimitReader(unpacked, mostOfDocument))
		}
	}
	// Without a length and chunks, a connection that breaks off looks like the end.
	whole := ended && len(body) < mostOfDocument && (r.ContentLength >= 0 || len(r.TransferEncoding) > 0 || r.ProtoMajor > 1)
	b.documents.check(b.url, r.Header, body, whole)
	b.read = bytes.Buffer{}
}

// check checks a document of any format, once. whole reports whether the body has the whole document.
func (d *Documents) check(url string, h http.Header, body []byte, whole bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hash := maphash.Bytes(seed, body)
	if was, known := d.checked[url]; d.done || len(body) == 0 || known && was == hash {
		return
	}
	if len(d.checked) == mostCompared {
		clear(d.checked) // a document that is read again is counted again
	}
	if d.checked[url] = hash; d.first == "" {
		d.first = url
	}
	for name, subject := range subjects {
		if subject.Match(body) {
			d.checks.record(url, "", nil, name)
		}
	}
	if h.Get("Link") != "" {
		d.checks.record(url, "", nil, needsHeaderLink)
	}
	switch start := bytes.TrimLeft(body, "\ufeff \t\r\n"); {
	case strings.HasPrefix(mediaType(h.Get("Content-Type")), "multipart/"):
		d.checkClosing(url, h, body, whole)
	case bytes.HasPrefix(start, []byte("{")):
		d.checkMedia(url, h, "application/feed+json")
		d.checkJSONFeed(url, start)
	case bytes.HasPrefix(start, []byte("[")):
		d.checkMedia(url, h, "application/cloudevents-batch+json")
		d.checkEvents(url, start)
	default:
		d.checkXML(url, h, body, whole)
	}
}

// checkClosing checks that a page has its closing delimiter.
func (d *Documents) checkClosing(url string, h http.Header, body []byte, whole bool) {
	_, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	closed := err == nil && bytes.Contains(body, []byte("--"+params["boundary"]+"--"))
	if err == nil && (closed || whole) {
		d.checks.record(url, unless(closed, "the response is complete, and ends without --%s--", params["boundary"]), nil, checkClosing)
	}
}

func (d *Documents) checkMedia(url string, h http.Header, want string) {
	is := h.Get("Content-Type")
	d.checks.record(url, unless(mediaType(is) == want, "it has the Content-Type %q", is), nil, checkMedia)
}

var errNotParsed = errors.New("the document cannot be parsed as a whole")

// parse parses a document of JSON. If that fails, the checks with these names are not tested.
func (d *Documents) parse(url string, body []byte, into any, names ...string) bool {
	err := json.NewDecoder(bytes.NewReader(body)).Decode(into)
	if err != nil {
		d.checks.record(url, "", fmt.Errorf("%w: %w", errNotParsed, err), names...)
	}
	return err == nil
}

// memberTypes has a value of the type of each member of JSON Feed.
var memberTypes = map[string]any{
	"home_page_url": "", "feed_url": "", "description": "", "user_comment": "", "next_url": "", "icon": "", "favicon": "",
	"language": "", "expired": false, "authors": []any{}, "hubs": []any{}, "url": "", "external_url": "", "title": "",
	"content_html": "", "content_text": "", "summary": "", "image": "", "banner_image": "", "date_published": "",
	"date_modified": "", "tags": []any{}, "attachments": []any{}, "mime_type": "",
}

// wrongType returns which member has another type than JSON Feed gives it, or what an attachment lacks.
func wrongType(members map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		is, known := members[name], memberTypes[name]
		if known != nil && is != nil && fmt.Sprintf("%T", is) != fmt.Sprintf("%T", known) {
			return fmt.Sprintf("%s is %v", name, is)
		}
		attachments, _ := is.([]any)
		for _, attachment := range attachments {
			of, _ := attachment.(map[string]any)
			if fault := wrongType(of); name == "attachments" && fault != "" {
				return "of an attachment " + fault
			}
			if name == "attachments" && (textOf(of, "url") == "" || textOf(of, "mime_type") == "") {
				return "an attachment lacks url or mime_type"
			}
		}
	}
	return ""
}

func (d *Documents) checkJSONFeed(url string, body []byte) {
	var document map[string]any
	if !d.parse(url, body, &document, checkMembers, checkItemIDs, checkContent, checkTypes) {
		return
	}
	_, version := document["version"].(string)
	_, title := document["title"].(string)
	items, listed := document["items"].([]any)
	d.jsonFeed = d.jsonFeed || title && listed
	d.checks.record(url, unless(version && title && listed, "version is a string: %t, title is a string: %t, items is a list: %t", version, title, listed), nil, checkMembers)
	d.checks.record(url, wrongType(document), nil, checkTypes)
	for i, item := range items {
		members, _ := item.(map[string]any)
		d.checks.record(url, unless(textOf(members, "id") != "", "item %d has %s", i, valueOf(members, "id")), nil, checkItemIDs)
		content := members["content_html"] != nil || members["content_text"] != nil
		d.checks.record(url, unless(content, "item %d with %s has neither", i, valueOf(members, "id")), nil, checkContent)
		for _, name := range []string{"date_published", "date_modified"} {
			if date, ok := members[name].(string); ok {
				d.checkDate(url, fmt.Sprintf("item %d", i), name, date, anyCase)
			}
		}
		fault := wrongType(members)
		d.checks.record(url, unless(fault == "", "in item %d %s", i, fault), nil, checkTypes)
	}
}

// The forms of dates. rfc3339 has no lower case, as RFC 4287 requires.
var (
	rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)
	anyCase = regexp.MustCompile("(?i)" + rfc3339.String())
	rfc822  = regexp.MustCompile(`(?i)^([a-z]{3}\s*,)?\s*\d\d?\s+[a-z]{3}\s+(\d\d|\d{4})\s+\d\d:\d\d(:\d\d)?\s+(UT|GMT|[ECMP][SD]T|[A-IK-Z]|[+-]\d{4})(\s*\(.*\))?$`)
)

// checkDate checks the form of a date. A text without a date is ignored: the crawl reports it.
func (d *Documents) checkDate(url, in, name, date string, form *regexp.Regexp) {
	_, _, readable := message.ParseDate(date)
	d.checks.record(url, unless(form.MatchString(date) || date != "" && !readable, "%s has the %s %q", in, name, date), nil, checkDates)
}

// textOf returns the text of a member; empty if it is none.
func textOf(members map[string]any, name string) string {
	text, _ := members[name].(string)
	return text
}

// valueOf names a member with its value.
func valueOf(members map[string]any, name string) string {
	if members[name] == nil {
		return "no " + name
	}
	return fmt.Sprintf("the %s %#v", name, members[name])
}

func (d *Documents) checkEvents(url string, body []byte) {
	var events []map[string]any
	if !d.parse(url, body, &events, checkMembers) {
		return
	}
	for i, event := range events {
		for _, name := range []string{"id", "source", "type", "specversion"} {
			d.checks.record(url, unless(textOf(event, name) != "", "event %d, %s, has %s", i, valueOf(event, "id"), valueOf(event, name)), nil, checkMembers)
		}
		if time, ok := event["time"].(string); ok {
			d.checkDate(url, fmt.Sprintf("event %d, %s,", i, valueOf(event, "id")), "time", time, anyCase)
		}
		if d.event == "" {
			d.event = textOf(event, "id")
		}
	}
}

// checkArchives checks the links of the archives, from the subscription document on.
func (d *Documents) checkArchives() {
	at, newer := d.first, ""
	for n := range len(d.archives) {
		m, read := d.archives[at]
		if !read {
			return // the crawl reports it
		}
		if n > 0 {
			_, links := m.Link("current")
			d.checks.record(at, unless(links > 0, "it has no link current"), nil, checkCurrent)
			d.checks.record(at, unless(m.Archive, "it has no fh:archive"), nil, checkFlag)
		}
		if n > 1 {
			link, links := m.Link("next-archive")
			fault := unless(links > 0, "it has no link next-archive")
			if links > 0 && link.Href != newer {
				fault = fmt.Sprintf("its link next-archive leads to %s, and the document whose link prev-archive leads here is %s", link.Href, newer)
			}
			d.checks.record(at, fault, nil, checkNext)
		}
		older, _ := m.Link("prev-archive")
		newer, at = at, older.Href
	}
}
