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

// TestLostPositions reads a feed of five entities to its third, changes the feed
// and wants the other two, from the same source and from a fresh one.
func TestLostPositions(t *testing.T) {
	t.Parallel()
	rename := func(s *site) {
		pages := map[string]*sheet{}
		name := func(path string) string {
			if path == "" {
				return ""
			}
			return "/new" + path
		}
		for path, p := range s.pages {
			pages[name(path)] = &sheet{name(p.self), name(p.prev), name(p.next), p.at, p.entities}
		}
		s.pages, s.latest = pages, name(s.latest)
	}
	tests := []struct {
		name       string
		pages      []string
		change     func(*site)
		violations []string
		requests   []string // of the same source
	}{
		{
			name: "pages have other names", pages: []string{"y@1", "a@2 b@2 c@3 d@3", "e@4"}, change: rename,
			violations: []string{kindPageGone},
			requests:   []string{"GET /1", "GET /1", "GET /1", "HEAD /latest", "HEAD /new/1", "HEAD /new/0", "GET /new/1", "GET /new/2"},
		},
		{
			name: "other names, the place on the oldest page", pages: []string{"y@1 a@1 b@2 c@3 d@3 e@3"}, change: rename,
			violations: []string{kindPageGone},
			requests:   []string{"GET /0", "GET /0", "GET /0", "HEAD /latest", "GET /new/0"},
		},
		{
			name: "the place is at the end of a page", pages: []string{"y@1", "a@2 b@2 c@3", "d@3 e@4"}, change: rename,
			violations: []string{kindPageGone},
		},
		{
			name: "pages have another size", pages: []string{"y@1", "a@2 b@2 c@3 d@3 e@4"},
			change: func(s *site) {
				*s.pages["/1"] = sheet{self: "/1", prev: "/0", entities: []string{"a@2"}, at: 2}
				s.split()
			},
			// The entities are now y | a | b | c d | e.
			violations: []string{kindPageChanged},
		},
		{
			name: "an entity was taken away", pages: []string{"y@1", "a@2 b@2 c@3 d@3 e@4"},
			change:     func(s *site) { s.pages["/1"].entities = slices.Delete(s.pages["/1"].entities, 0, 1) },
			violations: []string{kindPageChanged},
		},
		{
			name: "an entity was put in", pages: []string{"y@1", "a@2 b@2 c@3 d@3 e@4"},
			change:     func(s *site) { s.pages["/1"].entities = slices.Insert(s.pages["/1"].entities, 1, "x@2") },
			violations: []string{kindPageChanged},
		},
		{
			name: "another entity of the second comes first, with the name in brackets", pages: []string{"y@1", "a@2 b@2 c@3 d@3 e@4"},
			change:     func(s *site) { s.pages["/1"].entities = slices.Insert(s.pages["/1"].entities, 1, "<c>@3") },
			violations: []string{kindPageChanged},
		},
		{
			name: "an entity is another, and all else in its place", pages: []string{"y@1", "a@2 b@2 c@3 d@3 e@4"},
			change:     func(s *site) { s.pages["/1"].entities[0] = "x@2" },
			violations: []string{kindPageChanged},
			requests:   []string{"GET /1"},
		},
		{
			name: "the page that is next is another", pages: []string{"y@1", "a@2 b@2 c@3", "d@3 e@4"},
			change: func(s *site) {
				s.pages["/9"] = s.pages["/2"]
				s.pages["/9"].self = "/9"
				s.pages["/1"].next, s.latest = "/9", "/9"
				delete(s.pages, "/2")
			},
		},
	}
	for _, tt := range tests {
		parallel.RunVirtual(t, tt.name, func(t *testing.T) {
			s := newSite(tt.pages...)
			src := s.source(t, batchesOf(1), ahead(0))
			var cursor feed.Cursor
			for read := 0; read < 4; {
				b, err := src.Next(t.Context(), cursor, feed.Limits{})
				must.Succeed(t, err)
				cursor = b.Cursor
				read += len(b.Entities)
			}
			src.reader.closePage()
			s.edit(func() { tt.change(s) })
			s.requests()
			for _, next := range []*limitedSource{src, s.source(t, ahead(0))} {
				r := readSure(t, next, cursor)
				r.want(t, "d e")
				r.wantViolations(t, tt.violations...)
				if requests := s.requests(); tt.requests != nil && !slices.Equal(requests, tt.requests) {
					t.Errorf("requests %q\nwant     %q", requests, tt.requests)
				}
				readOn(t, next, r.cursor).want(t, "")
				s.requests()
			}
		})
	}
}

