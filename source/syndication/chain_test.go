package syndication_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

func rssArchived(head1, head2, headS string) *upstream {
	return newUpstream(
		"/a1", rss(head1+archive, "g1:old"),
		"/a2", rss(head2+archive+rssPrev("/a1"), "g2:a"),
		"/feed", rss(headS+rssPrev("/a2"), "g3:a g1:new"),
	)
}

func TestArchivedRSS(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
	}
	run("case 61: prefixes of the link", func(t *testing.T) {
		for _, to := range []string{`<a10:link xmlns:a10="http://www.w3.org/2005/Atom" `, `<link xmlns="http://www.w3.org/2005/Atom" `, "<atom:link "} {
			u := rssArchived("", "", "")
			for path, doc := range u.docs {
				u.set(path, strings.ReplaceAll(doc, "<atom:link ", to))
			}
			u.read(t).want("g1:old g2:a g1:new g3:a")
		}
	})
	run("case 62: the newer document wins", func(t *testing.T) {
		rssArchived("@1", "@2", "@3").read(t).want("g1:old g2:a g1:new g3:a")
	})
	run("case 63: no dates, so the place in the chain counts", func(t *testing.T) {
		rssArchived("", "", "").read(t).want("g1:old g2:a g1:new g3:a")
	})
	run("case 64: an archive that is newer than the feed", func(t *testing.T) {
		r := rssArchived("@9", "@2", "@3").read(t)
		r.want("g1:old g2:a g1:new g3:a", "archive_newer_than_feed")
	})
	run("case 64: an archive of the same second as the feed", func(t *testing.T) {
		rssArchived("@3", "@3", "@3").read(t).want("g1:old g2:a g1:new g3:a")
	})
	run("case 65: pubDate is no update time", func(t *testing.T) {
		u := rssArchived("@1", "@2", "@3")
		u.set("/a1", rss("@1", "g1@50:old"))
		u.read(t).want("g1:old g2:a g1:new g3:a")
	})
	run("case 100: an archive has what was deleted", func(t *testing.T) {
		u := newUpstream("/feed", atom("", "b@2 a@1"))
		r := u.read(t)
		r.want("a b")
		u.set("/feed", atom("", "b@2 -a@3"))
		r.want("-a")
		u.set("/a1", atom(archive, "b@2 a@1"))
		u.set("/feed", atom(prev("/a1"), "c@4"))
		r.want("c", "dialect_changed", "stale_dropped")
	})
}

func paged() *upstream {
	return newUpstream(
		"/feed", atom(link("next", "/p2"), "f@6 e@5"), "/p2", atom(link("next", "/p3")+link("previous", "/feed"), "d@4 c@3"),
		"/p3", atom(link("previous", "/p2"), "b@2 a@1"),
	)
}

