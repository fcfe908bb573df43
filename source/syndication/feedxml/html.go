package feedxml

import (
	"bytes"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// htmlStart matches the start of an HTML page, or of a part of one that a server sends as a whole.
var htmlStart = regexp.MustCompile(`(?i)^\s*(?:<!--[^>]*-->\s*)*<(?:!doctype\s+html|html|head|body|title|meta|script|style|noscript|p|div|center|h[1-6])[\s>]`)

// htmlError is the error of a document that is an HTML page. The unread bytes are its rest. It names
// the feed that the page announces, as browsers find it.
func htmlError(r *tokenizer) error {
	for r.moreJunk() {
	}
	b := r.in.unreadBytes()
	if url := announcedFeed(b[:min(len(b), mostJunk)], r.opts.URL); url != "" {
		return r.errorAt(ErrNotFeed, 0, "the document is an HTML page, which announces the feed %s; set url to that", r.opts.Redact.Excerpt(r.opts.Redact.URL(url), longestDate))
	}
	return r.errorAt(ErrNotFeed, 0, "the document is an HTML page")
}

// announcedFeed returns the URL of the first feed that an HTML page links to as its alternate; "" if
// there is none.
func announcedFeed(page []byte, base string) string {
	for z := html.NewTokenizer(bytes.NewReader(page)); z.Next() != html.ErrorToken; {
		t := z.Token()
		if t.Data != "link" {
			continue
		}
		attrs := map[string]string{}
		for _, a := range t.Attr {
			attrs[a.Key] = a.Val
		}
		isFeed := strings.Contains(attrs["type"], "atom+xml") || strings.Contains(attrs["type"], "rss+xml")
		if !isFeed || attrs["href"] == "" || !strings.Contains(" "+strings.ToLower(attrs["rel"])+" ", " alternate ") {
			continue
		}
		if url, ok := resolveLink(base, attrs["href"]); ok {
			return url
		}
	}
	return ""
}
