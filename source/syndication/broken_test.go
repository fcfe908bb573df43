package syndication_test

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

func lenient(l syndication.Leniency) edit {
	return func(c *syndication.Config) { c.Lenient = l }
}

// A fault in one entry does not keep the others from the topic, and nothing is
// deleted because of a document that is not well-formed.
func TestBrokenFeeds(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
	}
	broken := func(doc string) string { return strings.Replace(doc, "BAD", "a & b", 1) }
	run("a window", func(t *testing.T) {
		r := newUpstream("/feed", broken(rss("", "c@3:a b@2:BAD a@1:a"))).read(t)
		r.want("a:a b:a &amp; b c:a", feedxml.NotWellFormed)
		if d := r.details[0].Detail; !strings.Contains(d, "1 fault was repaired: line 1, column ") || !strings.Contains(d, `a & b</description>`) {
			t.Errorf("detail %s", d)
		}
		r.want("")
		// It is mended.
		r.u.set("/feed", rss("", "c@3:a b@2:a&amp;b a@1:a"))
		r.want("b:a&amp;b")
	})
	run("a window that breaks off", func(t *testing.T) {
		doc := rss("", "c@3:a b@2:a a@1:a")
		r := newUpstream("/feed", doc[:strings.LastIndex(doc, "<guid>")]).read(t)
		r.wantWaits()
		r.want("b:a c:a", feedxml.NotWellFormed)
		r.u.requests()
		r.want("")
		r.wantRequests("/feed") // its validators may be those of the whole document
		r.u.set("/feed", doc)
		r.want("a:a")
	})
	run("a prefix that is not declared", func(t *testing.T) {
		doc := strings.Replace(rss("", "b@2:BAD a@1:a"), "BAD", "b<media:c/>", 1)
		r := newUpstream("/feed", doc).read(t)
		r.want("a:a b:b<media:c/>", feedxml.UndeclaredPrefix)
		if body := string(r.last[1].Body); !strings.Contains(body, `xmlns:media="http://search.yahoo.com/mrss/"`) {
			t.Errorf("the body is %s", body)
		}
		// The declaration that was added is no change.
		r.u.set("/feed", strings.Replace(doc, "<description>a", "<description>a2", 1))
		r.want("a:a2")
		// A strict reader publishes the entry as it is written.
		newUpstream("/feed", doc).read(t, lenient("false")).want("a:a b:b<media:c/>")
	})
	run("a window, strictly", func(t *testing.T) {
		r := newUpstream("/feed", broken(rss("", "c@3:a b@2:BAD a@1:a"))).read(t, lenient("false"))
		r.wantError(false, "", "line 1, column ", "a & b", "until the provider corrects the document", "set lenient to true")
	})
	run("a paged feed", func(t *testing.T) {
		r := newUpstream(
			"/feed", broken(atom(link("next", "/2"), "c@3:BAD")),
			"/2", broken(atom("", "b@2:a a@1:BAD")),
		).read(t)
		r.want("a:a &amp; b b:a c:a &amp; b", "paged_feed_is_lossy", feedxml.NotWellFormed, feedxml.NotWellFormed)
	})
	run("an archived feed", func(t *testing.T) {
		docs := []string{"/a1", broken(atom(archive, "a@1:BAD")), "/feed", atom(prev("/a1"), "b@2:a")}
		newUpstream(docs...).read(t).wantError(false, "", "a & b", "set lenient to true")
		newUpstream(docs...).read(t, lenient("true")).want("a:a &amp; b b:a", feedxml.NotWellFormed)
	})
	run("a complete feed", func(t *testing.T) {
		r := newUpstream("/feed", atom(complete, "a b")).read(t, lenient("true"))
		r.want("b a")
		r.u.set("/feed", broken(atom(complete, "a:BAD c")))
		r.wantError(false, "", "a & b", "would be deleted")
		// It breaks off before its element fh:complete.
		doc := strings.Replace(atom("", "a c"), "</feed>", complete+"</feed>", 1)
		r.u.set("/feed", doc[:strings.Index(doc, complete)])
		r.wantError(false, "", "breaks off")
		r.u.set("/feed", doc)
		r.want("c -b")
	})
	run("a head that swallows its links", func(t *testing.T) {
		lost := func(doc string) string { return strings.Replace(doc, "<link", "<title>T<link", 1) }
		r := newUpstream("/feed", atom(prev("/a1"), "b"), "/a1", atom(archive, "a")).read(t, lenient("true"))
		r.want("a b")
		r.u.set("/feed", lost(atom(prev("/a2"), "d")))
		r.u.set("/a2", atom(archive+prev("/a1"), "c"))
		r.wantError(false, "", "the end tag of title is missing")
		r.u.set("/feed", atom(prev("/a2"), "d"))
		r.want("c d")

		r = newUpstream("/feed", atom(link("next", "/2"), "b"), "/2", atom("", "a")).read(t)
		r.want("a b", "paged_feed_is_lossy")
		r.u.set("/feed", lost(atom(link("next", "/2"), "d")))
		r.u.set("/2", atom("", "c b"))
		r.want("d", "incomplete", feedxml.NotWellFormed)
		r.u.set("/feed", atom(link("next", "/2"), "d"))
		r.want("c")
	})
	run("a tombstone", func(t *testing.T) {
		r := newUpstream("/feed", atom("", "b@1 a@1")).read(t)
		r.want("a b")
		r.u.set("/feed", broken(atom("", "-b@5 c@4:BAD a@1")))
		r.want("c:a &amp; b", feedxml.NotWellFormed, "deletes_withheld")
		r.u.set("/feed", strings.Replace(atom("", "-b@5 c@4:BAD a@1"), "BAD", "a&nbsp;b", 1))
		r.want("c:a&#160;b", "undefined_entity", "deletes_withheld")
		r.u.set("/feed", atom("", "-b@5 c@4:BAD a@1"))
		r.want("c:BAD -b")
	})
	run("a feed that nobody can read", func(t *testing.T) {
		r := newUpstream("/feed", "<rss><channel>").read(t, lenient("false"))
		for range 4 {
			r.wantError(false, "", "breaks off")
		}
		r.wantError(true, "", "5 times in a row", "its provider has to act", "breaks off")
		r.u.set("/feed", rss("", "a"))
		r.want("a")
		r.u.set("/feed", "{}")
		r.wantError(false, "", "JSON")
	})
}