// split writes the entities behind page /1 of TestLostPositions on pages of one.
func (s *site) split() {
	s.pages["/1"].next = "/2"
	s.pages["/2"] = &sheet{self: "/2", prev: "/1", next: "/3", at: 2, entities: []string{"b@2"}}
	s.pages["/3"] = &sheet{self: "/3", prev: "/2", next: "/4", at: 3, entities: []string{"c@3", "d@3"}}
	s.pages["/4"] = &sheet{self: "/4", prev: "/3", at: 4, entities: []string{"e@4"}}
	s.latest = "/4"
}

// TestALostPositionStaysLost has another entity take the place of the last one
// that was read. The search for the position reads the page to its end, and must
// not leave the impression that this is the end that was known.
func TestALostPositionStaysLost(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(*site){
		"with ETags":       func(*site) {},
		"by time and size": func(s *site) { s.noETag = true },
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s := newSite("a@1", "b@2")
			setup(s)
			src := s.source(t)
			r := readOn(t, src, nil)
			s.edit(func() { s.pages["/1"].entities[0] = "xx@2" })
			for range 5 {
				lost := readSure(t, src, r.cursor)
				lost.wantIDs(t, "")
				lost.wantError(t, true, kindIDNotFound)
				time.Sleep(time.Minute)
			}
		})
	}
}

func TestChangedContentsAreReportedOnce(t *testing.T) {
	t.Parallel()
	s := newSite("a@1 b@2")
	s.noETag = true
	src := s.source(t)
	r := readOn(t, src, nil)
	s.edit(func() { s.pages["/0"].entities[0] = "xx@1" })
	r = readOn(t, src, r.cursor)
	r.want(t, "")
	r.wantViolations(t, kindPageChanged)
	for _, next := range []string{"", "c", "d"} {
		if next != "" {
			s.write("/0", next+"@3")
		}
		s.requests()
		r = readOn(t, src, r.cursor)
		r.want(t, next)
		r.wantViolations(t)
		if next == "" { // the present state of the page is known
			s.wantRequests(t, "HEAD /0")
		}
	}
}

func TestPagesVanishOnTheWayBack(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		vanish func(*site) // after page /2 was looked at
		want   string
		err    string
	}{
		{"the oldest, as it should", func(s *site) { s.remove("/0"); s.remove("/1") }, "c d", ""},
		{"two, and the one that led there", func(s *site) { s.remove("/0"); s.remove("/1"); s.remove("/2") }, "d", ""},
		{"one, and a link to it stays", func(s *site) { delete(s.pages, "/1") }, "", kindPageGone},
	}
	for _, tt := range tests {
		parallel.RunVirtual(t, "case 84: "+tt.name, func(t *testing.T) {
			s := newSite("a@1", "b@2", "c@3", "d@4")
			s.Add("HEAD", "/2", after(func() { s.edit(func() { tt.vanish(s) }) }))
			src := s.source(t)
			r := readSure(t, src, nil)
			r.wantIDs(t, tt.want)
			if tt.err == "" {
				r.want(t, tt.want)
				return
			}
			r.wantError(t, true, tt.err, "404 Not Found", "http://feed.example/1", "gap is set to")
			s.edit(func() { s.pages["/2"].prev = "" }) // a person mends it
			readOn(t, src, r.cursor).want(t, "c d")
		})
	}
	parallel.RunVirtual(t, "the page to start at", func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3")
		s.Add("HEAD", "/0", after(func() { s.edit(func() { s.remove("/0") }) }))
		readSure(t, s.source(t), nil).want(t, "b c")
	})
	parallel.RunVirtual(t, "the page to start at, for a moment", func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3")
		s.Add("GET", "/2", httpfault.Status(404))
		readSure(t, s.source(t, from(t, startAt(3))), nil).want(t, "c")
	})
	parallel.Run(t, "with the gap taken", func(t *testing.T) {
		for _, gap := range []Gap{GapRestart, GapResume} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite("a@1", "b@2", "c@3", "d@4")
				delete(s.pages, "/1")
				src := s.source(t, onGap(gap))
				r := readSure(t, src, nil)
				r.wantError(t, false, kindPageGone)
				time.Sleep(gapPatience)
				r = readSure(t, src, r.cursor)
				r.want(t, "c d")
				r.wantViolations(t, kindPageGone, kindPageGone) // the gap, and where the feed begins behind it
			})
		}
	})
}

