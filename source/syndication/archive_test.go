package syndication_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// archived is a feed of two archives and a subscription document.
func archived() *upstream {
	return newUpstream(
		"/a1", atom("@1"+archive, "e2@2:a e1@1:a"),
		"/a2", atom("@3"+archive+prev("/a1"), "e4@4:a e3@3:a"),
		"/feed", atom("@5"+prev("/a2"), "e6@6:a e5@5:a"),
	)
}

const archivedMessages = "e1:a e2:a e3:a e4:a e5:a e6:a"

func TestArchived(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
	}
	run("case 22: cold", func(t *testing.T) {
		r := archived().read(t)
		r.want(archivedMessages)
		r.wantRequests("/feed /a2 /a1")
		if p := r.place(); p.Archives != 2 || p.Newest != host+"/a2" || p.Dialect != syndication.Archived {
			t.Errorf("place %+v", p)
		}
	})
	run("case 23: not modified", func(t *testing.T) {
		r := archived().read(t)
		r.want(archivedMessages)
		r.u.requests()
		r.restart()
		r.want("")
		r.wantRequests("/feed?if")
	})
	run("case 24: a new archive has what was published", func(t *testing.T) {
		r := archived().read(t)
		r.want(archivedMessages)
		r.u.set("/a3", atom("@7"+archive+prev("/a2"), "e6@6:a e5@5:a"))
		r.u.set("/feed", atom("@8"+prev("/a3"), "e7@7:a"))
		r.u.requests()
		r.want("e7:a")
		r.wantRequests("/feed?if /a3")
	})
	run("case 25: an archive is revised under a new URL", func(t *testing.T) {
		r := archived().read(t)
		r.want(archivedMessages)
		r.u.set("/a2b", atom("@9"+archive+prev("/a1"), "e4@8:b e3@3:a"))
		r.u.set("/feed", atom("@9"+prev("/a2b"), "e6@6:a e5@5:a"))
		r.u.requests()
		r.want("e4:b")
		r.wantRequests("/feed?if /a2b")
	})
	two := func(a, s string) *upstream { return newUpstream("/a1", a, "/feed", s) }
	run("case 26: two versions in the history", func(t *testing.T) {
		two(atom(archive, "e@1:a"), atom(prev("/a1"), "e@3:b")).read(t).want("e:a e:b")
	})
	run("case 27: the archive has the newer version", func(t *testing.T) {
		two(atom(archive, "e@5:a"), atom(prev("/a1"), "e@3:b")).read(t).want("e:a", "stale_dropped")
	})
	run("case 28: the same time, the newer document wins", func(t *testing.T) {
		two(atom("@1"+archive, "e@1:a"), atom("@2"+prev("/a1"), "e@1:b")).read(t).want("e:a e:b")
		two(atom("@2"+archive, "e@1:a"), atom("@1"+prev("/a1"), "e@1:b")).read(t).want("e:a e:b", "archive_newer_than_feed")
	})
	run("case 29: the same times, the later in the chain wins", func(t *testing.T) {
		two(atom("@1"+archive, "e@1:a"), atom("@1"+prev("/a1"), "e@1:b")).read(t).want("e:a e:b")
	})
	run("case 29b: the dates of archives do not run with the chain", func(t *testing.T) {
		u := two(atom("@4"+archive, "e:1"), atom("@5"+prev("/a2"), "x"))
		u.set("/a2", atom("@2"+archive+prev("/a1"), "e:2"))
		u.read(t).want("e:1 e:2 x")
	})
	run("case 29c: the documents have both versions, of the same time", func(t *testing.T) {
		for _, oldestFirst := range []bool{false, true} {
			doc := func(head, entries string) string {
				list := strings.Fields(entries)
				if oldestFirst {
					slices.Reverse(list)
				}
				return titled(atom(head, strings.Join(list, " ")))
			}
			r := two(atom(archive, "x@1"), doc(prev("/a1"), "e@2:a")).read(t, func(c *syndication.Config) {
				if oldestFirst {
					c.EntryOrder = "oldest_first"
				}
			})
			r.want("x e:a")
			r.u.set("/feed", strings.Replace(doc("", "e@2:b e@2:a"), "</feed>", prev("/a1")+"</feed>", 1))
			r.want("e:b", "duplicate_ids")
			r.u.set("/a2", doc(archive+prev("/a1"), "e@2:b e@2:a"))
			r.u.set("/feed", doc(prev("/a2"), "y@3"))
			r.restart()
			r.want("y", "duplicate_ids")
		}
	})
	run("case 29c: both versions, and the first poll", func(t *testing.T) {
		two(atom(archive, "x@1"), titled(atom(prev("/a1"), "e@2:b e@2:a"))).read(t).want("x e:b", "duplicate_ids")
	})
	run("case 29c: both versions, and the order is found at the end of the document", func(t *testing.T) {
		two(atom(archive, "x@1"), atom(prev("/a1"), "e@2:a e@2:b y@3")).read(t).want("x e:b y", "duplicate_ids")
	})
	run("case 29c: entries without an atom:id are no versions", func(t *testing.T) {
		doc := partsAtom(part{link: "http://x/", title: "t1", date: "1"}, part{link: "http://x/", title: "t2", date: "1"})
		two(atom(archive, ""), strings.Replace(doc, "<entry>", prev("/a1")+"<entry>", 1)).read(t).wantCount(2)
	})
	run("case 35: an archive that links to itself", func(t *testing.T) {
		u := archived()
		u.set("/a2", atom(archive+prev("/a2"), "e4@4:a e3@3:a"))
		u.read(t).want("e3:a e4:a e5:a e6:a", "loop")
	})
	run("case 36: a circle of archives", func(t *testing.T) {
		u := archived()
		u.set("/a1", atom(archive+prev("/a2#part"), "e2@2:a e1@1:a"))
		r := u.read(t)
		r.want(archivedMessages, "loop")
		r.wantRequests("/feed /a2 /a1")
	})
	run("case 37: an archive that links to the feed", func(t *testing.T) {
		u := archived()
		u.set("/a1", atom(archive+prev("/feed"), "e2@2:a e1@1:a"))
		u.read(t).want(archivedMessages, "loop")
	})
	run("case 38: archives without end", func(t *testing.T) {
		u := newUpstream("/feed", atom(prev("/a?1"), "s@9:a"))
		for n := range 40 {
			path := "/a?" + strings.Repeat("1", n+1)
			u.set(path, atom(archive+prev(path+"1"), ""))
		}
		r := u.read(t, func(c *syndication.Config) { c.Bounds.Documents = 30 })
		r.want("s:a", "walk_limit")
		if p := r.place(); len(p.Gaps) != 1 || len(p.Gaps[0]) != len(host+"/a?")+31 {
			t.Errorf("the gaps are %v", p.Gaps)
		}
	})
	run("case 39: relative to xml:base", func(t *testing.T) {
		for base, path := range map[string]string{host + "/base": "/2003/a", host + "/base/": "/base/2003/a"} {
			doc := strings.Replace(atom(prev("2003/a"), "e2@2:a"), "<feed ", `<feed xml:base="`+base+`" `, 1)
			r := newUpstream("/feed", doc, path, atom(archive, "e1@1:a")).read(t)
			r.want("e1:a e2:a")
			r.wantRequests("/feed " + path)
		}
	})
	run("case 40: relative to where a redirect leads", func(t *testing.T) {
		u := newUpstream("/x/feed", atom(prev("a1"), "e2@2:a"), "/x/a1", atom(archive, "e1@1:a"))
		u.fault("/feed", status(301, "Location", "/x/feed"))
		u.read(t).want("e1:a e2:a")
	})
	run("case 41: how the relation may be written", func(t *testing.T) {
		for _, rel := range []string{"http://www.iana.org/assignments/relation/prev-archive", "PREV-ARCHIVE", "self prev-archive"} {
			newUpstream("/feed", atom(link(rel, "/a1"), "e2@2:a"), "/a1", atom(archive, "e1@1:a")).read(t).want("e1:a e2:a")
		}
	})
	run("case 42: the link stands behind the entries", func(t *testing.T) {
		doc := strings.Replace(atom("", "e2@2:a"), "</feed>", prev("/a1")+"</feed>", 1)
		newUpstream("/feed", doc, "/a1", atom(archive, "e1@1:a")).read(t).want("e1:a e2:a")
	})
	run("case 43: the link stands in an entry", func(t *testing.T) {
		doc := strings.Replace(atom("", "e2@2:a"), "</entry>", "<source>"+prev("/a1")+"</source>"+prev("/a1")+"</entry>", 1)
		r := newUpstream("/feed", doc, "/a1", atom(archive, "e1@1:a")).read(t)
		r.want("e2:a")
		r.wantRequests("/feed")
	})
	run("case 44: an archive without entries", func(t *testing.T) {
		u := archived()
		u.set("/a2", atom(archive+prev("/a1"), ""))
		u.read(t).want("e1:a e2:a e5:a e6:a")
	})
	run("case 45: the url is an archive's", func(t *testing.T) {
		u := archived()
		u.set("/s", atom(prev("/a2")+link("current", "/s"), "e6@6:a e5@5:a"))
		u.set("/feed", atom(archive+link("current", "/s"), "e4@4:a e3@3:a"))
		r := u.read(t)
		r.want(archivedMessages, "subscribed_to_archive")
		u.requests()
		r.want("")
		r.wantRequests("/s?if")
		u = newUpstream("/feed", atom(archive, "e1@1:a"))
		u.read(t).wantError(true, "", "is an archive", "set url")
	})
	run("case 46: all documents say they are the feed", func(t *testing.T) {
		u := archived()
		for path, doc := range u.docs {
			u.set(path, strings.Replace(doc, "<entry>", link("self", "/feed")+"<entry>", 1))
		}
		u.read(t).want(archivedMessages)
	})
	run("case 47: a crash after the first archive", func(t *testing.T) {
		r := archived().read(t)
		r.step()
		r.wantLast("e1:a e2:a")
		r.restart()
		r.u.requests()
		r.want("e3:a e4:a e5:a e6:a")
		r.wantRequests("/feed /a2")
	})
	run("case 48: a crash between publishing and the cursor", func(t *testing.T) {
		// On the bus this cannot happen, because both are one commit. If it did, the topic
		// would still show which entries it has.
		r := archived().read(t)
		r.want(archivedMessages)
		r.cursor = nil
		r.restart()
		r.want("")
	})
	run("case 49: a crash before the validators are stored", func(t *testing.T) {
		r := archived().read(t).inBatches(feed.Limits{Entities: 1})
		for range 5 {
			r.step()
		}
		r.restart()
		r.u.requests()
		r.want("e6:a")
		r.wantRequests("/feed")
	})
	run("case 50: a crash in a walk, and the feed is not modified", func(t *testing.T) {
		r := archived().read(t)
		r.want(archivedMessages)
		r.u.set("/a3", atom("@7"+archive+prev("/a2"), "e7@7:a e6@6:a"))
		r.u.set("/a4", atom("@8"+archive+prev("/a3"), "e8@8:a"))
		r.u.set("/feed", atom("@9"+prev("/a4"), "e9@9:a"))
		r.step()
		r.restart()
		r.u.requests()
		r.want("e8:a e9:a")
		r.wantRequests("/feed /a4")
	})
	run("case 51: all archives have new URLs", func(t *testing.T) {
		r := archived().read(t)
		r.want(archivedMessages)
		for path, doc := range r.u.docs {
			r.u.set(path, strings.ReplaceAll(doc, `"/a`, `"/b`))
			r.u.set(strings.Replace(path, "/a", "/b", 1), strings.ReplaceAll(doc, `"/a`, `"/b`))
		}
		r.u.requests()
		r.want("")
		r.wantRequests("/feed?if /b2 /b1")
	})
	run("case 52: an archive is changed in place", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := archived().read(t)
			r.want(archivedMessages)
			r.u.set("/a2", atom("@3"+archive+prev("/a1"), "e4@4:a e3@3:b"))
			time.Sleep(25 * time.Hour)
			r.u.requests()
			r.want("")
			r.wantRequests("/feed")
		})
	})
	run("case 54: from https to http", func(t *testing.T) {
		// The client refuses that URL with any allow_hosts; package source tests it. A refused
		// document is a gap:
		u := archived()
		u.set("/a2", atom(archive+prev("ftp://feed.example/a1"), "e4@4:a e3@3:a"))
		u.read(t).want("e3:a e4:a e5:a e6:a", "archive_foreign")
	})
	run("case 55: to the machine itself", func(t *testing.T) {
		for _, url := range []string{"http://169.254.169.254/latest", "http://127.0.0.1/"} {
			u := archived()
			u.set("/a2", atom(archive+prev(url), "e4@4:a e3@3:a"))
			r := u.read(t)
			r.want("e3:a e4:a e5:a e6:a", "archive_foreign")
			u = archived()
			u.fault("/a1", status(302, "Location", url))
			u.read(t).want("e3:a e4:a e5:a e6:a", "archive_foreign")
		}
	})
	run("case 56: Atom Hopper has next-archive for older", func(t *testing.T) {
		u := archived()
		for path, doc := range u.docs {
			u.set(path, strings.ReplaceAll(doc, "prev-archive", "next-archive"))
		}
		u.read(t, func(c *syndication.Config) { c.Dialect = "atomhopper" }).want(archivedMessages)
	})
	run("case 57: ICT4H has the oldest entry first", func(t *testing.T) {
		r := newUpstream(
			"/1", atom(archive, "1@1 2@2 3@3 4@4 5@5"), "/2", atom(archive+prev("/1"), "6@6 7@7 8@8 9@9 10@10"),
			"/feed", atom(prev("/2"), "11@11 12@12 13@13"),
		).read(t)
		r.want("1 2 3 4 5 6 7 8 9 10 11 12 13")
		r = newUpstream("/1", atom(archive, "1@1 2@1 3@1"), "/feed", atom(prev("/1"), "4@1 5@1")).read(t,
			func(c *syndication.Config) { c.Dialect = "ict4h" })
		r.want("1 2 3 4 5")
	})
	run("case 58: Ladok has the newest entry first", func(t *testing.T) { archived().read(t).want(archivedMessages) })
	run("case 59: a date in the future", func(t *testing.T) {
		u := newUpstream("/feed", atom("@1", "e@2099-01-01T00-00-00Z:a"))
		doc := func(head, at, text string) string {
			return strings.Replace(atom(head, "e:"+text), "<content>", "<updated>"+at+"</updated><content>", 1)
		}
		u.set("/feed", doc("@1", "2099-01-01T00:00:00Z", "a"))
		r := u.read(t)
		r.want("e:a", "future_date")
		r.want("")
		u.set("/feed", doc("@2", second("2"), "b"))
		r.want("e:b")
		u.set("/feed", doc("@3", second("3"), "c"))
		r.want("e:c")
	})
	run("case 60: the same time, two IDs", func(t *testing.T) {
		newUpstream("/feed", atom("", "a@1 b@1")).read(t).want("b a")
	})
	run("case 85: fh:prev in an archive, elements behind entries", func(t *testing.T) {
		u := newUpstream("/feed", atom("<fh:prev>\n  /a1\n </fh:prev>", "e2@2:a"), "/a1", atom(archive, "e1@1:a"))
		u.read(t).want("e1:a e2:a")
	})
}