func TestPaged(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		parallel.Run(t, name, func(t *testing.T) {
			synctest.Test(t, f)
		})
	}
	run("case 69: cold", func(t *testing.T) {
		r := paged().read(t)
		r.want("a b c d e f", "paged_feed_is_lossy")
		r.wantRequests("/feed /p2 /p3 /feed?if")
		r.want("")
		r.wantRequests("/feed?if")
	})
	run("case 70: the first page changes during the walk", func(t *testing.T) {
		u := paged()
		first := u.docs["/feed"]
		u.set("/feed", atom(link("next", "/p2"), "g@7 f@6"))
		u.set("/p2", atom(link("next", "/p3"), "e@5 d@4"))
		u.set("/p3", atom("", "c@3 b@2 a@1"))
		u.fault("/feed", body(200, "", first))
		r := u.read(t)
		r.want("a b c d e f g", "paged_feed_is_lossy")
		r.wantRequests("/feed /p2 /p3 /feed /p2 /p3 /feed?if")
	})
	run("case 70: the first page has changed when it is read again to be published", func(t *testing.T) {
		u := newUpstream("/feed", atom(link("next", "/p2"), "b@2"), "/p2", atom("", "a@1"))
		r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory = 1 })
		r.step()
		r.wantLast("a")
		u.set("/feed", atom(link("next", "/p2"), "c@3"))
		u.set("/p2", atom(link("next", "/p3"), "b@2"))
		u.set("/p3", atom("", "a@1"))
		r.want("c")
		r.want("b")
	})
	run("case 71: reading stops at what is known", func(t *testing.T) {
		r := paged().read(t)
		r.want("a b c d e f", "paged_feed_is_lossy")
		r.u.requests()
		r.u.set("/feed", atom(link("next", "/p2"), "h@8 g@7"))
		r.u.set("/p2", atom(link("next", "/p3"), "f@6 e@5"))
		r.want("g h")
		r.wantRequests("/feed?if /p2 /feed?if")
	})
	run("case 72: nothing is deleted", func(t *testing.T) {
		r := paged().read(t)
		r.want("a b c d e f", "paged_feed_is_lossy")
		r.u.set("/p3", atom("", "a@1"))
		time.Sleep(25 * time.Hour)
		r.u.requests()
		r.want("")
		r.wantRequests("/feed /p2 /p3 /feed?if")
		r.want("")
		r.wantRequests("/feed?if")
	})
	run("case 73: the last page leads to the first", func(t *testing.T) {
		u := paged()
		u.set("/p3", atom(link("next", "/feed"), "b@2 a@1"))
		u.read(t).want("a b c d e f", "paged_feed_is_lossy", "loop")
	})
	run("case 74: links in the other direction alone", func(t *testing.T) {
		u := newUpstream("/feed", atom(link("first", "/feed")+link("last", "/x")+link("previous", "/y"), "a@1"))
		r := u.read(t)
		r.want("a", "paged_feed_is_lossy")
		r.wantRequests("/feed")
	})
	run("case 75: a page is gone", func(t *testing.T) {
		u := paged()
		u.fault("/p2", status(410))
		u.read(t).want("e f", "paged_feed_is_lossy", "incomplete")
	})
	run("a walk that is not carried through, and then the pages are others", func(t *testing.T) {
		first := func(entries string) string { return atom(link("first", "/feed")+link("next", "/p2"), entries) }
		u := newUpstream("/feed", first("z"))
		u.set("/p2", atom("", "y"))
		r := u.read(t).inBatches(feed.Limits{Entities: 2})
		r.want("y z", "paged_feed_is_lossy")
		u.set("/feed", first("f e"))
		u.set("/p2", atom(link("next", "/p3"), "d c"))
		u.set("/p3", atom(link("next", "/p4"), "b a"))
		u.set("/p4", atom("", "z y"))
		r.last = nil
		r.step()
		r.wantLast("a b")
		r.restart()
		// The entries of the first page are known by now, and those of older pages are not.
		u.set("/feed", first("b a"))
		u.set("/p2", atom(link("next", "/p3"), "f e"))
		u.set("/p3", atom(link("next", "/p4"), "d c"))
		r.want("c d e f")
	})
	for _, tt := range []struct {
		name, doc, link, want string
		violations            []string
	}{
		{"next", "", "</p2>; rel=next", "a b", []string{"paged_feed_is_lossy"}},
		{"of several", "", `<https://api.example>; rel="https://api.w.org/", </p2>; rel="next http://www.iana.org/assignments/relation/NEXT"; title="a, b"`, "a b", []string{"paged_feed_is_lossy"}},
		{"prev-archive", "", "<p2>; rel=Prev-Archive; type=\"application/atom+xml\"", "a b", nil},
		{"current of an archive", archive, "</p2>; rel=current", "a", []string{"subscribed_to_archive"}},
		{"the same in the document", link("next", "/p2#x"), "</p2>; rel=next", "a b", []string{"paged_feed_is_lossy"}},
		{"another in the document", link("prev-archive", "/p2"), "</nowhere>; rel=prev-archive", "a b", []string{"link_differs_in_header"}},
		{"another self", link("self", "/feed"), "</rss>; rel=self", "b", []string{"link_differs_in_header"}},
		{"fh:prev in the document", "<fh:prev>/p2</fh:prev>", "</nowhere>; rel=prev-archive", "a b", []string{"link_differs_in_header"}},
		{"of a complete document", "<fh:complete/>", "</p2>; rel=next", "b", []string{"mixed_dialects"}},
		{"of another page", "", `</p2>; rel=next; anchor="/x"`, "b", nil},
		{"to a page of HTML", "", `</p2>; rel=next; type="text/html"`, "b", nil},
		{"to a JSON Feed", "", "</p2>; rel=next; type=application/feed+json", "b", nil},
		{"of another relation", "", "</p2>; rel=preload, </p2>; rel=shortlink", "b", nil},
		{"malformed", "", "</p2; rel=next", "b", nil},
	} {
		run("case 77: a Link header: "+tt.name, func(t *testing.T) {
			u := newUpstream("/feed", atom(tt.doc, "b@2"), "/p2", atom("", "a@1"))
			u.field("/feed", "Link", tt.link)
			r := u.read(t)
			r.want(tt.want, tt.violations...)
			r.restart()
			r.want("")
		})
	}
	run("case 77: a Link header: of RSS", func(t *testing.T) {
		u := newUpstream("/feed", rss("", "c:x"), "/2", rss(archive, "b:x"), "/1", rss(archive, "a:x"))
		u.field("/feed", "Link", `</2>; rel="prev-archive"; type="application/rss+xml"`)
		u.field("/2", "Link", "<1>; rel=prev-archive")
		u.read(t).want("a:x b:x c:x")
	})
	run("case 93: prev without this is a page", func(t *testing.T) {
		u := newUpstream("/feed", atom(link("prev", "/x"), "a@1"))
		r := u.read(t)
		r.want("a", "paged_feed_is_lossy")
		if r.place().Dialect != syndication.Paged {
			t.Errorf("the dialect is %s", r.place().Dialect)
		}
	})
	run("a crash in the middle", func(t *testing.T) {
		r := paged().read(t).inBatches(feed.Limits{Entities: 1})
		for more := true; more; {
			more = r.step()
			r.restart()
		}
		r.wantLast("a b c d e f")
	})
	run("start: now", func(t *testing.T) {
		u := paged()
		r := u.read(t, func(c *syndication.Config) { c.Start = source.Start{Now: true} })
		r.want("", "paged_feed_is_lossy")
		u.set("/feed", atom(link("next", "/p2"), "h@8 g@7"))
		u.set("/p2", atom(link("next", "/p3"), "f@6 e@5"))
		r.want("g h")
	})
}

