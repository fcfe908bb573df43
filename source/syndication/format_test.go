package syndication_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

const rdfDocument = `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">` +
	`<channel rdf:about="x"><title/></channel><item rdf:about="a"><title>a</title></item></rdf:RDF>`

// A feed keeps its format: that of the configuration, or that of the first poll.
func TestFormatOfAFeed(t *testing.T) {
	t.Parallel()
	as := func(f feedxml.Format) edit { return func(c *syndication.Config) { c.Format = f } }
	for name, tt := range map[string]struct {
		before, doc string
		edit        edit
		says        string // "" if it is read
	}{
		"as configured":                {"", atom("", "a@1"), as(feedxml.Atom), ""},
		"another than configured":      {"", rss("", "a"), as(feedxml.Atom), "the document is rss, and the feed is configured as atom"},
		"RSS 1.0 is RSS":               {"", rdfDocument, as(feedxml.RSS), ""},
		"Atom is not":                  {"", atom("", "a@1"), as(feedxml.RSS), "the document is atom, and the feed is configured as rss"},
		"the same as before":           {atom("", "a@1"), atom("", "a@1 b@2"), as(""), ""},
		"another than before":          {atom("", "a@1"), rss("", "a b"), as(""), "the document is rss, and the feed was atom until now"},
		"another version of RSS":       {rss("", "a"), rdfDocument, as(""), "the document is rdf, and the feed was rss until now"},
		"another than before, in tail": {"", rss("", "a"), func(c *syndication.Config) { c.Format, c.Dialect = feedxml.Atom, "kurrent" }, "the feed is configured as atom"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			u := newUpstream("/feed", tt.before)
			r := u.read(t, tt.edit)
			if tt.before != "" {
				must.Succeed(t, r.poll())
			}
			u.set("/feed", tt.doc)
			published := len(r.messages)
			r.restart()
			switch err := r.poll(); {
			case tt.says == "" && err != nil:
				t.Error(err)
			case tt.says == "":
			case !errors.Is(err, feed.ErrPermanent) || !strings.Contains(err.Error(), tt.says):
				t.Errorf("got %v, want one that says %q", err, tt.says)
			case len(r.messages) != published:
				t.Errorf("%d messages were published", len(r.messages)-published)
			}
		})
	}
}

// Multipart pages are those of a datareplication feed, never an error page.
func TestFeedIsMultipart(t *testing.T) {
	t.Parallel()
	u := newUpstream("/feed", "--x--\r\n")
	u.field("/feed", "Content-Type", "Multipart/package; boundary=x")
	if err := u.read(t).poll(); !errors.Is(err, feed.ErrPermanent) || !strings.Contains(err.Error(), "as of a datareplication feed") {
		t.Errorf("got %v", err)
	}
}

func TestIgnoreChangesIn(t *testing.T) {
	t.Parallel()
	const item = "<rss version='2.0' xmlns:slash='urn:slash'><channel><title/><item><guid>a</guid><title>TITLE</title><slash:comments>COUNT</slash:comments></item></channel></rss>"
	doc := func(title, count string) string {
		return strings.NewReplacer("TITLE", title, "COUNT", count).Replace(item)
	}
	for name, tt := range map[string]struct {
		ignored   string
		published int
	}{
		"everything counts":       {"nothing", 3},
		"a name of any namespace": {"comments", 2},
		"a name of a namespace":   {"{urn:slash}comments", 2},
		"a name of another one":   {"{urn:other}comments", 3},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			u := newUpstream()
			r := u.read(t, func(c *syndication.Config) { c.IgnoreChangesIn = []string{tt.ignored} })
			for _, doc := range []string{doc("x", "1"), doc("x", "2"), doc("y", "2")} {
				u.set("/feed", doc)
				must.Succeed(t, r.poll())
			}
			if len(r.messages) != tt.published {
				t.Errorf("%d messages, want %d", len(r.messages), tt.published)
			}
		})
	}
}