func TestGaps(t *testing.T) {
	t.Parallel()
	rest := "e3:a e4:a e5:a e6:a"
	for name, tt := range map[string]struct {
		fault http.HandlerFunc
		kind  string
		retry time.Duration
	}{
		"case 30: 404": {status(404), "archive_gone", time.Hour},
		"case 31: 403": {status(403), "archive_refused", time.Hour},
		"case 32: 410": {status(410), "archive_gone", 24 * time.Hour},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			r := archived().read(t)
			r.u.fault("/a1", tt.fault)
			r.want(rest, tt.kind)
			r.u.requests()
			time.Sleep(tt.retry - time.Minute)
			r.restart()
			r.u.set("/feed", atom("@7"+prev("/a2"), "e7@7:a e6@6:a e5@5:a"))
			r.want("e7:a")
			if got := r.u.requests(); strings.Contains(got, "/a1") {
				t.Errorf("requests %s", got)
			}
			time.Sleep(2 * time.Minute)
			r.restart()
			r.want("e1:a e2:a")
			for _, e := range r.last {
				if late, _ := e.Header.Get("Late"); late != "true" {
					t.Errorf("case 53: %s is late, and does not say so: %v", e.ID, e.Header)
				}
			}
			if p := r.place(); len(p.Gaps) > 0 {
				t.Errorf("the gaps are %v", p.Gaps)
			}
			r.want("")
		})
	}
	parallel.RunVirtual(t, "case 53: a gap that stays", func(t *testing.T) {
		r := archived().read(t)
		delete(r.u.docs, "/a1")
		r.want(rest, "archive_gone")
		asked := 0
		for range 24 * 7 {
			time.Sleep(time.Hour)
			r.u.requests()
			r.want("")
			asked += strings.Count(r.u.requests(), "/a1")
		}
		if asked < 5 || asked > 14 {
			t.Errorf("asked %d times in a week", asked)
		}
	})
	parallel.RunVirtual(t, "case 33: 503 with Retry-After holds everything back", func(t *testing.T) {
		r := archived().read(t)
		r.u.fault("/a1", status(503, "Retry-After", "60"))
		r.wantError(false, "", "503")
		if p := r.place(); p.Archives != 0 || len(p.Gaps) != 0 {
			t.Errorf("the place is %+v", p)
		}
		r.u.requests()
		time.Sleep(59 * time.Second)
		r.wantError(false, "", "Retry-After")
		r.wantRequests("")
		time.Sleep(time.Second)
		r.want(archivedMessages)
		r.wantRequests("/a1") // the walk goes on where it was
		r = archived().read(t)
		r.u.fault("/a1", status(503))
		r.wantError(false, "")
		r.restart()
		r.want(archivedMessages)
	})
	parallel.Run(t, "an archive that nobody can read", func(t *testing.T) {
		for name, broken := range map[string]http.HandlerFunc{
			"malformed":    body(200, "application/xml", `<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>x</id></entri></feed>`),
			"charset":      body(200, "application/xml", `<?xml version="1.0" encoding="klingon"?><feed/>`),
			"too large":    body(200, "application/xml", strings.Replace(atom(archive, "x"), "<entry", `<entry a="`+strings.Repeat("a", 1<<16)+`"`, 1)),
			"500":          status(500),
			"no document":  status(204),
			"breaking off": body(200, "application/xml", `<feed xmlns="http://www.w3.org/2005/Atom">`),
		} {
			parallel.RunVirtual(t, name, func(t *testing.T) {
				r := archived().read(t, func(c *syndication.Config) { c.Limits.Entity = 1 << 12 })
				down := false
				always := func(w http.ResponseWriter, req *http.Request) {
					if down {
						status(502)(w, req)
						return
					}
					broken(w, req)
				}
				r.u.serve("/a1", always)
				began := time.Now()
				for time.Since(began) < 6*time.Hour-time.Minute {
					if err := r.poll(); err == nil || !strings.Contains(err.Error(), "awaited until 2000-01-01T06:00:00Z") {
						t.Fatalf("after %v: %v", time.Since(began), err)
					}
					r.wantLast("")
					time.Sleep(30 * time.Minute)
					if time.Since(began)%(2*time.Hour) == time.Hour {
						r.restart()
					}
				}
				// While all documents are down, nothing shows that the archive is the cause.
				down = true
				r.u.serve("/feed", status(502))
				for range 20 {
					time.Sleep(30 * time.Minute)
					r.wantError(false, "", "502")
				}
				down = false
				r.u.serve("/feed", nil)
				r.want(rest, "archive_unreadable")
				if p := r.place(); len(p.Gaps) != 1 || p.Gaps[0] != host+"/a1" {
					t.Errorf("the gaps are %v", p.Gaps)
				}
				if gaps, deletes := r.place().Lacks(); gaps != 1 || deletes != 0 {
					t.Errorf("%d gaps, %d deletes held", gaps, deletes)
				}
				r.u.requests()
				r.restart()
				r.want("")
				r.wantRequests("/feed?if")
				r.u.serve("/a1", nil)
				time.Sleep(time.Hour)
				r.want("e1:a e2:a")
				if p := r.place(); len(p.Gaps) != 0 {
					t.Errorf("the gaps are %v", p.Gaps)
				}
			})
		}
	})
	parallel.RunVirtual(t, "an archive that is down now and then", func(t *testing.T) {
		r := archived().read(t)
		r.u.fault("/a1", status(500))
		r.wantError(false, "", "500")
		r.want(archivedMessages)
		time.Sleep(24 * time.Hour)
		r.u.set("/a3", atom("@7"+archive+prev("/a2"), "e7@7:a"))
		r.u.set("/feed", atom("@8"+prev("/a3"), "e8@8:a"))
		r.u.fault("/a3", status(500))
		r.wantError(false, "", "500")
		r.u.set("/feed", atom("@9"+prev("/a2"), "e9@9:a")) // it was a mistake
		r.restart()
		r.want("e9:a")
		time.Sleep(24 * time.Hour)
		r.u.set("/feed", atom("@10"+prev("/a3"), "e8@8:a"))
		r.u.fault("/a3", status(500))
		r.wantError(false, "", "500")
		r.want("e7:a e8:a")
	})
	parallel.RunVirtual(t, "each archive is waited for", func(t *testing.T) {
		r := archived().read(t)
		r.u.serve("/a1", status(500))
		r.wantError(false, "", "/a1: 500")
		time.Sleep(7 * time.Hour)
		r.restart()
		r.u.fault("/a2", status(500))
		r.wantError(false, "", "/a2: 500")
	})
	parallel.RunVirtual(t, "a page that nobody can read", func(t *testing.T) {
		r := newUpstream("/feed", atom(link("next", "/p2"), "e2@2:a")).read(t)
		r.u.serve("/p2", status(500))
		r.wantError(false, "", "500")
		r.wantViolations("paged_feed_is_lossy")
		time.Sleep(6 * time.Hour)
		r.restart()
		r.want("e2:a", "incomplete")
		// It is not waited for again each time that all pages are read.
		time.Sleep(25 * time.Hour)
		r.want("", "incomplete")
		r.u.set("/p2", atom("", "e1@1:a"))
		r.u.serve("/p2", nil)
		time.Sleep(25 * time.Hour)
		r.want("e1:a")
		time.Sleep(25 * time.Hour)
		r.u.fault("/p2", status(500))
		r.wantError(false, "", "500")
	})
	parallel.Run(t, "a stop is no fault of an archive", func(t *testing.T) {
		r := archived().read(t)
		ctx, stop := context.WithCancel(t.Context())
		r.u.fault("/a1", func(_ http.ResponseWriter, req *http.Request) {
			stop()
			<-req.Context().Done()
		})
		if b, err := r.src.Next(ctx, nil, feed.Limits{}); !errors.Is(err, context.Canceled) {
			t.Errorf("batch %+v, error %v", b, err)
		}
	})
	parallel.Run(t, "a stop within a broken document is no fault of it", func(t *testing.T) {
		r := archived().read(t)
		ctx, stop := context.WithCancel(t.Context())
		r.u.fault("/a1", func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.WriteString(w, `<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id><title>a & b</title></entry>`+strings.Repeat(" ", 1<<17))
			w.(http.Flusher).Flush()
			stop()
			<-req.Context().Done()
		})
		if b, err := r.src.Next(ctx, nil, feed.Limits{}); !errors.Is(err, context.Canceled) {
			t.Errorf("batch %+v, error %v", b, err)
		}
	})
	parallel.Run(t, "case 34: an error page with status 200", func(t *testing.T) {
		r := archived().read(t)
		r.u.fault("/a1", htmlPage, htmlPage, htmlPage)
		r.wantError(false, "")
		r.wantError(false, "")
		r.want(rest, "archive_gone")
	})
	parallel.Run(t, "case 34b: around a gap from its older side", func(t *testing.T) {
		u := newUpstream("/a1", atom("@1"+archive, "e1@1:a"), "/feed", atom("@2"+prev("/a1"), "e2@2:a"))
		r := u.read(t)
		r.want("e1:a e2:a")
		u.set("/a1", atom("@1"+archive+link("next-archive", "/a2b"), "e1@1:a"))
		u.set("/a2b", atom("@3"+archive+prev("/a1"), "e2@2:a e3@3:a"))
		u.set("/a3", atom("@4"+archive+prev("/a2"), "e4@4:a"))
		u.set("/feed", atom("@5"+prev("/a3"), "e5@5:a"))
		r.want("e3:a e4:a e5:a", "archive_gone")
		if p := r.place(); len(p.Gaps) > 0 {
			t.Errorf("the gaps are %v", p.Gaps)
		}
	})
	parallel.RunVirtual(t, "what comes late does not go before what is published", func(t *testing.T) {
		r := rssArchived("", "", "").read(t)
		r.u.fault("/a1", status(404))
		r.want("g2:a g1:new g3:a", "archive_gone")
		time.Sleep(2 * time.Hour)
		r.u.set("/a1", rss(archive, "g1:old g0:a"))
		r.want("g0:a", "stale_dropped")
	})
	parallel.Run(t, "an archive goes away between the walk and its turn", func(t *testing.T) {
		r := archived().read(t, func(c *syndication.Config) { c.Bounds.Memory = 1 })
		r.u.fault("/a2", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(r.u.docs["/a2"]))
		}), status(410))
		r.want("e1:a e2:a e5:a e6:a", "archive_gone")
	})
}