func TestDrafts(t *testing.T) {
	t.Parallel()
	const stateful = "<fh:stateful>1</fh:stateful>"
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
	}
	chain := func() *upstream {
		t1 := atom(stateful+link("this", "/t1"), "b a")
		t2 := atom(stateful+link("this", "/t2")+link("prev", "/t1"), "c b:new")
		return newUpstream("/t1", t1, "/t2", t2, "/feed", t2)
	}
	run("case 79: this and prev", func(t *testing.T) {
		r := chain().read(t)
		r.want("a b b:new c")
		r.wantRequests("/feed /t1")
		if p := r.place(); p.Archives != 2 || p.Dialect != syndication.Snapshots {
			t.Errorf("place %+v", p)
		}
	})
	run("case 80: prev is known", func(t *testing.T) {
		r := chain().read(t)
		r.want("a b b:new c")
		r.u.requests()
		r.u.set("/feed", atom(stateful+link("this", "/t3")+link("prev", "/t2"), "d c"))
		r.want("d")
		r.wantRequests("/feed?if")
	})
	run("case 81: this is known", func(t *testing.T) {
		r := chain().read(t)
		r.want("a b b:new c")
		r.u.set("/feed", atom(stateful+link("this", "/t2")+link("prev", "/t1"), "c b:newer"))
		r.want("b:newer", "this_is_not_permanent")
	})
	run("case 82: nothing is deleted", func(t *testing.T) {
		r := chain().read(t)
		r.want("a b b:new c")
		r.u.set("/feed", atom(stateful+link("this", "/t3")+link("prev", "/t2"), ""))
		r.want("")
	})
	run("case 88: draft 05, previous is older", func(t *testing.T) {
		u := newUpstream("/feed", atom(link("previous", "/a1")+link("current", "/feed"), "b@2"), "/a1", atom(link("current", "/feed"), "a@1"))
		history := func(c *syndication.Config) { c.Dialect = "feed-history" }
		u.read(t, history).want("a b")
		r := chain().read(t, history) // the other drafts are read as they are detected
		r.want("a b b:new c")
		if p := r.place(); p.Dialect != syndication.Snapshots {
			t.Errorf("draft 00 is read as %s", p.Dialect)
		}
		newUpstream("/feed", rss(`<fh:prev>`+host+`/a1</fh:prev>`, "b@2"), "/a1", rss("", "a@1")).read(t, history).want("a b")
		u.read(t).want("b", "paged_feed_is_lossy")
	})
	run("case 89: PaceFeedState, one ID twice", func(t *testing.T) {
		u := newUpstream("/feed", atom(link("this", "/t1"), "e1:new e2 e1:old"))
		u.read(t, func(c *syndication.Config) { c.Dialect = "feed-history" }).want("e2 e1:new", "duplicate_ids")
	})
	run("case 91: prev is missing", func(t *testing.T) {
		u := chain()
		delete(u.docs, "/t1")
		u.read(t, func(c *syndication.Config) { c.Dialect = "feed-history" }).want("b:new c", "archive_gone")
	})
	run("case 92: links in a head", func(t *testing.T) {
		draft := func(doc string) string {
			return strings.Replace(doc, "http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#draft-ietf-atompub-format-05", 1)
		}
		u := newUpstream("/feed", draft(atom("<head>"+link("this", "/t2")+link("prev", "/t1")+"</head>", "b")), "/t1", draft(atom("<head>"+link("this", "/t1")+"</head>", "a")))
		u.read(t).want("a b")
	})
	run("drafts 01 to 04: fh:prev", func(t *testing.T) {
		u := newUpstream("/feed", atom("<fh:incremental>true</fh:incremental><fh:prev>/a1</fh:prev>", "b"), "/a1", atom(archive, "a"))
		u.read(t).want("a b")
	})
}

