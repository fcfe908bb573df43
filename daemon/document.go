package daemon

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/link"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

const (
	// mostOfPage is the size of the part of a document that is no feed that is read, in bytes.
	mostOfPage = 1 << 20
	// mostPageFeeds is the maximum number of feeds of a page.
	mostPageFeeds = 20
	// mostNamed is the maximum number of feeds, and of members of JSON, that an error names.
	mostNamed = 5
)

// NotFeedError is the error for a URL that serves something other than a feed.
type NotFeedError struct {
	// Feeds are the URLs of the feeds that the document names, in its order.
	Feeds []string
	// Index reports that the document is the index of a snapshot.
	Index bool
	// List reports that the document is a list of feeds in OPML.
	List bool
	url  string
	what string
	cure string
	// binary reports that the first bytes are of no text.
	binary bool
}

func (e *NotFeedError) Error() string {
	return fmt.Sprintf("GET %s: the url serves %s, and no feed; %s", e.url, e.what, e.cure)
}

// newNotFeedError returns the error for a response whose document begins with head.
func newNotFeedError(resp *source.Response, head []byte, redact *safetext.Redactor) *NotFeedError {
	d := &document{NotFeedError: NotFeedError{url: redact.URL(resp.URL.String())}, head: head, redact: redact}
	d.media = mediaType(resp)
	d.Feeds = linkedFeeds(resp)
	d.describe(resp.URL.String())
	if len(d.Feeds) > 0 && !d.Index {
		var shown []string
		for _, url := range d.Feeds[:min(len(d.Feeds), mostNamed)] {
			shown = append(shown, redact.Excerpt(redact.URL(url), 200))
		}
		d.what += " that names the feed " + shown[0]
		d.cure = "set url to that"
		if n := len(d.Feeds); n > 1 {
			d.what = strings.Replace(d.what, "the feed "+shown[0], fmt.Sprintf("%d feeds, %s", n, strings.Join(shown, ", ")), 1)
			d.cure = "set url to one of them; 'feedbridge discover' shows their newest entries"
		}
	}
	return &d.NotFeedError
}

// linkedFeeds returns the URLs of the feeds that the header Link of a response names.
func linkedFeeds(resp *source.Response) (urls []string) {
	for _, field := range resp.Header.Values("Link") {
		for l := range link.Read(field) {
			to, err := resp.URL.Parse(l.Target)
			if err == nil && !l.Anchored && len(urls) < mostPageFeeds && feedxml.AnnouncesFeed(l.Relations, l.Type, l.Target) &&
				!slices.Contains(urls, to.String()) {
				urls = append(urls, to.String())
			}
		}
	}
	return urls
}

// document is the beginning of a document that is no feed.
type document struct {
	NotFeedError
	head   []byte
	media  string
	redact *safetext.Redactor
}

const (
	checkURL  = "check the url, or ask the provider for that of the feed"
	guessCure = "; 'feedbridge discover --guess' tries the usual paths"
)

// describe sets what the document is, and the cure. base is its URL.
func (d *document) describe(base string) {
	d.cure = checkURL
	text := bytes.TrimSpace(bytes.TrimPrefix(d.head, []byte("\xef\xbb\xbf")))
	for bytes.HasPrefix(text, []byte("<!--")) {
		_, rest, _ := bytes.Cut(text, []byte("-->"))
		text = bytes.TrimSpace(rest)
	}
	sniffed, _, _ := mime.ParseMediaType(http.DetectContentType(text))
	switch {
	case len(text) == 0:
		d.what, d.cure = "an empty answer", "if it stays empty, check the url"
	case d.media == "text/event-stream":
		d.what = "a stream of events (Server-Sent Events)"
	case text[0] == '{':
		d.describeObject(text)
	case text[0] == '[':
		d.describeList(text)
	case sniffed == "text/html" || d.media == "text/html" && text[0] == '<':
		d.describePage(text, base)
	case text[0] == '<':
		d.describeXML(text, base)
	case strings.HasPrefix(sniffed, "text/"):
		d.what = fmt.Sprintf("text that begins with %q", d.excerpt(string(text[:min(len(text), 1000)])))
	default:
		if sniffed == "application/octet-stream" { // it is not known
			sniffed = cmp.Or(d.media, sniffed)
		}
		d.what, d.binary = fmt.Sprintf("binary data (%s)", d.excerpt(sniffed)), true
	}
}

func (d *document) excerpt(text string) string {
	return d.redact.Excerpt(strings.Join(strings.Fields(text), " "), 60)
}

