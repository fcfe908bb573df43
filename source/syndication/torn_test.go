package syndication_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// torn returns a document that breaks off within the entry with that ID.
func torn(doc, id string) string {
	at := max(strings.Index(doc, "<id>"+id+"<"), strings.Index(doc, "<guid>"+id+"<"))
	return doc[:at+5]
}

// wantWaits polls as often as a document that breaks off is waited for.
func (r *reader) wantWaits() {
	r.t.Helper()
	for left := 2; left >= 0; left-- {
		r.wantError(false, "", "breaks off", fmt.Sprintf("wait for older ones that may be missing, for %d more polls at most", left))
	}
}

// Entries that a document had no time to name are older than those that it has, so publishing
// these at once would break the order.
func TestTornDocuments(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
	}
	whole := rss("", "13 12 11 10 9 8 7")
	run("the next poll has the whole document", func(t *testing.T) {
		r := newUpstream("/feed", rss("", "8 7 6")).read(t, func(c *syndication.Config) { c.Every = time.Hour })
		r.want("6 7 8")
		for _, doc := range []string{torn(whole, "10"), torn(whole, "13"), "<rss><channel>"} {
			r.u.set("/feed", doc)
			if err := r.poll(); feed.RetryDelay(err) != time.Minute {
				t.Errorf("the delay after %v is %v", err, feed.RetryDelay(err))
			}
			r.wantLast("")
		}
		r.u.set("/feed", whole)
		r.want("9 10 11 12 13")
		r.u.set("/feed", torn(rss("", "14 13 12"), "12")) // the rest is known
		r.want("14", feedxml.NotWellFormed)
	})
	run("waits are not added up", func(t *testing.T) {
		r := newUpstream("/feed", rss("", "1")).read(t)
		r.want("1")
		for i := 2; i < 8; i++ {
			doc := rss("", fmt.Sprintf("%d %d 1", i*10+1, i*10))
			r.u.set("/feed", torn(doc, fmt.Sprint(i*10)))
			r.wantError(false, "", "for 2 more polls at most")
			r.u.set("/feed", doc)
			r.want(fmt.Sprintf("%d %d", i*10, i*10+1))
		}
	})
	run("it stays like that", func(t *testing.T) {
		r := newUpstream("/feed", rss("", "8 7 6")).read(t)
		r.want("6 7 8")
		r.u.set("/feed", torn(whole, "10"))
		r.wantWaits()
		r.want("11 12 13", "possible_overrun", feedxml.NotWellFormed)
		r.u.set("/feed", whole)
		r.want("9 10")
	})
	run("a feed that never writes its end tags", func(t *testing.T) {
		endless := func(entries string) string { return strings.TrimSuffix(rss("", entries), "</channel></rss>") }
		r := newUpstream("/feed", endless("3 2 1")).read(t)
		r.wantWaits()
		r.want("1 2 3", feedxml.NotWellFormed)
		r.u.set("/feed", endless("4 3 2"))
		r.want("4", feedxml.NotWellFormed)
		r.u.set("/feed", endless("9 8 7"))
		r.want("7 8 9", "possible_overrun", feedxml.NotWellFormed)
		r.restart()
		r.want("")
		r.u.set("/feed", endless("10 9 8"))
		r.want("10", feedxml.NotWellFormed)
		// After a restart it waits once more.
		r.restart()
		r.u.set("/feed", endless("19 18 17"))
		r.wantWaits()
		r.want("17 18 19", "possible_overrun", feedxml.NotWellFormed)
	})
	run("a document without a whole entry", func(t *testing.T) {
		r := newUpstream("/feed", "<rss><channel>").read(t)
		r.wantWaits()
		r.want("", feedxml.NotWellFormed)
		r.restart()
		r.want("")
	})
	run("what comes first in the document is older", func(t *testing.T) {
		r := newUpstream("/feed", torn(atom("", "a@1 b@2 c@3"), "c")).read(t)
		r.want("a b", feedxml.NotWellFormed)
	})
	run("a sorted document", func(t *testing.T) {
		doc := atom("", "a@3 d@4 c@2 b@1")
		r := newUpstream("/feed", torn(doc, "b")).read(t)
		r.wantError(false, "", "breaks off")
		r.u.set("/feed", doc)
		r.want("b c a d")
	})
	run("what follows is from before the start", func(t *testing.T) {
		at := time.Date(1999, 10, 5, 3, 0, 2, 0, time.UTC)
		r := newUpstream("/feed", torn(atom("", "c@3 b@2 a@1 z@0"), "z")).read(t, func(c *syndication.Config) { c.Start.At = at })
		r.want("b c", feedxml.NotWellFormed)
	})
	run("a tombstone at its end", func(t *testing.T) {
		r := newUpstream("/feed", atom("", "b@2 a@1")).read(t)
		r.want("a b")
		r.u.set("/feed", torn(atom("", "c@3 b@2 -x@9 a@1"), "a"))
		r.want("c", feedxml.NotWellFormed, "unknown_tombstone")
	})
	run("a feed that is read once", func(t *testing.T) {
		newUpstream("/feed", torn(whole, "10")).read(t, func(c *syndication.Config) { c.Once = true }).want("11 12 13", feedxml.NotWellFormed)
	})
	run("pages", func(t *testing.T) {
		second := atom("", "b a z")
		r := newUpstream("/feed", atom(link("next", "/2"), "d c"), "/2", torn(second, "a")).read(t)
		r.wantError(false, "", "for 2 more polls at most")
		r.u.set("/2", second)
		r.want("z a b c d", "paged_feed_is_lossy")
		// All of them are torn: a walk waits for the first of them only.
		r = newUpstream("/feed", torn(atom(link("next", "/2"), "d c"), "c"), "/2", torn(atom(link("next", "/3"), "b a"), "a"), "/3", torn(atom("", "z y"), "y")).read(t)
		r.wantWaits()
		r.want("z b d", "incomplete", "incomplete", "incomplete", feedxml.NotWellFormed, feedxml.NotWellFormed, feedxml.NotWellFormed)
	})
	run("a part is published", func(t *testing.T) {
		r := newUpstream("/feed", torn(whole, "9")).read(t).inBatches(feed.Limits{Entities: 1})
		r.wantWaits()
		if more, err := r.next(); !more || err != nil {
			t.Fatal(more, err)
		}
		r.restart()
		r.want("11 12 13")
	})
}