func TestTail(t *testing.T) {
	t.Parallel()
	events := func() *upstream {
		return newUpstream(
			"/feed", atom(link("last", "/0")+link("previous", "/4")+link("next", "/0"), "d@4 c@3"),
			"/0", atom(link("previous", "/2"), "b@2 a@1"),
			"/2", atom(link("previous", "/4")+link("next", "/0"), "d@4 c@3"),
			"/4", atom(link("next", "/2"), ""),
		)
	}
	kurrent := func(c *syndication.Config) { c.Dialect = "kurrent" }
	parallel.Run(t, "case 76: KurrentDB", func(t *testing.T) {
		r := events().read(t, kurrent)
		r.want("a b c d")
		r.wantRequests("/feed /0 /2 /4")
		if p := r.place(); p.Page != host+"/4" {
			t.Errorf("place %+v", p)
		}
		before := string(r.cursor)
		r.restart()
		r.want("")
		r.wantRequests("/4?if")
		if string(r.cursor) != before {
			t.Errorf("an idle poll has moved the cursor to %s", r.cursor)
		}
		r.u.set("/4", atom(link("next", "/2")+link("previous", "/5"), "e@5"))
		r.u.set("/5", atom(link("next", "/4"), ""))
		r.want("e")
		r.wantRequests("/4?if /5")
	})
	parallel.Run(t, "from now", func(t *testing.T) {
		r := events().read(t, kurrent, func(c *syndication.Config) { c.Start = source.Start{Now: true} })
		r.want("")
		r.u.set("/4", atom(link("next", "/2"), "e@5"))
		r.want("e")
	})
	parallel.Run(t, "the page is gone", func(t *testing.T) {
		r := events().read(t, kurrent)
		r.want("a b c d")
		delete(r.u.docs, "/4")
		r.u.set("/5", atom("", "e@5"))
		r.u.set("/2", atom(link("previous", "/5"), "d@4 c@3"))
		r.want("e", "page_gone")
	})
	parallel.RunVirtual(t, "the next newer page is not there yet", func(t *testing.T) {
		u := events()
		u.set("/4", atom(link("next", "/2")+link("previous", "/5"), ""))
		r := u.read(t, kurrent)
		r.want("a b c d", "incomplete")
		r.wantRequests("/feed /0 /2 /4 /5")
		before := string(r.cursor)
		for range 3 {
			time.Sleep(time.Minute)
			r.restart()
			r.want("")
			r.wantRequests("/4 /5")
		}
		if string(r.cursor) != before {
			t.Errorf("a poll that finds nothing has moved the cursor to %s", r.cursor)
		}
		u.set("/5", atom(link("next", "/4"), "e@5"))
		r.want("e")
		r.want("")
		r.wantRequests("/4 /5 /5?if")
	})
	parallel.Run(t, "the page is gone, and the one before it leads to it", func(t *testing.T) {
		r := events().read(t, kurrent)
		r.want("a b c d")
		delete(r.u.docs, "/4")
		r.u.requests()
		r.want("", "page_gone", "incomplete")
		r.wantRequests("/4?if /feed /0 /2 /4")
		r.want("")
		r.wantRequests("/2 /4")
	})
	parallel.Run(t, "the page to begin with is gone", func(t *testing.T) {
		u := events()
		delete(u.docs, "/0")
		r := u.read(t, kurrent)
		r.wantError(true, "", "/0: 404")
		r.wantRequests("/feed /0 /feed")
		r.wantError(true, "", "/0: 404")
		r.wantRequests("/0 /feed")
	})
	parallel.Run(t, "pages that take turns in being gone", func(t *testing.T) {
		u := events()
		for _, last := range []string{"/x", "/y", "/x", "/y"} {
			u.fault("/feed", body(200, "", atom(link("last", last), "")))
		}
		r := u.read(t, kurrent)
		r.want("", "page_gone", "page_gone")
		r.wantRequests("/feed /x /feed /y /feed")
	})
	for name, first := range map[string]string{"to itself": "/4", "in a ring": "/0"} {
		parallel.Run(t, "the last page leads "+name, func(t *testing.T) {
			u := events()
			u.noETag = true
			u.set("/4", atom(link("previous", first), "e@5"))
			r := u.read(t, kurrent)
			r.want("a b c d e", "loop")
			r.wantRequests("/feed /0 /2 /4")
			r.want("")
			r.restart()
			r.want("")
			r.wantRequests("/4 /4")
			u.set("/4", atom(link("previous", first), "f@6 e@5"))
			r.want("f", "loop")
		})
	}
	parallel.Run(t, "a chain without an end", func(t *testing.T) {
		u := newUpstream("/feed", atom(link("previous", "/1"), ""))
		for i := range 9 {
			u.set(fmt.Sprintf("/%d", i+1), atom(link("previous", fmt.Sprintf("/%d", i+2)), ""))
		}
		r := u.read(t, kurrent, func(c *syndication.Config) { c.Bounds.Documents = 3 })
		r.want("")
		r.wantRequests("/feed /feed /1 /2 /3")
		r.want("")
		r.wantRequests("/4 /5 /6")
	})
	parallel.Run(t, "a page that is read before the one in front of it is published", func(t *testing.T) {
		u := newUpstream("/feed", rss("", "e:old"))
		r := u.read(t, func(c *syndication.Config) {
			c.Dialect, c.Mode, c.Bounds.Memory = "ict4h", "tail", 2000
		})
		r.want("e:old")
		u.set("/feed", rss(`<atom:link rel="next-archive" href="/2"/>`, "e:new"))
		u.set("/2", rss("", "e:old f g h i j k l m n"))
		r.want("e:new e:old f g h i j k l m n")
	})
	parallel.Run(t, "what was read is never committed", func(t *testing.T) {
		r := events().read(t, kurrent)
		after := r.cursor
		for range 3 {
			b, err := r.src.Next(t.Context(), after, feed.Limits{})
			must.Succeed(t, err)
			after = b.Cursor
		}
		r.ids.Rollback()
		r.want("a b c d")
	})
	parallel.Run(t, "ICT4H, from the oldest page", func(t *testing.T) {
		u := newUpstream(
			"/1", atom(link("next-archive", "/2"), "a b"), "/2", atom(prev("/1")+link("next-archive", "/3"), "c d"),
			"/3", atom(prev("/2"), "e"), "/feed", atom(prev("/2")+link("via", "/3"), "e"),
		)
		r := u.read(t, func(c *syndication.Config) { c.Dialect, c.Mode = "ict4h", "tail" })
		r.want("a b c d e")
		u.set("/3", atom(prev("/2")+link("next-archive", "/4"), "e f"))
		u.set("/4", atom(prev("/3"), "g"))
		r.want("f g")
		r.restart()
		r.want("")
	})
	parallel.Run(t, "crashes", func(t *testing.T) {
		r := events().read(t, kurrent).inBatches(feed.Limits{Entities: 1})
		for more := true; more; {
			more = r.step()
			r.restart()
		}
		r.wantLast("a b c d")
	})
}
