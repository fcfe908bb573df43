package datareplication

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// atPageStart returns the cursor at the start of the page with that path, and
// how many entities are before it.
func atPageStart(t tester, r reading, path string) (feed.Cursor, int) {
	t.Helper()
	for i, cursor := range r.cursors {
		if p := describeCursor(t, cursor); p.Page == "http://feed.example"+path && p.Index == 0 && p.Last != "" {
			return cursor, r.counts[i]
		}
	}
	t.Fatalf("no cursor is at the start of page %s", path)
	return nil, 0
}

// TestFeedIsReplaced replaces a feed by another one under the same URLs while
// the cursor is at the start of a page, where nothing shows whether it is still the same
// page.
func TestFeedIsReplaced(t *testing.T) {
	t.Parallel()
	feedOf := func(name string, at int) (pages []string, ids []string) {
		for page := range 3 {
			var entities []string
			for i := range 50 {
				ids = append(ids, fmt.Sprintf("%s%d", name, page*50+i))
				entities = append(entities, fmt.Sprintf("%s@%d", ids[len(ids)-1], at+page))
			}
			pages = append(pages, strings.Join(entities, " "))
		}
		return pages, ids
	}
	oldPages, oldIDs := feedOf("old", 1)
	for name, at := range map[string]int{"with the same times": 1, "with later times": 1000} {
		newPages, newIDs := feedOf("new", at)
		for _, restart := range []bool{false, true} {
			for _, path := range []string{"/1", "/2"} {
				parallel.RunVirtual(t, fmt.Sprintf("%s, at %s, restart %v", name, path, restart), func(t *testing.T) {
					s := newSite(oldPages...)
					src := s.source(t)
					r := readOn(t, src, nil)
					r.want(t, strings.Join(oldIDs, " "))
					cursor, _ := atPageStart(t, r, path)
					if restart {
						src = s.source(t)
					} else {
						time.Sleep(provenFor)
					}
					again := newSite(newPages...)
					s.edit(func() { s.pages, s.latest = again.pages, again.latest })
					for range 2 {
						lost := readSure(t, src, cursor)
						lost.wantIDs(t, "")
						if lost.err == nil || !strings.Contains(lost.err.Error(), "entities may be missing") {
							t.Errorf("error %v", lost.err)
						}
						time.Sleep(time.Minute)
					}
					src.reader.cfg.Gap = GapRestart
					readOn(t, src, cursor).want(t, strings.Join(newIDs, " "))
				})
			}
		}
	}
}

// TestFeedIsReplacedDuringAnOutage replaces a feed by another one while its server is
// away for a few seconds, and reading is between two pages.
func TestFeedIsReplacedDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1", "b@2")
		src := s.source(t, ahead(0))
		b, err := src.Next(t.Context(), nil, feed.Limits{})
		must.Succeed(t, err)
		s.Add("GET", "/1", httpfault.Status(503))
		readOn(t, src, b.Cursor).wantIDs(t, "")
		again := newSite("x@1", "y@2")
		s.edit(func() { s.pages, s.latest = again.pages, again.latest })
		lost := readSure(t, src, b.Cursor)
		lost.wantIDs(t, "")
		if lost.err == nil || !strings.Contains(lost.err.Error(), "entities may be missing") {
			t.Errorf("error %v", lost.err)
		}
	})
}

// TestFeedIsReplacedBetweenPolls replaces a feed by another one between two polls of
// an empty newest page, while the server answers all requests.
func TestFeedIsReplacedBetweenPolls(t *testing.T) {
	t.Parallel()
	for _, polls := range []int{1, 5} {
		parallel.RunVirtual(t, fmt.Sprintf("after %d polls", polls), func(t *testing.T) {
			s := newSite("a@1", "")
			s.pages["/1"].at = 1
			src := s.source(t)
			r := readOn(t, src, nil)
			r.want(t, "a")
			for range polls {
				time.Sleep(5 * time.Second)
				readOn(t, src, r.cursor).want(t, "")
			}
			again := newSite("x@1", "y@2")
			s.edit(func() { s.pages, s.latest = again.pages, again.latest })
			time.Sleep(5 * time.Second)
			lost := readSure(t, src, r.cursor)
			lost.wantIDs(t, "")
			lost.wantError(t, true, kindNotOldEnough, "entities may be missing")
		})
	}
}

