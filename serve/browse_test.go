package serve

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// A browser gets a page that people can read, and programs the page of the feed.
func TestBrowsersGetAPageForPeople(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	s := serveTopic(t, topic)
	if g := s.get(t, "/latest", "Accept", browser).want(t, 200); !strings.Contains(g.body, "The feed has no entities yet.") {
		t.Errorf("an empty feed shows %s", g.body)
	}
	// A cache must not send the answer for a program to a browser, or the reverse.
	if g := s.get(t, "/latest", "Accept", "multipart/*").want(t, 204); g.header.Get("Vary") != vary {
		t.Errorf("an empty feed is served with %v", g.header)
	}
	topic.numbered(7)
	topic.add(messageOf("<script>\x1b@x", feed.Put, noon, strings.Repeat("<b>é", 5000), feed.Field{Name: "Content-Type", Value: "text/html"}))
	topic.add(messageOf("9@x", feed.Delete, noon, "\x00"))

	for _, accept := range []string{browser, "multipart/*;q=0, text/html;q=0.1", "Text/HTML;Q=1"} {
		if g := s.get(t, "/pages/e0-3-1", "Accept", accept).want(t, 200); !strings.HasPrefix(g.header.Get("Content-Type"), "text/html") {
			t.Errorf("Accept %q gets %v", accept, g.header)
		}
	}
	g := s.get(t, "/pages/e0-3-1", "Accept", browser).want(t, 200)
	for _, want := range []string{"m3@x", "m5@x", "body 4", `href="https://feed.example/feeds/orders/pages/e0-3-0"`, "e0-3-2", "3 entities"} {
		if !strings.Contains(g.body, strings.Replace(want, "https://feed.example", homeOf(s), 1)) {
			t.Errorf("there is no %s in %s", want, g.body)
		}
	}
	if strings.Index(g.body, "m5@x") > strings.Index(g.body, "m3@x") {
		t.Error("the newest entity is not the first")
	}
	if h := g.header; h.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(h.Get("Vary"), "Accept") || len(h["Link"]) > 0 {
		t.Errorf("got %v", h)
	}
	g = s.get(t, "/latest", "Accept", browser).want(t, 200)
	if strings.Contains(g.body, "<script") || strings.Contains(g.body, "\x1b") || strings.Contains(g.body, "<b>") || len(g.body) > 10_000 || !strings.Contains(g.body, "(not text)") {
		t.Errorf("got %d bytes: %s", len(g.body), g.body)
	}

	for _, accept := range []string{
		"", "*/*", "multipart/*", "multipart/mixed, text/html;q=0.1",
		"text/html;q=0, */*", "text/html; q=0.0, */*", "text/html;level=1;Q=0,*/*", "text/html;q=x, */*",
		"text/html, image/gif, image/jpeg, */*; q=0.2", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", // Java
	} {
		g := s.get(t, "/pages/e0-3-1", "Accept", accept).want(t, 200)
		if !strings.HasPrefix(g.header.Get("Content-Type"), "multipart/") || g.header.Get("Vary") != "Accept, Accept-Encoding" {
			t.Errorf("Accept %q gets %v", accept, g.header)
		}
	}
}

func homeOf(s *served) string {
	return strings.TrimSuffix(fmt.Sprint(s.cfg.feedURL()), "/feeds/orders")
}

// Snapshots are pages for people in a browser, too, and neither their index nor their
// pages are taken for another type than they are.
func TestBrowsersGetSnapshotsForPeople(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for i, body := range []string{"<script>one</script>", "two", "three", "in the last second"} {
		topic.add(messageOf(fmt.Sprintf("<%d@x>", i), feed.Put, later(i), body))
	}
	s := serveTopic(t, topic, sized(2), withSnapshots(func(c *Snapshot) { c.Key = nil }))
	must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
	server := NewServer(ServerOptions{}, s.Feed)
	ask := func(url, accept string) got {
		r, w := httptest.NewRequest("GET", url, nil), httptest.NewRecorder()
		r.Header.Set("Accept", accept)
		server.ServeHTTP(w, r)
		g := got{w.Code, w.Result().Header, w.Body.String()}.want(t, 200)
		if g.header.Get("X-Content-Type-Options") != "nosniff" || g.header.Get("Vary") != "Accept" {
			t.Errorf("got %v", g.header)
		}
		return g
	}
	index := s.get(t, "/snapshots/latest", "Accept", browser).want(t, 302).header.Get("Location")
	tags := map[string]bool{}
	for _, test := range []struct{ url, contentType, accept string }{
		{index, "application/json", "application/json"},
		{index + "/0", "multipart/mixed; boundary=", "multipart/*"},
		{index, "text/html; charset=utf-8", browser},
		{index + "/0", "text/html; charset=utf-8", browser},
	} {
		g := ask(test.url, test.accept)
		if !strings.HasPrefix(g.header.Get("Content-Type"), test.contentType) {
			t.Errorf("%s is %s", test.url, g.header.Get("Content-Type"))
		}
		if tag := g.header.Get("ETag"); tag != "" && tags[tag] {
			t.Errorf("two representations have the ETag %s", tag)
		} else {
			tags[tag] = true
		}
	}
	if g := ask(index, browser); !strings.Contains(g.body, `/1">page 1</a>`) {
		t.Errorf("the index has no link to a page: %s", g.body)
	}
	page := ask(index+"/0", browser).body
	for _, want := range []string{"&lt;0@x&gt;", "&lt;script&gt;one", "two", "PUT", "text/plain", "2026-03-01 12:00:01 UTC", `/1">next page</a>`} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s in %s", want, page)
		}
	}
	if strings.Contains(page, "three") || strings.Contains(page, "<script>") {
		t.Errorf("got %s", page)
	}
	if page := ask(index+"/1", browser).body; !strings.Contains(page, "three") || strings.Contains(page, "next page") || !strings.Contains(page, "previous page") {
		t.Errorf("got %s", page)
	}
}
