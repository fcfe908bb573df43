package syndication_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// TestRewalk reads published entries again, whose dates do not show which version is
// the newer one.
func TestRewalk(t *testing.T) {
	t.Parallel()
	pace := func(c *syndication.Config) { c.Dialect = "feed-history" }
	same := func(at string, entries string) string { return strings.ReplaceAll(entries, ":", at+":") }
	for name, tt := range map[string]struct {
		write func(head, entries string) string
		older func(href string) string
		at    string
		edit  edit
	}{
		"RSS":                  {rss, rssPrev, "", func(*syndication.Config) {}},
		"Atom of the same day": {atom, prev, "@1", func(*syndication.Config) {}},
		"PaceFeedState":        {atom, func(href string) string { return link("prev", href) }, "", pace},
	} {
		// publish puts the documents of a feed under URLs with that directory,
		// the oldest first.
		publish := func(u *upstream, dir string, docs ...string) {
			head := ""
			for i, entries := range docs {
				path := dir + strings.Repeat("a", i+1)
				if i == len(docs)-1 {
					path = "/feed"
				}
				u.set(path, tt.write(head, same(tt.at, entries)))
				head = tt.older(dir + strings.Repeat("a", i+1))
			}
		}
		run := func(what string, f func(t *testing.T, r *reader)) {
			for size, edit := range map[string]edit{"": tt.edit, ", bit by bit": func(c *syndication.Config) {
				tt.edit(c)
				c.Bounds.Memory = 1
			}} {
				parallel.Run(t, name+": "+what+size, func(t *testing.T) {
					u := newUpstream()
					publish(u, "/", "b:1 a:1", "c:1 a:2", "d:1 c:2 a:3")
					r := u.read(t, edit)
					if size != "" {
						r.batch.Entities = 1
					}
					r.want("a:1 b:1 a:2 c:1 a:3 c:2 d:1")
					f(t, r)
				})
			}
		}
		run("a reset", func(t *testing.T, r *reader) {
			r.cursor = nil
			r.restart()
			r.want("")
		})
		run("other URLs", func(t *testing.T, r *reader) {
			publish(r.u, "/new/", "b:1 a:1", "c:1 a:2", "d:1 c:2 a:3")
			r.want("")
		})
		run("a reset, and versions that were missed", func(t *testing.T, r *reader) {
			publish(r.u, "/", "b:1 a:1", "c:1 a:2", "d:1 c:2 a:3", "a:4", "c:3 a:5")
			r.cursor = nil
			r.restart()
			r.want("a:4 a:5 c:3")
		})
		run("a reset with a crash, and a version that is nowhere", func(t *testing.T, r *reader) {
			publish(r.u, "/", "e:1 b:1 a:1", "c:1 a:2", "d:1 c:2 a:4")
			r.cursor = nil
			r.restart()
			for range 10 {
				r.step()
				r.restart()
			}
			if got := texts(r.messages[7:]); got != "e:1 a:4" {
				t.Errorf("published %s", got)
			}
		})
		run("other URLs, and a version that is nowhere", func(t *testing.T, r *reader) {
			publish(r.u, "/new/", "e:1 b:1 a:1", "c:1 a:2", "d:1 c:2 a:4")
			r.want("e:1 a:4")
		})
	}
}

