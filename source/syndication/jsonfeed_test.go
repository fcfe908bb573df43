package syndication_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// jsonFeed writes a JSON Feed with further members, and entries as [atom] has them.
func jsonFeed(members, entries string) string {
	items := []string{}
	for _, e := range strings.Fields(entries) {
		id, at, text := cutEntry(e)
		if at != "" {
			at = fmt.Sprintf(`"date_modified":%q,`, at)
		}
		items = append(items, fmt.Sprintf(`{"id":%q,%s"content_text":%q}`, id, at, text))
	}
	return fmt.Sprintf(`{"version":"https://jsonfeed.org/version/1.1","title":"T",%s"items":[%s]}`, members, strings.Join(items, ","))
}

func inSource(c *syndication.Config) { c.Body = "source" }

// Edits of items are published, and items that vanish stay.
func TestJSONFeedWindow(t *testing.T) {
	t.Parallel()
	t.Run("case 30: a window of items", testJSONFeedWindow)
}

func testJSONFeedWindow(t *testing.T) {
	u := newUpstream("/feed", jsonFeed("", "b a"))
	r := u.read(t, inSource)
	r.want("a b")
	if got := string(r.last[0].Body); got != `{"id":"a","content_text":""}` {
		t.Errorf("the body is %s", got)
	}
	if r.title != "T" {
		t.Errorf("the title is %q", r.title)
	}
	header := map[string]string{}
	for _, f := range r.last[0].Header {
		header[f.Name] = f.Value
	}
	delete(header, "Last-Modified")
	if diff := cmp.Diff(map[string]string{"Content-ID": "a", "Content-Type": "application/json", "Operation-Type": "http-equiv=PUT", "Feed-Format": "jsonfeed", "Feed-Title": "T"}, header); diff != "" {
		t.Error(diff)
	}
	r.want("")
	u.set("/feed", jsonFeed("", "c b:changed"))
	r.want("b:changed c")
	r.restart()
	u.set("/feed", jsonFeed("", "d c"))
	r.want("d")
}

// The body is an entry of the schema, with the authors of the feed.
func TestJSONFeedBody(t *testing.T) {
	t.Parallel()
	u := newUpstream("/feed", `{"version":"https://jsonfeed.org/version/1.1","title":"T","home_page_url":"http://x.example/","authors":[{"name":"A"}],"items":[
		{"id":7,"url":"/1","title":"x","_custom":{"a":1}}]}`)
	r := u.read(t, inJSON)
	r.want("7")
	var got, want any
	must.Succeed(t, json.Unmarshal(r.last[0].Body, &got))
	must.Succeed(t, json.Unmarshal([]byte(`{"id":"7","url":"`+host+`/1","title":"x","authors":[{"name":"A"}],
		"feed":{"title":"T","url":"`+host+`/feed","home_page_url":"http://x.example/"},
		"extensions":{"https://jsonfeed.org/version/1.1":{"_custom":[{"value":{"a":1}}],"id":[{"value":7}]}}}`), &want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// next_url leads to older items.
func TestJSONFeedPages(t *testing.T) {
	t.Parallel()
	next := func(url string) string { return fmt.Sprintf(`"next_url":%q,`, url) }
	t.Run("case 27: relative, and an item that moves", func(t *testing.T) {
		u := newUpstream("/feed", jsonFeed(next("2"), "d c"), "/2", jsonFeed(next("/3"), "c b"), "/3", jsonFeed("", "a"))
		u.read(t, inSource).want("a b c d", "paged_feed_is_lossy")
	})
	for name, test := range map[string]struct {
		field, want string
		violations  []string
	}{
		"without a type":           {"</2>; rel=next", "a b", []string{"paged_feed_is_lossy"}},
		"to a JSON Feed":           {`</2>; rel=next; type="application/feed+json"`, "a b", []string{"paged_feed_is_lossy"}},
		"to JSON":                  {`</2>; rel=next; type="application/json; charset=utf-8"`, "a b", []string{"paged_feed_is_lossy"}},
		"to a page of HTML":        {"</2>; rel=next; type=text/html", "b", nil},
		"to Atom and to JSON Feed": {"</atom>; rel=next; type=application/atom+xml, </2>; rel=next; type=application/feed+json", "a b", []string{"paged_feed_is_lossy"}},
	} {
		t.Run("case 27: a Link header "+name, func(t *testing.T) {
			u := newUpstream("/feed", jsonFeed("", "b"), "/2", jsonFeed("", "a"))
			u.field("/feed", "Link", test.field)
			u.read(t, inSource).want(test.want, test.violations...)
		})
	}
	t.Run("grows while a page is awaited and nothing is held", func(t *testing.T) {
		u := newUpstream("/feed", jsonFeed(next("/b"), "d c"), "/b", jsonFeed("", "b a"))
		r := u.read(t, inSource)
		u.fault("/b", status(500))
		r.wantError(false, "", "awaited")
		r.src.Release()
		u.set("/feed", jsonFeed(next("/f"), "h g"))
		u.set("/f", jsonFeed(next("/d"), "f e"))
		u.set("/d", jsonFeed(next("/b"), "d c"))
		r.want("a b c d e f g h")
	})
	t.Run("start now, and dates of publication only", func(t *testing.T) {
		items := `"items":[{"id":"b","date_published":"2026-01-02T00:00:00Z"},{"id":"a","date_published":"2026-01-01T00:00:00Z"}]}`
		u := newUpstream("/feed", `{"version":"https://jsonfeed.org/version/1.1","title":"T",`+next("/b")+items)
		u.read(t, inSource, func(c *syndication.Config) { c.Start.Now = true }).wantError(true, "", "its entries have no times of their last change")
	})
	t.Run("start now, and a second that two pages share", func(t *testing.T) {
		u := newUpstream("/feed", jsonFeed(next("/b"), "d@3 c@2"), "/b", jsonFeed("", "b@2 a@1"))
		r := u.read(t, inSource, func(c *syndication.Config) { c.Start.Now = true })
		r.want("", "paged_feed_is_lossy")
		u.set("/feed", jsonFeed(next("/b"), "e@4 d@3"))
		u.set("/b", jsonFeed("", "c@2 b@2 a@1"))
		r.want("e")
	})
	for name, pages := range map[string][2]string{"case 27: itself": {"/feed", ""}, "case 27: a circle": {"/2", "/feed"}} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream("/feed", jsonFeed(next(pages[0]), "b"), "/2", jsonFeed(next(pages[1]), "a"))
			r := u.read(t, inSource)
			for range 3 {
				_ = r.poll()
			}
			if n := len(strings.Fields(u.requests())); n > 12 {
				t.Errorf("%d requests", n)
			}
			if got := texts(r.messages); name == "case 27: a circle" && got != "a b" || name == "case 27: itself" && got != "b" {
				t.Errorf("published %q", got)
			}
		})
	}
}