// TestGaps reads a feed, removes the last entities that were read, and more, and continues
// as configured.
func TestGaps(t *testing.T) {
	t.Parallel()
	pages := []string{"y@1", "a@2 b@2", "c@3 d@4", "e@5"}
	tests := []struct {
		name  string
		pages []string
		gap   Gap
		lose  func(*site)
		want  string
		kind  string // of the violation
	}{
		{name: "case 16: pages are gone", gap: GapResume, lose: func(s *site) { s.remove("/0"); s.remove("/1"); s.remove("/2") }, want: "e", kind: kindNotOldEnough},
		{name: "case 16: pages are gone", gap: GapRestart, lose: func(s *site) { s.remove("/0"); s.remove("/1"); s.remove("/2") }, want: "e", kind: kindNotOldEnough},
		{
			name: "the entity is gone, and nothing in its place", gap: GapResume, want: "d e", kind: kindIDNotFound,
			lose: func(s *site) { s.pages["/2"].entities = []string{"d@4"} },
		},
		{
			name: "the entity is gone, and others of its second are not", gap: GapResume, want: "d e", kind: kindIDNotFound,
			pages: []string{"y@1", "a@2 b@3", "c@3 d@3", "e@5"},
			lose:  func(s *site) { s.pages["/2"].entities = []string{"d@3"} },
		},
		{
			name: "the ID is gone", gap: GapResume, want: "x d e", kind: kindIDNotFound,
			lose: func(s *site) { s.pages["/2"].entities = []string{"x@3", "d@4"} },
		},
		{
			name: "the ID is gone", gap: GapRestart, want: "y a b x d e", kind: kindIDNotFound,
			lose: func(s *site) { s.pages["/2"].entities = []string{"x@3", "d@4"} },
		},
		{
			name: "the feed is another", gap: GapRestart, want: "p q", kind: kindIDNotFound,
			lose: func(s *site) {
				s.pages = map[string]*sheet{"/p": {self: "/p", at: 1, entities: []string{"p@1", "q@1"}}}
				s.latest = "/p"
			},
		},
		{
			name: "the feed is another", gap: GapResume, want: "", kind: kindIDNotFound,
			lose: func(s *site) {
				s.pages = map[string]*sheet{"/p": {self: "/p", at: 1, entities: []string{"p@1", "q@1"}}}
				s.latest = "/p"
			},
		},
		{
			name: "the feed is empty", gap: GapRestart, want: "", kind: kindPageGone,
			lose: func(s *site) { s.pages, s.latest = nil, "" },
		},
		{
			name: "a page in the middle is gone, and the links to it stay", gap: GapResume, want: "e", kind: kindNotOldEnough,
			lose: func(s *site) { delete(s.pages, "/2") },
		},
	}
	for _, tt := range tests {
		parallel.RunVirtual(t, fmt.Sprintf("%s, %s", tt.name, tt.gap), func(t *testing.T) {
			if tt.pages == nil {
				tt.pages = pages
			}
			s := newSite(tt.pages...)
			src := s.source(t, onGap(tt.gap), batchesOf(2))
			var cursor feed.Cursor
			for read := 0; read < 4; {
				b, err := src.Next(t.Context(), cursor, feed.Limits{})
				must.Succeed(t, err)
				cursor = b.Cursor
				read += len(b.Entities)
				if read == 3 {
					src.batch.Entities = 1
				}
			}
			src.reader.closePage()
			s.edit(func() { tt.lose(s) })

			halted := readSure(t, s.source(t), cursor)
			halted.wantIDs(t, "")
			halted.wantError(t, true, tt.kind, "entities may be missing", "gap is set to", "checkpoint set")

			early := readSure(t, src, cursor)
			early.wantIDs(t, "")
			early.wantError(t, false, tt.kind)
			time.Sleep(gapPatience)
			r := readSure(t, src, cursor)
			r.want(t, tt.want)
			if !slices.Contains(r.violations, tt.kind) {
				t.Errorf("violations %v lack %s", r.violations, tt.kind)
			}
			again := readSure(t, s.source(t, onGap(tt.gap)), r.cursor)
			again.want(t, "")
		})
	}
	parallel.Run(t, "the place comes back", func(t *testing.T) {
		for _, gap := range []Gap{GapHalt, GapResume, GapRestart} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(pages...)
				src := s.source(t, onGap(gap))
				r := readOn(t, src, nil)
				r.want(t, "y a b c d e")
				var page *sheet
				s.edit(func() { page = s.pages["/3"]; delete(s.pages, "/3"); s.latest = "/2" })
				lost := readSure(t, src, r.cursor)
				lost.wantIDs(t, "")
				lost.wantError(t, gap == GapHalt, kindPageGone)
				s.edit(func() { s.pages["/3"] = page; s.latest = "/3" })
				s.write("/3", "f@6")
				readOn(t, src, r.cursor).want(t, "f")
			})
		}
	})
	parallel.Run(t, "a server that does not know its pages for a while", func(t *testing.T) {
		for _, gap := range []Gap{GapHalt, GapResume, GapRestart} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(pages...)
				src := s.source(t, onGap(gap))
				r := readOn(t, src, nil)
				s.publish("f@6")
				s.publish("g@7")
				var lost map[string]*sheet
				s.edit(func() { lost, s.pages = s.pages, map[string]*sheet{} })
				// Without its entry point there is no feed, and no gap in it.
				for range 5 {
					bad := readSure(t, src, r.cursor)
					bad.wantError(t, true, "", "404 Not Found", "http://feed.example/latest")
					time.Sleep(gapPatience)
				}
				s.edit(func() {
					s.pages["/5"] = lost["/5"]
				})
				bad := readSure(t, src, r.cursor)
				bad.wantError(t, gap == GapHalt, kindNotOldEnough)
				s.edit(func() { s.pages = lost })
				readOn(t, src, r.cursor).want(t, "f g")
			})
		}
	})
	parallel.Run(t, "case 84: the next page is gone for good, and nothing leads around it", func(t *testing.T) {
		for _, tt := range []struct {
			gap  Gap
			ties int // more than a cursor names, and fewer
		}{{GapResume, 250}, {GapResume, 3}, {GapRestart, 3}} {
			gap, ties := tt.gap, strings.Repeat("t@2 ", tt.ties)
			synctest.Test(t, func(t *testing.T) {
				s := newSite("y@1", ties, "c@3")
				for i, e := range s.pages["/1"].entities {
					s.pages["/1"].entities[i] = strings.Replace(e, "t", fmt.Sprintf("t%d", i), 1)
				}
				// The link to page 2 stays, and nothing leads around it.
				delete(s.pages, "/2")
				s.latest = "/1"
				src := s.source(t, onGap(gap))
				r := readSure(t, src, nil)
				r.wantError(t, false, kindPageGone)
				time.Sleep(gapPatience)
				for range 4 {
					r = readSure(t, src, r.cursor)
					time.Sleep(2 * gapPatience)
				}
				r.wantIDs(t, "")
				r.wantError(t, true, kindPageGone, "does not work either")
				s.edit(func() { s.pages["/2"] = &sheet{self: "/2", prev: "/1", at: 3, entities: []string{"c@3"}} })
				readOn(t, src, r.cursor).want(t, "c")
			})
		}
	})
	parallel.Run(t, "the configured ID is not there", func(t *testing.T) {
		for gap, want := range map[Gap]string{GapResume: "b c d e", GapRestart: "y a b c d e"} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite("y@1", "b@2", "c@3 d@4", "e@5")
				if gap == GapRestart {
					s = newSite(pages...)
				}
				src := s.source(t, onGap(gap), from(t, startBehind("x", 2)))
				r := readOn(t, src, nil)
				r.wantError(t, false, kindIDNotFound)
				time.Sleep(gapPatience)
				readOn(t, src, r.cursor).want(t, want)
			})
		}
	})
}
