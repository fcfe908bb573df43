package datareplication

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// TestFeedMoves has the feed, and its url in the configuration, move to
// another host while the cursor names a page on the old one.
func TestFeedMoves(t *testing.T) {
	t.Parallel()
	moved := func(cfg *options) { cfg.URL = "http://new.example/latest" }
	parallel.Run(t, "in the middle of a page", func(t *testing.T) {
		s := newSite("y@1", "a@2 b@2 c@3", "d@4")
		r := readOn(t, s.source(t, batchesOf(2)), nil)
		for i, cursor := range r.cursors[1:] {
			s.edit(func() { s.base = "http://new.example" })
			rest := readOn(t, s.source(t, moved), cursor)
			rest.want(t, strings.Join(r.ids[r.counts[i+1]:], " "))
			if got := describeCursor(t, rest.cursor).Page; got != "http://new.example/2" {
				t.Errorf("the cursor is on %s", got)
			}
		}
	})
	parallel.RunVirtual(t, "on the way back", func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3")
		s.Add("HEAD", "/1", httpfault.Status(503))
		src := s.source(t)
		b, err := src.Next(t.Context(), nil, feed.Limits{})
		must.Succeed(t, err)
		s.edit(func() { s.base = "http://new.example" })
		readOn(t, s.source(t, moved), b.Cursor).want(t, "a b c")
	})
	parallel.Run(t, "and its links do not", func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3")
		r := readOn(t, s.source(t), nil)
		for range 3 {
			bad := readOn(t, s.source(t, moved), r.cursor)
			bad.wantIDs(t, "")
			bad.wantError(t, true, "", "allow_hosts")
		}
		fresh := readOn(t, s.source(t, moved), nil)
		fresh.wantError(t, true, "", "allow_hosts")
	})
}

// TestNothingSpins has servers that answer one thing and then another. A
// source may fail then, but not move its cursor for ever.
func TestNothingSpins(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "a self link that is another each time", func(t *testing.T) {
		for name, entities := range map[string]string{"a page with entities": "b@2", "an empty page": ""} {
			parallel.Run(t, name, func(t *testing.T) {
				s := newSite("a@1", entities)
				s.pages["/1"].at = 2
				n := 0
				s.header = func(h http.Header) {
					if n++; strings.Contains(strings.Join(h["Link"], ""), "/1>; rel=self") {
						h["Link"] = []string{fmt.Sprintf("</1?t=%d>; rel=self", n), "</0>; rel=prev"}
					}
				}
				src := s.source(t, ahead(0))
				cut := httpfault.Cut(0)
				s.Add("GET", "/1", cut, cut, cut)
				r := readOn(t, src, nil)
				r.wantIDs(t, "a")
				for range 2 {
					r.wantError(t, false, "")
					r = readOn(t, src, r.cursor)
				}
				r = readOn(t, src, r.cursor)
				r.want(t, strings.TrimSuffix(entities, "@2"))
				for range 3 {
					again := readOn(t, src, r.cursor)
					again.want(t, "")
					if string(again.cursor) != string(r.cursor) {
						t.Errorf("an idle poll moved the cursor from %s\nto %s", r.cursor, again.cursor)
					}
				}
			})
		}
	})
	parallel.RunVirtual(t, "a page that comes and goes", func(t *testing.T) {
		s := newSite("a@1", "b@2")
		// HEAD has it, and GET does not.
		for range 100 {
			s.Add("GET", "/0", httpfault.Status(404))
		}
		src := s.source(t)
		r := readSure(t, src, nil)
		r.wantError(t, true, kindPageGone)
		if n := len(s.requests()); n > 10*(2*confirmLooks-1) { // the calls of Next
			t.Errorf("%d requests were made", n)
		}
	})
	parallel.RunVirtual(t, "an empty page that GET does not find", func(t *testing.T) {
		s := newSite("")
		s.noETag = true
		src := s.source(t, from(t, "now"))
		r := readOn(t, src, nil)
		r.want(t, "")
		for range 100 {
			s.Add("GET", "/0", httpfault.Status(404))
		}
		s.Add("HEAD", "/0", slices.Repeat([]httpfault.Fault{httpfault.Status(404)}, confirmLooks)...)
		bad := readSure(t, src, r.cursor)
		bad.wantError(t, true, kindPageGone)
		if n := len(s.requests()); n > 20 {
			t.Errorf("%d requests were made", n)
		}
	})
}

// TestLossIsReportedAfterTenSeconds asks once a second. Many looks do not make up for
// the time that a lagging server is given.
func TestLossIsReportedAfterTenSeconds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*site){
		"the newest pages are gone": func(s *site) {
			s.remove("/2")
			s.remove("/1")
			s.pages["/0"].next, s.latest = "", "/0"
		},
		"the page is shorter":         func(s *site) { s.pages["/2"].entities = []string{"c@3"} },
		"the page has other entities": func(s *site) { s.pages["/2"].entities = []string{"x@3", "y@3"} },
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s := newSite("a@1", "b@2", "c@3 d@3")
			src := s.source(t)
			r := readOn(t, src, nil)
			r.want(t, "a b c d")
			s.edit(func() {
				s.noETag = true
				change(s)
			})
			began := time.Now()
			for {
				bad := readOn(t, src, r.cursor)
				bad.wantIDs(t, "")
				after := time.Since(began)
				if !unsure(bad.err) {
					if !errors.Is(bad.err, feed.ErrPermanent) || after < 10*time.Second {
						t.Errorf("after %v the error is %v, want a permanent one after ten seconds", after, bad.err)
					}
					return
				}
				if after > time.Minute {
					t.Fatalf("the loss is not reported after %v: %v", after, bad.err)
				}
				time.Sleep(time.Second)
			}
		})
	}
}
