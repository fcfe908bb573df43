package serve

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// entryOf returns the path of the entry point.
func (s *served) entryOf() string { return strings.TrimPrefix(s.cfg.entryURL(), s.cfg.feedURL()) }

// Browsers get a page for people, and everything that reads feeds gets the feed.
func TestReadersGetTheFeed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, accept string
		html         bool
	}{
		{"no Accept", "", false},
		{"curl, NetNewsWire, Feedly", "*/*", false},
		{"FreshRSS (SimplePie)", "application/atom+xml, application/rss+xml, application/rdf+xml;q=0.9, application/xml;q=0.8, text/xml;q=0.8, text/html;q=0.7, unknown/unknown;q=0.1, application/unknown;q=0.1, */*;q=0.1", false},
		{"Thunderbird", "application/atom+xml,application/rss+xml;q=0.9,application/rdf+xml;q=0.8,application/xml;q=0.7,text/xml;q=0.7,*/*;q=0.1", false},
		{"QuiteRSS", "text/xml, text/html, */*", false},
		{"XML as much as HTML", "application/xml, text/html, */*;q=0.9", false},
		{"a client of JSON", "application/json, text/html;q=0.9, */*;q=0.8", false},
		{"a client of http-feeds", "application/cloudevents-batch+json", false},
		{"HTML refused", "text/html;q=0, */*", false},
		{"Chrome", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7", true},
		{"Firefox", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/png,image/svg+xml,*/*;q=0.8", true},
		{"Safari", browser, true},
		{"a browser that refuses XML", "text/html, application/atom+xml;q=0", true},
	}
	for _, format := range Format("").Values() {
		s := serveTopic(t, numberedTopic(7), as(Format(format)))
		for _, test := range tests {
			for _, path := range []string{s.entryOf(), "/pages/e0-3-0"} {
				if format == string(HTTPFeeds) && path != "" {
					path = "?lastEventId=e0-2"
				}
				g := s.get(t, path, "Accept", test.accept).want(t, 200)
				if html := strings.HasPrefix(g.header.Get("Content-Type"), "text/html"); html != test.html || g.header.Get("Vary") != vary {
					t.Errorf("%s: %s gets %v at %s", format, test.name, g.header, path)
				}
			}
		}
	}
}

// The representations of a page have ETags of their own. HEAD and conditional requests agree with GET, and
// pages that do not change may be cached as long in HTML.
func TestHTMLIsARepresentation(t *testing.T) {
	t.Parallel()
	for _, format := range Format("").Values() {
		parallel.Run(t, format, func(t *testing.T) {
			s := serveTopic(t, numberedTopic(9), as(Format(format)), func(c *Config) { c.PublicURL = "https://shop.example/f" })
			closed := "/pages/e0-3-1"
			if format == string(HTTPFeeds) {
				closed = "?lastEventId=e0-2"
			}
			for _, path := range []string{s.entryOf(), closed} {
				program, person := s.get(t, path).want(t, 200), s.get(t, path, "Accept", browser).want(t, 200)
				tag := person.header.Get("ETag")
				if tag == "" || tag == program.header.Get("ETag") || person.header.Get("Cache-Control") != program.header.Get("Cache-Control") {
					t.Errorf("%s: a browser gets %v, and a program %v", path, person.header, program.header)
				}
				if path == closed && !strings.Contains(person.header.Get("Cache-Control"), "public, max-age=") {
					t.Errorf("%s is cached as %s", path, person.header.Get("Cache-Control"))
				}
				head := s.ask(t, http.MethodHead, path, "Accept", browser).want(t, 200)
				if fmt.Sprint(head.header) != fmt.Sprint(person.header) || head.body != "" {
					t.Errorf("HEAD %s gets %v, and GET %v", path, head, person.header)
				}
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					g := s.ask(t, method, path, "Accept", browser, "If-None-Match", tag).want(t, 304)
					if g.header.Get("ETag") != tag || g.header.Get("Vary") != vary || g.header.Get("Cache-Control") != person.header.Get("Cache-Control") {
						t.Errorf("%s %s: 304 with %v", method, path, g.header)
					}
					s.ask(t, method, path, "Accept", "*/*", "If-None-Match", tag).want(t, 200)
					s.ask(t, method, path, "Accept", browser, "If-None-Match", program.header.Get("ETag")).want(t, 200)
				}
			}
		})
	}
}

// hrefOf returns where a link of a page for people leads, "" if there is none.
func (g got) hrefOf(name string) string {
	before, _, ok := strings.Cut(g.body, `">`+name+"</a>")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(before[strings.LastIndex(before, `"`)+1:], "&amp;", "&")
}

