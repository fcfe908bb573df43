package feedxml

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// htmlStart matches the start of an HTML page, or of a part of one that a server sends as a whole.
var htmlStart = regexp.MustCompile(`(?i)^\s*(?:<!--[^>]*-->\s*)*<(?:!doctype\s+html|html|head|body|title|meta|script|style|noscript|p|div|center|h[1-6])[\s>]`)

// htmlDoctype matches the document type of an HTML page, with which some feeds begin.
var htmlDoctype = regexp.MustCompile(`(?i)^<!doctype\s+html`)

// htmlError is the error of a document that is an HTML page. The unread bytes are its rest. It names
// the feed that the page announces, as browsers find it.
func htmlError(r *tokenizer) error {
	if urls := PageFeeds(r.readJunk(), r.opts.URL, 1); len(urls) > 0 {
		return r.errorAt(ErrNotFeed, 0, "the document is an HTML page, which announces the feed %s; set url to that", r.opts.Redact.Excerpt(r.opts.Redact.URL(urls[0]), longestDate))
	}
	return r.errorAt(ErrNotFeed, 0, "the document is an HTML page")
}

// PageFeeds returns the URLs of the feeds that an HTML page links to as its alternates, as browsers find
// them; at most that many. base is the URL of the page.
func PageFeeds(page []byte, base string, most int) []string {
	var urls []string
	hasBase := false
	for z := html.NewTokenizer(bytes.NewReader(page)); len(urls) < most && z.Next() != html.ErrorToken; {
		t := z.Token()
		if t.Type != html.StartTagToken && t.Type != html.SelfClosingTagToken || t.Data != "link" && t.Data != "base" {
			continue
		}
		attrs := map[string]string{}
		for _, a := range t.Attr {
			attrs[a.Key] = a.Val
		}
		url, ok := resolveLink(base, attrs["href"])
		switch {
		case attrs["href"] == "" || !ok:
		case t.Data == "base" && !hasBase:
			base, hasBase = url, true
		case t.Data == "link" && AnnouncesFeed(strings.Fields(strings.ToLower(attrs["rel"])), attrs["type"], url) && !slices.Contains(urls, url):
			urls = append(urls, url)
		}
	}
	return urls
}

// AnnouncesFeed reports whether a link of a page, or of the header of its answer, leads to a feed. JSON may also
// be an API's: version 1 of JSON Feed has that type for feeds. The relations are in lower case.
func AnnouncesFeed(relations []string, mediaType, url string) bool {
	name, _, _ := strings.Cut(strings.ToLower(mediaType), ";")
	switch strings.TrimSpace(name) {
	case "application/atom+xml", "application/rss+xml", "application/feed+json", "application/cloudevents-batch+json":
	case "application/json":
		if !strings.Contains(url, "feed") {
			return false
		}
	default:
		return false
	}
	return slices.Contains(relations, "alternate")
}
