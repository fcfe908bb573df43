package syndication_test

import (
	"errors"
	"fmt"
	"net/http"
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

func TestManners(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		parallel.Run(t, name, func(t *testing.T) {
			synctest.Test(t, f)
		})
	}
	doc := atom("", "a@1")
	run("case 106: validators are sent as received", func(t *testing.T) {
		u := newUpstream("/feed", doc)
		u.noETag = true
		u.field("/feed", "ETag", `W/"x y"`)
		u.field("/feed", "Last-Modified", "Tue,  5 Oct 1999 03:00:00 +0000")
		r := u.read(t)
		r.want("a")
		r.restart()
		r.want("")
		if h := u.asked[1]; h.Get("If-None-Match") != `W/"x y"` || h.Get("If-Modified-Since") != "Tue,  5 Oct 1999 03:00:00 +0000" {
			t.Errorf("asked with %v", h)
		}
	})
	run("case 107: the ETag stays and the body changes", func(t *testing.T) {
		u := newUpstream("/feed", doc)
		u.noETag = true
		u.field("/feed", "ETag", `"x"`)
		r := u.read(t)
		r.want("a")
		u.set("/feed", atom("", "b@2 a@1"))
		r.want("b")
	})
	run("case 108: 304 has new validators", func(t *testing.T) {
		u := newUpstream("/feed", doc)
		r := u.read(t)
		r.want("a")
		u.fault("/feed", status(304, "Last-Modified", "Tue, 05 Oct 1999 05:00:00 GMT"))
		r.want("")
		r.want("")
		if h := u.asked[2]; h.Get("If-Modified-Since") != "Tue, 05 Oct 1999 05:00:00 GMT" || h.Get("If-None-Match") == "" {
			t.Errorf("asked with %v", h)
		}
	})
	run("a document that was written this second", func(t *testing.T) {
		u := newUpstream("/feed", doc)
		u.noETag = true
		u.field("/feed", "Last-Modified", "Tue, 05 Oct 1999 03:00:00 GMT")
		u.field("/feed", "Date", "Tue, 05 Oct 1999 03:00:01 GMT")
		r := u.read(t)
		r.want("a")
		u.field("/feed", "Date", "Tue, 05 Oct 1999 03:00:02 GMT")
		r.want("")
		r.want("")
		if first, later := u.asked[1].Get("If-Modified-Since"), u.asked[2].Get("If-Modified-Since"); first != "" || later == "" {
			t.Errorf("asked with %q, and later with %q", first, later)
		}
	})
	run("304 for ever", func(t *testing.T) {
		u := newUpstream("/feed", doc)
		r := u.read(t)
		r.want("a")
		for range 30 {
			u.fault("/feed", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("If-None-Match") != "" {
					w.WriteHeader(304)
					return
				}
				_, _ = w.Write([]byte(atom("", "b@2 a@1")))
			})
		}
		for range 23 {
			time.Sleep(time.Hour)
			r.restart()
			r.want("")
		}
		time.Sleep(time.Hour)
		r.want("b")
	})
	for name, header := range map[string]string{"seconds": "120", "a date": "Sat, 01 Jan 2000 00:02:00 GMT"} {
		run("case 109: 429 with Retry-After, "+name, func(t *testing.T) {
			u := newUpstream("/feed", doc)
			r := u.read(t)
			u.fault("/feed", status(429, "Retry-After", header, "Date", "Sat, 01 Jan 2000 00:00:00 GMT"))
			r.wantError(false, "", "429")
			u.requests()
			time.Sleep(119 * time.Second)
			r.wantError(false, "", "Retry-After")
			r.wantRequests("")
			time.Sleep(time.Second)
			r.want("a")
		})
	}
	for name, tt := range map[string]struct {
		doc, field, value string
		fresh             time.Duration
	}{
		"case 110: max-age, and the answer is old": {doc, "Cache-Control", "public, max-age=3600", 50 * time.Minute},
		"no-cache":                  {doc, "Cache-Control", "no-cache, max-age=3600", 0},
		"Expires":                   {doc, "Expires", "Sat, 01 Jan 2000 01:00:00 GMT", 50 * time.Minute},
		"Expires in a form of mail": {doc, "Expires", "Sat, 1 Jan 2000 02:00 +0100", 50 * time.Minute},
		"Expires of a number":       {doc, "Expires", "3600", 0},
		"case 111: ttl":             {rss("<ttl>60</ttl>", "a"), "X", "", time.Hour},
		"max-age goes before ttl":   {rss("<ttl>60</ttl>", "a"), "Cache-Control", "max-age=720", 2 * time.Minute},
		"case 111: skipHours":       {rss("<skipHours><hour>0</hour><hour>1</hour></skipHours>", "a"), "X", "", 2 * time.Hour},
		"skipDays":                  {rss("<skipDays><day>Saturday</day></skipDays>", "a"), "X", "", 24 * time.Hour},
		"nothing":                   {doc, "X", "", 0},
	} {
		run(name, func(t *testing.T) {
			u := newUpstream("/feed", tt.doc)
			u.field("/feed", "Date", "Sat, 01 Jan 2000 00:00:00 GMT")
			u.field("/feed", tt.field, tt.value)
			u.field("/feed", "Age", "600")
			r := u.read(t)
			if err := r.poll(); err != nil || r.fresh != tt.fresh {
				t.Errorf("fresh for %v, want %v; %v", r.fresh, tt.fresh, err)
			}
			ignores := u.read(t, func(c *syndication.Config) { c.Hints = "ignore" })
			if err := ignores.poll(); err != nil || ignores.fresh != 0 {
				t.Errorf("fresh for %v where nobody heeds it; %v", ignores.fresh, err)
			}
			r.restart()
			r.want("") // 304
			if r.fresh != tt.fresh {
				t.Errorf("after 304 fresh for %v, want %v", r.fresh, tt.fresh)
			}
		})
	}
	for code, moves := range map[int]bool{301: true, 308: true, 302: false, 307: false} {
		run("case 112: a redirect, "+http.StatusText(code), func(t *testing.T) {
			u := newUpstream("/new", doc)
			for range 100 {
				u.fault("/feed", status(code, "Location", "/new"))
			}
			r := u.read(t)
			r.want("a")
			for range 24 {
				time.Sleep(time.Hour)
				r.want("")
			}
			u.requests()
			r.restart()
			r.want("")
			if got := u.requests(); strings.Contains(got, "/feed") == moves {
				t.Errorf("requests %s", got)
			}
			u.set("/new", atom("", "b@2 a@1"))
			r.want("b")
			if !moves {
				return
			}
			u.requests()
			delete(u.docs, "/new")
			u.faults["/feed"] = nil
			u.set("/feed", atom("", "c@3 b@2 a@1"))
			r.want("c")
			r.wantRequests("/new?if /feed")
		})
	}
	run("case 112: two permanent redirects in two days are not enough", func(t *testing.T) {
		u := newUpstream("/new", doc)
		u.fault("/feed", status(301, "Location", "/new"), status(301, "Location", "/new"), status(301, "Location", "/new"))
		r := u.read(t)
		for _, want := range []string{"", "", host + "/new"} {
			must.Succeed(t, r.poll())
			if p := r.place(); p.URL != want {
				t.Errorf("moved to %q, want %q", p.URL, want)
			}
			time.Sleep(25 * time.Hour)
		}
	})
	run("case 112: two days of permanent redirects, with another between them", func(t *testing.T) {
		u := newUpstream("/new", doc)
		r := u.read(t)
		for i := range 6 {
			code := 301
			if i%2 == 1 {
				code = 302
			}
			u.fault("/feed", status(code, "Location", "/new"))
			must.Succeed(t, r.poll())
			time.Sleep(13 * time.Hour)
		}
		if p := r.place(); p.URL != "" {
			t.Errorf("moved to %s", p.URL)
		}
	})
	run("a document that says another time whenever it is asked for", func(t *testing.T) {
		u := newUpstream("/feed", atom("@1", "a@1"))
		u.noETag = true
		r := u.read(t)
		r.want("a")
		before := string(r.cursor)
		u.set("/feed", atom("@2<generator>x</generator>", "a@1"))
		r.want("")
		if string(r.cursor) != before {
			t.Errorf("the cursor has moved to %s", r.cursor)
		}
	})
	// The specification wants no polling at all. A daemon that never asks again
	// would have to be restarted where a server has said 410 by mistake, so it
	// asks once a day.
	run("case 113: 410 on the feed", func(t *testing.T) {
		u := newUpstream("/feed", doc)
		u.fault("/feed", status(410), status(410, "Retry-After", "60"))
		r := u.read(t)
		for range 2 {
			err := r.poll()
			if !errors.Is(err, feed.ErrPermanent) || !strings.Contains(err.Error(), "gone for good") {
				t.Errorf("error %v", err)
			}
			if feed.RetryDelay(err) != 24*time.Hour {
				t.Errorf("error %v is not one to wait a day for", err)
			}
			time.Sleep(24 * time.Hour)
		}
		r.want("a")
	})
}

