package datareplication

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// emptyPages adds n empty pages to the site.
func (s *site) emptyPages(n int) {
	for range n {
		s.publish("")
		newest := s.pages[s.latest]
		newest.at = s.pages[newest.prev].at
	}
}

// TestManyEmptyPages passes as many empty pages as may follow each other, from
// every cursor on, and without spending them on the pages of earlier polls.
func TestManyEmptyPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1")
		s.emptyPages(maxEmptyPages)
		s.publish("b@2")
		r := readOn(t, s.source(t, from(t, startAt(0))), nil)
		r.want(t, "a b")
		if n := len(r.violations); n != maxEmptyPages+1 { // feed_not_old_enough is the first
			t.Errorf("%d violations", n)
		}
		calls := 0
		for i, cursor := range r.cursors[1:] {
			if describeCursor(t, cursor).Last == "" {
				continue // on the way back
			}
			if calls++; calls%3 == 0 {
				readOn(t, s.source(t), cursor).want(t, strings.Join(r.ids[r.counts[i+1]:], " "))
			}
		}
		if calls < maxEmptyPages/pagesPerCall {
			t.Errorf("the empty pages were passed in %d calls", calls)
		}
	})
	parallel.RunVirtual(t, "one for each hour", func(t *testing.T) {
		s := newSite("a@1")
		src := s.source(t)
		r := readOn(t, src, nil)
		for range 3 * maxEmptyPages / 30 {
			time.Sleep(time.Hour)
			s.emptyPages(30)
			r = readOn(t, src, r.cursor)
			r.want(t, "")
		}
		s.publish("b@2")
		readOn(t, src, r.cursor).want(t, "b")
	})
}

// TestEndlessEmptyPages has a server make up an empty page for every number.
func TestEndlessEmptyPages(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		parallel.RunVirtual(t, fmt.Sprintf("in the search for a position: %v", lost), func(t *testing.T) {
			s := newSite("a@1", "b@2")
			answer := s.Handler
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.mu.Lock()
				n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
				if err == nil && n >= 2 && s.pages[r.URL.Path] == nil {
					s.pages[r.URL.Path] = &sheet{self: r.URL.Path, prev: fmt.Sprintf("/%d", n-1), next: fmt.Sprintf("/%d", n+1), at: 2}
				}
				s.mu.Unlock()
				answer.ServeHTTP(w, r)
			})
			src := s.source(t)
			r := readOn(t, src, nil)
			r.want(t, "a b")
			if lost {
				s.edit(func() {
					s.pages["/1b"] = s.pages["/1"]
					delete(s.pages, "/1")
					s.pages["/0"].next, s.pages["/1b"].self, s.latest = "/1b", "/1b", "/1b"
				})
			}
			s.edit(func() { s.pages[s.latest].next = "/2" })
			s.requests()
			bad := readSure(t, src, r.cursor)
			bad.wantIDs(t, "")
			bad.wantError(t, true, kindTooManyEmptyPages, "http://feed.example/"+strconv.Itoa(maxEmptyPages+2), "checkpoint set")
			if n := len(s.requests()); n < maxEmptyPages || n > maxEmptyPages+20 {
				t.Errorf("%d requests were made", n)
			}
			if lost {
				return // the cursor stays where it was until there is an entity
			}
			// Each further attempt is one request, also by another process.
			for _, next := range []*limitedSource{src, s.source(t)} {
				again := readOn(t, next, bad.cursor)
				again.wantError(t, true, kindTooManyEmptyPages)
				s.wantRequests(t, "GET /"+strconv.Itoa(maxEmptyPages+2))
			}
			last := "/" + strconv.Itoa(maxEmptyPages+2)
			s.edit(func() { s.pages[last].next = "" }) // the provider mends it
			r = readOn(t, src, bad.cursor)
			r.want(t, "")
			s.write(last, "c@3")
			readOn(t, src, r.cursor).want(t, "c")
		})
	}
}