// A person gets from the newest page to the oldest and back, also where retention has taken pages.
func TestHTMLPagesAreLinked(t *testing.T) {
	t.Parallel()
	for _, first := range []uint64{0, 4, 7} {
		for _, format := range Format("").Values() {
			parallel.Run(t, fmt.Sprint(format, " from ", first), func(t *testing.T) {
				topic := numberedTopic(14)
				topic.trim(first)
				s := serveTopic(t, topic, as(Format(format)))
				at := func(link string) got {
					return s.get(t, strings.TrimPrefix(link, s.cfg.feedPath()), "Accept", browser).want(t, 200)
				}
				g := at(s.entryOf())
				if format == string(HTTPFeeds) {
					g = at(g.hrefOf("Newest page"))
				}
				seen, pages := g.body, []got{g}
				for older := g.hrefOf("Older"); older != ""; older = g.hrefOf("Older") {
					g = at(older)
					if seen += g.body; len(pages) > 10 {
						t.Fatal("there is no oldest page")
					}
					pages = append(pages, g)
				}
				// A page is gone with the page in front of it; events are not.
				low := (first+2)/3*3 + 3
				if format == string(HTTPFeeds) || first == 0 {
					low = first
				}
				for i := low; i < 14; i++ {
					if !strings.Contains(seen, fmt.Sprintf("body %d<", i)) {
						t.Errorf("no page shows message %d", i)
					}
				}
				for n := 1; n <= 10 && g.hrefOf("Newer") != ""; n++ {
					g = at(g.hrefOf("Newer"))
				}
				if !strings.Contains(g.body, "body 11<") && !strings.Contains(g.body, "body 13<") {
					t.Errorf("the last page that newer ones lead to is %s", g.body)
				}
				if g = at(g.hrefOf("Newest page")); !strings.Contains(g.body, "body 13<") {
					t.Errorf("the newest page does not show message 13: %s", g.body)
				}
			})
		}
	}
}

// Of an entry of a feed a page has the title, the date and the text. Whatever is in it, it is text.
func TestHTMLOfHostileEntries(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("W", 1<<20)
	topic := newTopic()
	for i, title := range []string{"<script>alert(1)</script>plain", "\u202egnp.exe\u2066 \u200f\u061c\x1b[31m", huge, `"'><img src=x onerror=alert(1)>`} {
		d := entry.Document{ID: fmt.Sprintf("i%d", i), Title: title, URL: "javascript:alert(1)", DatePublished: fmt.Sprintf("2026-02-0%dT10:00:00Z", i+1)}
		d.ContentHTML = "<p>one <b>two</b></p><script>evil()</script><style>*{}</style><iframe src='https://evil.example'></iframe>\u202e&lt;script&gt;three" + title
		topic.add(messageOf(fmt.Sprintf("i%d\u202e<b>", i), feed.Put, later(i), string(d.Marshal()),
			feed.Field{Name: "Content-Type", Value: entry.ContentType}, feed.Field{Name: entryID, Value: fmt.Sprintf("i%d", i)}))
	}
	topic.add(messageOf("text@x", feed.Put, noon, "</pre></article><script>evil()</script>\u202e\u2067\r\nline\u00a0two "+huge, feed.Field{Name: "Content-Type", Value: "<script>/x"}))
	for _, format := range Format("").Values() {
		s := serveTopic(t, topic, as(Format(format)), sized(10), func(c *Config) { c.Title = "Shop </title><script>\u202e " + huge })
		g := s.get(t, s.entryOf(), "Accept", browser).want(t, 200)
		for _, bad := range []string{"<script", "<img", "<iframe", "<b>", "javascript:", "\u202e", "\u2066", "\u2067", "\u200f", "\u061c", "\x1b", "evil.example", strings.Repeat("W", 501)} {
			if strings.Contains(g.body, bad) {
				t.Errorf("%s: the page has %q", format, bad)
			}
		}
		if len(g.body) > 20_000 {
			t.Errorf("%s: the page has %d bytes", format, len(g.body))
		}
		for _, want := range []string{"&lt;/pre&gt;", "one two", "line two", "&lt;script&gt;three", "5 entities"} {
			if !strings.Contains(g.body, want) {
				t.Errorf("%s: the page has no %q:\n%s", format, want, g.body)
			}
		}
		if s.cfg.isLinked() && !strings.Contains(g.body, "2026-02-03 10:00:00 UTC") {
			t.Errorf("%s: the page has not the date of the entry", format)
		}
	}
}

// A page of Atom has the newest version of an entry only, in HTML too.
func TestHTMLHasTheNewestVersion(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for i, body := range []string{"former", "other", "current"} {
		topic.add(messageOf([]string{"a", "b", "a"}[i], feed.Put, later(i), body))
	}
	g := serveTopic(t, topic, as(Atom)).get(t, "/latest", "Accept", browser).want(t, 200)
	if strings.Contains(g.body, "former") || strings.Index(g.body, "current<") > strings.Index(g.body, "other<") || !strings.Contains(g.body, "2 entities") {
		t.Errorf("got %s", g.body)
	}
}

// A browser does not wait for events.
func TestHTMLOfEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(3)
		s := serveTopic(t, topic, as(HTTPFeeds))
		begun := time.Now()
		g := s.get(t, "?lastEventId=e0-2&timeout=30000", "Accept", browser).want(t, 200)
		if time.Since(begun) > 0 || !strings.Contains(g.body, "There are no newer entities yet.") || g.header.Get("Cache-Control") != "no-store" {
			t.Errorf("after %v got %v", time.Since(begun), g)
		}
		if g := s.get(t, "?lastEventId=e0-2").want(t, 200); g.body != "[]" || g.header.Get("Vary") != vary {
			t.Errorf("got %v", g)
		}
	})
}

// A page of a topic that is created again while the page is read is gone.
func TestHTMLIsOfOneTopic(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(7)
	s := serveTopic(t, topic, as(Atom))
	s.get(t, "/pages/e0-3-0").want(t, 200) // it is cached
	topic.set(func() { topic.during = topic.renew })
	s.get(t, "/pages/e0-3-0", "Accept", browser).want(t, 410)
}