func TestStart(t *testing.T) {
	t.Parallel()
	now := func(c *syndication.Config) { c.Start = source.Start{Now: true} }
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
	}
	run("now, archived", func(t *testing.T) {
		u := archived()
		r := u.read(t, now)
		r.want("")
		r.restart()
		r.want("")
		u.set("/a3", atom("@7"+archive+prev("/a2"), "e6@6:a e5@5:a"))
		u.set("/feed", atom("@8"+prev("/a3"), "e7@7:a e6@6:b"))
		u.requests()
		r.want("e6:b e7:a")
		r.wantRequests("/feed?if /a3")
	})
	run("now, a window without dates", func(t *testing.T) {
		u := newUpstream("/feed", rss("", "a b"))
		r := u.read(t, now)
		r.want("")
		u.set("/feed", rss("", "c a b:x"))
		r.want("b:x c")
	})
	run("now, complete", func(t *testing.T) {
		u := newUpstream("/feed", atom(complete, "a@1 b@1"))
		r := u.read(t, now)
		r.want("")
		u.set("/feed", atom(complete, "c@1 b@1"))
		r.want("c")
	})
	run("now, more than can be remembered", func(t *testing.T) {
		var dated, bare []string
		for i := range 1100 {
			dated, bare = append(dated, fmt.Sprintf("e%d@%d", i, i)), append(bare, fmt.Sprintf("e%d", i))
		}
		newUpstream("/feed", rss("", strings.Join(bare, " "))).read(t, now).wantError(true, "", "start: now is not possible")
		u := newUpstream("/feed", atom("", strings.Join(dated, " ")))
		r := u.read(t, now)
		r.want("")
		u.set("/feed", atom("", strings.Join(dated, " ")+" e1100@1100 e1099@1101:x"))
		r.want("e1100 e1099:x", "duplicate_ids")
	})
	run("a time", func(t *testing.T) {
		r := archived().read(t, func(c *syndication.Config) { c.Start = source.Start{At: dawn.Add(4 * time.Second)} })
		r.want("e4:a e5:a e6:a")
		u := newUpstream("/feed", rss("", "b@5 a@3 c"))
		u.read(t, func(c *syndication.Config) { c.Start = source.Start{At: dawn.Add(4 * time.Second)} }).want("c b")
	})
	run("checkpoint set", func(t *testing.T) {
		r := archived().read(t)
		r.want(archivedMessages)
		for position, want := range map[string]string{"beginning": "", "now": "", dawn.Format(time.RFC3339): "", string(r.cursor): ""} {
			c, err := syndication.ParseCursor(position)
			must.Succeed(t, err)
			r.cursor = c
			r.restart()
			r.want(want)
		}
		for _, position := range []string{"yesterday", "{", `{"v":2}`, `{"v":1,"archives":"AAAA"}`} {
			if _, err := syndication.ParseCursor(position); err == nil {
				t.Errorf("%s is a position", position)
			}
		}
	})
}