// TestPageBefore reads on at the start of a page after a restart.
func TestPageBefore(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		pages      []string
		at         string // the page
		change     func(*site)
		cursor     func(*cursor)
		want       string
		violations []string
		requests   []string
		lost       bool // it is looked for first
	}{
		{
			name: "nothing has changed", pages: []string{"a@1", "b@2 c@2", "d@3"}, at: "/2",
			want: "d", requests: []string{"GET /2", "GET /1"},
		},
		{
			name: "more pages follow", pages: []string{"a@1", "b@2", "c@3", "d@4"}, at: "/1",
			want: "b c d", requests: []string{"GET /1", "GET /0", "HEAD /latest", "GET /2", "GET /3"},
		},
		{
			name: "an empty page is before it", pages: []string{"a@1", "b@2", "", "", "c@3"}, at: "/4",
			want: "c", requests: []string{"GET /4", "GET /1"},
		},
		{
			name: "an empty page is before it, and the cursor is of an earlier version", pages: []string{"a@1", "b@2", "", "c@3"}, at: "/3",
			cursor: func(cur *cursor) { cur.Before = "" },
			want:   "c", violations: []string{kindEmptyPage, kindPageChanged}, lost: true,
		},
		{
			name: "at an empty page", pages: []string{"a@1", "", "c@3"}, at: "/1",
			want: "c", violations: []string{kindEmptyPage}, requests: []string{"GET /1", "HEAD /latest", "GET /2", "GET /0"},
		},
		{
			name: "the page before is gone", pages: []string{"a@1", "b@2", "c@3"}, at: "/2",
			change: func(s *site) { s.remove("/0"); s.remove("/1") },
			want:   "c", requests: []string{"GET /2", "GET /1"},
		},
		{
			name: "the page before is gone, and a link to it stays", pages: []string{"a@1", "b@2", "c@3"}, at: "/2",
			change: func(s *site) { delete(s.pages, "/1") },
			want:   "c", requests: []string{"GET /2", "GET /1"},
		},
		{
			name: "an entity came to the page before", pages: []string{"a@1", "b@2", "d@3"}, at: "/2",
			change: func(s *site) { s.write("/1", "c@2") },
			want:   "c d", violations: []string{kindPageChanged}, lost: true,
		},
		{
			name: "its last entity has another time", pages: []string{"a@1", "b@3", "c@3"}, at: "/2",
			change: func(s *site) { s.pages["/1"].entities = []string{"b@2"} },
			want:   "c", violations: []string{kindPageChanged}, requests: []string{"GET /2", "GET /1"},
		},
	}
	for _, tt := range tests {
		parallel.RunVirtual(t, tt.name, func(t *testing.T) {
			s := newSite(tt.pages...)
			for i := range tt.pages {
				page := s.pages[fmt.Sprintf("/%d", i)]
				if len(page.entities) == 0 {
					page.at = s.pages[page.prev].at
				}
			}
			stored := cursorAt(t, s, tt.at)
			if tt.change != nil {
				tt.change(s)
			}
			if tt.cursor != nil {
				cur, err := decodeCursor(stored)
				must.Succeed(t, err)
				tt.cursor(&cur)
				stored = cur.encodeCursor()
			}
			s.requests()
			r := readSure(t, s.source(t, ahead(0)), stored)
			r.want(t, tt.want)
			r.wantViolations(t, tt.violations...)
			if !tt.lost {
				s.wantRequests(t, tt.requests...)
			}
		})
	}
	parallel.RunVirtual(t, "a pause is no reason to read a page again while it is short", func(t *testing.T) {
		for _, pause := range []time.Duration{provenFor - time.Second, provenFor} {
			s := newSite("a@1", "b@2")
			src := s.source(t, ahead(0))
			b, err := src.Next(t.Context(), nil, feed.Limits{})
			must.Succeed(t, err)
			s.requests()
			time.Sleep(pause)
			readOn(t, src, b.Cursor).want(t, "b")
			want := []string{"HEAD /latest", "GET /1"}
			if pause >= provenFor {
				want = append(want, "GET /0")
			}
			if got := s.requests(); !slices.Equal(slices.DeleteFunc(got, func(r string) bool { return r == "HEAD /latest" }), want[1:]) {
				t.Errorf("after %v: requests %q", pause, got)
			}
		}
	})
	parallel.RunVirtual(t, "an idle poll of an empty page is one conditional request", func(t *testing.T) {
		s := newSite("a@1", "")
		s.pages["/1"].at = 1
		r := readOn(t, s.source(t), nil)
		r.want(t, "a")
		src := s.source(t)
		for range 3 {
			s.requests()
			readOn(t, src, r.cursor).want(t, "")
			s.wantRequests(t, "GET /1 if")
			time.Sleep(2 * provenFor)
		}
		s.write("/1", "b@2")
		s.requests()
		readOn(t, src, r.cursor).want(t, "b")
		s.wantRequests(t, "GET /1 if", "GET /0")
	})
}

// cursorAt returns the cursor at the start of a page: the page cannot be had when
// reading gets there.
func cursorAt(t tester, s *site, path string) feed.Cursor {
	t.Helper()
	s.Add("GET", path, httpfault.Status(500), httpfault.Status(500))
	src := s.source(t, ahead(0))
	r := readOn(t, src, nil)
	for r.err != nil && s.Left() > 0 {
		r = readOn(t, src, r.cursor)
	}
	if p := describeCursor(t, r.cursor); p.Page != s.base+path || p.Index != 0 {
		t.Fatalf("the cursor is at %+v", p)
	}
	return r.cursor
}