// IDs that no header can have stay different.
func TestJSONFeedIDs(t *testing.T) {
	t.Parallel()
	t.Run("cases 21 and 28", func(t *testing.T) {
		u := newUpstream("/feed", `{"version":"https://jsonfeed.org/version/1.1","title":"T","items":[{"id":" a "},{"id":"a"},{"id":"\udc00"},{"id":"\udc01"}]}`)
		r := u.read(t, inSource)
		_ = r.poll()
		var ids []string
		for _, e := range r.last {
			ids = append(ids, e.ID)
		}
		slices.Sort(ids)
		if diff := cmp.Diff([]string{"%20a%20", "%uDC00", "%uDC01", "a"}, ids); diff != "" {
			t.Error(diff)
		}
	})
}

// Documents that break off, or are something else.
func TestJSONFeedTroubles(t *testing.T) {
	t.Parallel()
	t.Run("case 28: breaks off", func(t *testing.T) {
		u := newUpstream("/feed", strings.TrimSuffix(jsonFeed("", "c b a"), `""}]}`))
		r := u.read(t, inSource)
		for range 4 {
			_ = r.poll()
		}
		if got := texts(r.messages); got != "b c" {
			t.Errorf("published %q", got)
		}
		u.set("/feed", jsonFeed("", "c b a"))
		r.want("a")
	})
	t.Run("case 29: expired", func(t *testing.T) {
		u := newUpstream("/feed", jsonFeed(`"expired":true,`, "a"))
		r := u.read(t, inSource)
		r.want("a", "feed_expired")
		for range 2 {
			err := r.poll()
			if !errors.Is(err, feed.ErrPermanent) || feed.RetryDelay(err) != 24*time.Hour || !strings.Contains(err.Error(), "/feed has expired: true, and all of it is published") {
				t.Errorf("polled with %v, and again after %v", err, feed.RetryDelay(err))
			}
			r.restart()
		}
		u.set("/feed", jsonFeed(`"expired":true,`, "b a"))
		r.want("b", "feed_expired")
		u.set("/feed", jsonFeed("", "c b a"))
		r.want("c")
		r.want("")
	})
	t.Run("case 29: expired, without hints", func(t *testing.T) {
		r := newUpstream("/feed", jsonFeed(`"expired":true,`, "a")).read(t, inSource, func(c *syndication.Config) { c.Hints = "ignore" })
		r.want("a", "feed_expired")
		r.want("")
	})
	t.Run("xml", func(t *testing.T) {
		newUpstream("/feed", jsonFeed("", "a")).read(t).wantError(true, "", "set body to json")
	})
	t.Run("complete", func(t *testing.T) {
		u := newUpstream("/feed", jsonFeed("", "b a"))
		r := u.read(t, inJSON, func(c *syndication.Config) { c.Dialect = "complete" })
		r.want("a b")
		u.set("/feed", jsonFeed("", "b"))
		r.want("")
	})
	t.Run("was RSS", func(t *testing.T) {
		u := newUpstream("/feed", rss("", "a"))
		r := u.read(t, inSource)
		r.want("a")
		u.set("/feed", jsonFeed("", "a"))
		r.wantError(true, "", "checkpoint reset")
	})
	t.Run("an answer of an API", func(t *testing.T) {
		newUpstream("/feed", `{"error":"quota"}`).read(t, inSource).wantError(false, "", "no list", "items")
	})
}
