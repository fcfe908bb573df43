package syndication

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

func TestOriginHeaders(t *testing.T) {
	t.Parallel()
	redact := safetext.NewRedactor("ticket")
	d := &document{}
	d.url = "https://me:word@x.example/feed?token=abc"
	d.meta = feedxml.Meta{URL: "https://me:word@x.example/en/feed?token=abc&ticket=def", ID: "urn:f", Title: "News\n of \x01 today", Authors: []string{"A <a@b.example>", "B"}}
	want := feed.Header{
		{Name: "Feed-Id", Value: "urn:f"},
		{Name: "Feed-Title", Value: "News of %01 today"},
		{Name: "Feed-Author", Value: "A <a@b.example>"},
		{Name: "Feed-Author", Value: "B"},
		{Name: "Content-Location", Value: "https://x.example/en/feed?token=***&ticket=***"},
	}
	must.Match(t, "", want, d.originHeaders(redact))
	// A value that is too long for a header is left out, and so is a base that is the document.
	d.meta = feedxml.Meta{URL: d.url, ID: strings.Repeat("x", 2000), Title: " "}
	if h := d.originHeaders(redact); len(h) > 0 {
		t.Errorf("got %v", h)
	}
}