// describeObject describes a JSON object by its members.
func (d *document) describeObject(text []byte) {
	in := json.NewDecoder(bytes.NewReader(text))
	_, _ = in.Token()
	names, message, version := []string{}, "", ""
	for len(names) < 100 && in.More() {
		token, err := in.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			break
		}
		names = append(names, name)
		var value json.RawMessage
		if in.Decode(&value) != nil {
			break
		}
		var s string
		if json.Unmarshal(value, &s) != nil || s == "" {
			continue
		}
		switch name {
		case "error", "error_description", "message", "detail":
			message = s
		case "version":
			version = s
		}
	}
	has := func(name string) bool { return slices.Contains(names, name) }
	switch {
	case has("pages") && (has("id") || has("createdAt")), has("id") && has("createdAt") && len(names) == 2: // others have more
		d.what, d.Index = "the index of a snapshot", true
		d.cure = "set start to snapshot: and this url, and url to that of the feed"
	case strings.Contains(version, "jsonfeed.org"):
		d.what, d.cure = "a JSON Feed of another version than 1 and 1.1, or without items", "set url to an Atom or RSS feed of the site"
	case message != "":
		d.what, d.cure = fmt.Sprintf("the answer of an API with the message %q", d.excerpt(message)), "check the url, and whether the API wants credentials (auth)"
	case len(names) == 0:
		d.what = "an empty or broken JSON object"
	default:
		d.what = "JSON of an API with the members " + d.names(names)
	}
}

// names returns the first names as a list.
func (d *document) names(names []string) string {
	shown := make([]string, min(len(names), mostNamed))
	for i := range shown {
		shown[i] = d.excerpt(names[i])
	}
	if len(names) > mostNamed {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}

// describeList describes a JSON array by its first value.
func (d *document) describeList(text []byte) {
	in := json.NewDecoder(bytes.NewReader(text))
	_, _ = in.Token()
	var first json.RawMessage
	d.what = "a JSON list"
	if !in.More() || in.Decode(&first) != nil || first[0] != '{' {
		return
	}
	o := &document{redact: d.redact}
	if o.describeObject(first); strings.HasPrefix(o.what, "JSON of an API") {
		d.what += " of objects" + strings.TrimPrefix(o.what, "JSON of an API")
	}
}

// describePage describes an HTML page by its title, its feeds and its password field.
func (d *document) describePage(text []byte, base string) {
	for _, url := range feedxml.PageFeeds(text, base, mostPageFeeds) {
		if len(d.Feeds) < mostPageFeeds && !slices.Contains(d.Feeds, url) {
			d.Feeds = append(d.Feeds, url)
		}
	}
	title, login := "", false
	z := html.NewTokenizer(bytes.NewReader(text))
	for kind := z.Next(); kind != html.ErrorToken; kind = z.Next() {
		t := z.Token()
		switch {
		case t.Type == html.StartTagToken && t.Data == "title" && title == "":
			if z.Next() == html.TextToken {
				title = z.Token().Data
			}
		case t.Data == "input":
			login = login || slices.ContainsFunc(t.Attr, func(a html.Attribute) bool {
				return a.Key == "type" && strings.EqualFold(a.Val, "password")
			})
		}
	}
	d.what, d.cure = "an HTML page", checkURL+guessCure
	if login && len(d.Feeds) == 0 {
		d.what, d.cure = "a login page (HTML)", "set auth to the credentials of the feed, or ask the provider for a url that programs can read"
	}
	if title = d.excerpt(title); title != "" {
		d.what += fmt.Sprintf(" %q", title)
	}
}

// roots are the descriptions of XML documents that have a cure, and the cures, by the local names of their root elements.
var roots = map[string]struct{ what, cure string }{
	"opml":         {"a list of feeds (OPML)", "set url to the xmlUrl of one of its outlines, or name the list in feeds_from"},
	"urlset":       {"a sitemap", "it lists pages and not entries: set url to the site's feed"},
	"sitemapindex": {"an index of sitemaps", "it lists pages and not entries: set url to the site's feed"},
	"service":      {"a list of collections (AtomPub)", "set url to the href of one of its collections"},
	"Error":        {"the error of an object store", "check the url, and whether the object may be read without credentials"},
	"problem":      {"the error of an API", "check the url, and whether the API wants credentials (auth)"},
}

// describeXML describes an XML document by its root element.
func (d *document) describeXML(text []byte, base string) {
	in := xml.NewDecoder(bytes.NewReader(text))
	in.Strict = false
	in.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	var root *xml.StartElement
	for root == nil {
		token, err := in.Token()
		if err != nil {
			d.what = "XML without a root element"
			return
		}
		if start, ok := token.(xml.StartElement); ok {
			root = &start
		}
	}
	known, ok := roots[root.Name.Local]
	switch {
	case root.Name.Local == "html":
		d.describePage(text, base)
	case ok:
		d.what, d.cure = known.what, known.cure
		d.List = root.Name.Local == "opml"
	case root.Name.Space != "":
		d.what = fmt.Sprintf("XML with the root element %s of %s", d.excerpt(root.Name.Local), d.excerpt(root.Name.Space))
	default:
		d.what = "XML with the root element " + d.excerpt(root.Name.Local)
	}
}