// TestVersions has the versions of an entry in documents that are walked after the
// topic has one of them.
func TestVersions(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
	}
	run("an archive is revised under a new URL, and has no dates", func(t *testing.T) {
		u := newUpstream("/a1", rss(archive, "x"), "/a2", rss(archive+rssPrev("/a1"), "a:1"), "/feed", rss(rssPrev("/a2"), "a:2"))
		r := u.read(t)
		r.want("x a:1 a:2")
		u.set("/b2", rss(archive+rssPrev("/a1"), "y a:1"))
		u.set("/feed", rss(rssPrev("/b2"), "a:2"))
		r.want("y")
	})
	run("a new archive has a newer version", func(t *testing.T) {
		u := newUpstream("/a1", atom(archive, "x@1:a"), "/feed", atom("@4"+prev("/a1"), "e@3:a"))
		r := u.read(t)
		r.want("x:a e:a")
		u.set("/a2", atom(archive+prev("/a1"), "e@5:b"))
		u.set("/feed", atom(prev("/a2"), "e@3:a"))
		r.want("e:b", "stale_dropped")
	})
	run("in PaceFeedState dates do not count", func(t *testing.T) {
		u := newUpstream("/t1", atom(link("this", "/t1"), "e@5:a"), "/feed", atom(link("this", "/t2")+link("prev", "/t1"), "e@3:b"))
		r := u.read(t)
		r.want("e:a e:b")
		r.cursor = nil
		r.restart()
		r.want("")
	})
	// The topic has e:2, and an archive that was written later has e:1, which is older or was never
	// published. Neither the date of the archive nor a crash may bring it behind e:2.
	for date, violations := range map[string][]string{"": nil, "@1": nil, "@2": nil, "@9": {"archive_newer_than_feed"}} {
		for _, at := range []string{"", "@1"} {
			for _, e3 := range []string{"2", "3"} {
				run("case 29b: an archive of "+date+" with an older version, entries of "+at+", the feed has "+e3, func(t *testing.T) {
					u := newUpstream("/a1", atom(archive, "x"), "/feed", atom("@1"+prev("/a1"), "e"+at+":1"))
					r := u.read(t)
					r.want("x e:1")
					u.set("/feed", atom("@2"+prev("/a1"), "e"+at+":2"))
					r.want("e:2")
					u.set("/a2", atom(date+archive+prev("/a1"), "y e"+at+":1"))
					u.set("/feed", atom("@3"+prev("/a2"), "e"+at+":"+e3))
					r.restart()
					want := "y"
					if e3 == "3" {
						want = "y e:3"
					}
					r.want(want, violations...)
				})
			}
		}
	}
	run("case 29b: an archive and the feed's document have the same version", func(t *testing.T) {
		r := newUpstream("/a1", rss(archive, "x"), "/feed", rss(rssPrev("/a1"), "e:1")).read(t)
		r.want("x e:1")
		r.u.set("/a2", rss(archive+rssPrev("/a1"), "y e:2"))
		r.u.set("/feed", rss(rssPrev("/a2"), "z y e:2"))
		r.want("e:2 y z")
	})
	for _, crash := range []bool{false, true} {
		run(fmt.Sprintf("case 29b: there and back behind a version that no document has, crash %v", crash), func(t *testing.T) {
			r := newUpstream("/a1", rss(archive, "x"), "/feed", rss(rssPrev("/a1"), "e:0")).read(t)
			r.want("x e:0")
			r.u.set("/a2", rss(archive+rssPrev("/a1"), "e:1"))
			r.u.set("/a3", rss(archive+rssPrev("/a2"), "e:2"))
			r.u.set("/feed", rss(rssPrev("/a3"), "e:1"))
			want := "e:1 e:2 e:1"
			if crash {
				r.step()
				r.restart()
				want = "e:2 e:1"
			}
			r.want(want)
		})
	}
	run("dates show that a missed version is newer", func(t *testing.T) {
		r := newUpstream("/a1", atom(archive, "x"), "/feed", atom(prev("/a1"), "e@1:1")).read(t)
		r.want("x e:1")
		r.u.set("/a2", atom(archive+prev("/a1"), "e@2:2"))
		r.u.set("/feed", atom(prev("/a2"), "e@3:3"))
		r.want("e:2 e:3")
	})
	run("all archives have new URLs, and the version of the topic is in none", func(t *testing.T) {
		r := newUpstream("/a1", rss(archive, "e:1"), "/a2", rss(archive+rssPrev("/a1"), "e:2"), "/feed", rss(rssPrev("/a2"), "x")).read(t)
		r.want("e:1 e:2 x")
		r.u.set("/b1", rss(archive, "e:1"))
		r.u.set("/b2", rss(archive+rssPrev("/b1"), "e:3"))
		r.u.set("/feed", rss(rssPrev("/b2"), "e:4"))
		r.want("e:4")
	})
	run("the newer archives have new URLs, and a newer document has the version of the topic", func(t *testing.T) {
		r := newUpstream("/a1", rss(archive, "x"), "/a2", rss(archive+rssPrev("/a1"), "e:1"), "/a3", rss(archive+rssPrev("/a2"), "e:2"), "/feed", rss(rssPrev("/a3"), "y")).read(t)
		r.want("x e:1 e:2 y")
		r.u.set("/b2", rss(archive+rssPrev("/a1"), "e:1"))
		r.u.set("/b3", rss(archive+rssPrev("/b2"), "e:2"))
		r.u.set("/feed", rss(rssPrev("/b3"), "z y"))
		r.want("z")
	})
	run("the newer archives have new URLs, and the version of the topic is in none", func(t *testing.T) {
		r := newUpstream("/a1", rss(archive, "x"), "/a2", rss(archive+rssPrev("/a1"), "e:1"), "/a3", rss(archive+rssPrev("/a2"), "e:2"), "/feed", rss(rssPrev("/a3"), "y")).read(t)
		r.want("x e:1 e:2 y")
		r.u.set("/b2", rss(archive+rssPrev("/a1"), "e:1"))
		r.u.set("/feed", rss(rssPrev("/b2"), "e:3 y"))
		r.want("e:3")
	})
	run("versions between a missing archive and the feed's document have their history", func(t *testing.T) {
		r := newUpstream("/a1", rss(archive, "e:1"), "/feed", rss(rssPrev("/a1"), "x")).read(t)
		r.want("e:1 x")
		r.u.fault("/a2", status(410))
		r.u.set("/a3", rss(archive+rssPrev("/a2"), "e:2"))
		r.u.set("/feed", rss(rssPrev("/a3"), "e:3"))
		r.want("e:2 e:3", "archive_gone")
	})
	run("in PaceFeedState dates do not show which version is newer", func(t *testing.T) {
		r := newUpstream("/feed", atom(link("this", "/t1"), "e@5:1")).read(t)
		r.want("e:1")
		r.u.set("/t2", atom(link("this", "/t2"), "e@3:2"))
		r.u.set("/feed", atom(link("this", "/t3")+link("prev", "/t2"), "e@6:3"))
		r.want("e:3")
	})
	run("an old copy of the feed's document, after the entry came from an archive", func(t *testing.T) {
		r := newUpstream("/a1", rss("@2"+archive, "e:2"), "/feed", rss("@5"+rssPrev("/a1"), "x")).read(t)
		r.want("e:2 x")
		r.u.set("/feed", rss("@4"+rssPrev("/a1"), "e:1 x"))
		r.want("", "stale_dropped")
	})
	run("an archive without dates of entries, written after an entry was deleted", func(t *testing.T) {
		r := newUpstream("/a1", atom(archive, ""), "/feed", atom("@1"+prev("/a1"), "a:1")).read(t)
		r.want("a:1")
		r.u.set("/feed", atom("@3"+prev("/a1"), "-a@2"))
		r.want("-a")
		r.u.set("/a2", atom("@4"+archive+prev("/a1"), "a:1"))
		r.u.set("/feed", atom("@5"+prev("/a2"), "b"))
		r.want("b", "stale_dropped")
	})
	run("there and back", func(t *testing.T) {
		u := newUpstream("/a1", rss(archive, "e:1"), "/a2", rss(archive+rssPrev("/a1"), "e:2"), "/feed", rss(rssPrev("/a2"), "e:1"))
		r := u.read(t)
		r.want("e:1 e:2 e:1")
		r.cursor = nil
		r.restart()
		r.want("")
	})
	// The topic has e:1 of an archive, and the feed e:2 in a newer one and e:3.
	missed := func(u *upstream) {
		u.set("/a2", rss(archive+rssPrev("/a1"), "e:2"))
		u.set("/feed", rss(rssPrev("/a2"), "e:3"))
	}
	began := func() *upstream { return newUpstream("/a1", rss(archive, "e:1"), "/feed", rss(rssPrev("/a1"), "x")) }
	run("what was missed behind a reset has its history", func(t *testing.T) {
		r := began().read(t)
		r.want("e:1 x")
		r.cursor = nil
		r.restart()
		r.want("")
		missed(r.u)
		r.want("e:2 e:3")
	})
	run("what was missed behind a start over has its history", func(t *testing.T) {
		r := began().read(t)
		r.want("e:1 x")
		r.cursor, _ = syndication.ParseCursor("now")
		r.restart()
		r.want("")
		missed(r.u)
		r.want("e:2 e:3")
	})
	run("a document that was not held in whole is read again for its turn", func(t *testing.T) {
		// Entries take 400 bytes and more.
		u := newUpstream("/feed", atom("@1", "a:1 b c d e f"))
		r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory = 1500 })
		r.want("f e d c b a:1")
		u.set("/feed", atom("@2", "-a@1 b c d e f"))
		r.want("-a")
		u.set("/a1", atom("@1"+archive, "a@4:new"))
		u.set("/feed", atom("@2"+prev("/a1"), "-a@3 b c d e f"))
		r.want("a:new", "dialect_changed", "stale_dropped")
	})
}
