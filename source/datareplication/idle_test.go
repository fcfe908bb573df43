package datareplication

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// elapsed makes the server's clock that of the bubble, n seconds after dawn at
// the start.
func elapsed(n int) func(http.Header) {
	began := time.Now()
	return func(h http.Header) {
		h.Set("Date", second(n).Add(time.Since(began)).Format(http.TimeFormat))
	}
}

// TestIdlePolls counts what a poll costs that finds nothing, and makes sure
// that it finds what there is.
func TestIdlePolls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		setup func(*site)
		// What idle polls ask, at once, after two minutes, and after more
		// than an hour, by the source that has read the feed.
		soon, later, full []string
	}{
		{
			"case 96: a server with ETags", func(*site) {},
			[]string{"GET /1 if"},
			[]string{"GET /1 if"},
			[]string{"GET /1"},
		},
		{
			"case 97: without ETags, by time and length", func(s *site) { s.noETag = true },
			[]string{"HEAD /1"},
			[]string{"HEAD /1"},
			[]string{"GET /1"},
		},
		{
			"case 97: without ETags and lengths, by time once it is old enough", func(s *site) { s.noETag, s.noLength = true, true },
			[]string{"GET /1"},
			[]string{"HEAD /1"},
			[]string{"GET /1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite("a@1", "b@2 c@3")
				s.header = elapsed(4)
				tt.setup(s)
				src := s.source(t)
				r := readOn(t, src, nil)
				r.want(t, "a b c")
				for _, poll := range []struct {
					wait     time.Duration
					requests []string
				}{
					{0, tt.soon},
					{2 * time.Minute, nil}, // the page is read once more
					{0, tt.later},
					{trustETag + time.Second, tt.full},
					{0, tt.later},
				} {
					time.Sleep(poll.wait)
					s.requests()
					idle := readOn(t, src, r.cursor)
					idle.want(t, "")
					idle.wantViolations(t)
					if string(idle.cursor) != string(r.cursor) {
						t.Errorf("an idle poll moved the cursor from %s\nto %s", r.cursor, idle.cursor)
					}
					if poll.requests != nil {
						s.wantRequests(t, poll.requests...)
					}
				}
				// What is added to the same second is found, by a page that
				// is polled and by one that was told to be the same.
				if s.noLength {
					s.write("/1", "d@4") // the same second would take the hour
				} else {
					s.write("/1", "d@3")
				}
				r = readOn(t, src, r.cursor)
				r.want(t, "d")
				s.publish("e@4")
				readOn(t, src, r.cursor).want(t, "e")
			})
		})
	}
	t.Run("case 97: what is added to a second that has not passed for long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite("a@1 b@3")
			s.noETag, s.noLength = true, true
			s.header = elapsed(3)
			src := s.source(t)
			r := readOn(t, src, nil)
			for _, id := range []string{"c", "d", "e"} {
				time.Sleep(15 * time.Second)
				s.write("/0", id+"@3")
				r = readOn(t, src, r.cursor)
				r.want(t, id)
			}
		})
	})
	t.Run("case 96: an ETag in the cursor serves a fresh source", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite("a@1", "b@2")
			r := readOn(t, s.source(t), nil)
			s.requests()
			src := s.source(t)
			for _, want := range []string{"GET /1 if", "GET /1 if", "GET /1", "GET /1 if"} {
				if want == "GET /1" {
					time.Sleep(trustETag + time.Second)
				}
				idle := readOn(t, src, r.cursor)
				idle.want(t, "")
				if string(idle.cursor) != string(r.cursor) {
					t.Errorf("the cursor moved to %s", idle.cursor)
				}
				s.wantRequests(t, want)
			}
		})
	})
	t.Run("an ETag that does not change with the page", func(t *testing.T) {
		t.Parallel()
		for _, fresh := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite("a@1")
				s.header = func(h http.Header) { h.Set("ETag", `"x"`) }
				src := s.source(t)
				r := readOn(t, src, nil)
				if fresh {
					src = s.source(t)
					readOn(t, src, r.cursor).want(t, "")
				}
				s.write("/0", "b@2")
				readOn(t, src, r.cursor).want(t, "")
				time.Sleep(trustETag + time.Second)
				s.write("/0", "c@3 d@4")
				src.cfg.BatchEntities = 1
				b, err := src.Next(t.Context(), r.cursor)
				if err != nil || len(b.Entities) != 1 || b.Entities[0].ID != "b" {
					t.Fatalf("got %+v, %v", b.Entities, err)
				}
				// It is not believed in the middle of a page.
				readOn(t, s.source(t), b.Cursor).want(t, "c d")
			})
		}
	})
	t.Run("an ETag that does not change with the links", func(t *testing.T) {
		t.Parallel()
		s := newSite("a@1")
		s.header = func(h http.Header) { h.Set("ETag", `"`+h.Get("Last-Modified")+`"`) }
		src := s.source(t)
		r := readOn(t, src, nil)
		s.publish("b@2")
		s.requests()
		readOn(t, src, r.cursor).want(t, "b")
		s.wantRequests(t, "GET /0 if", "GET /0", "GET /1")
	})
	t.Run("a 304 with a link that cannot be read", func(t *testing.T) {
		t.Parallel()
		s := newSite("a@1")
		src := s.source(t)
		r := readOn(t, src, nil)
		s.header = func(h http.Header) { h.Add("Link", `<http://feed.example/1; rel=next`) }
		readOn(t, src, r.cursor).wantError(t, true, BadLink)
	})
	t.Run("an empty page is reported once", func(t *testing.T) {
		t.Parallel()
		s := newSite("a@1", "")
		s.pages["/1"].at = 2
		s.pages["/1"].prev = "/x"
		src := s.source(t, from(t, startBehind("a", 1)), func(cfg *Config) { cfg.URL = "http://feed.example/0" })
		r := readOn(t, src, nil)
		r.want(t, "")
		r.wantViolations(t, LinksAsymmetric, EmptyPage)
		for range 3 {
			r = readOn(t, src, r.cursor)
			r.want(t, "")
			r.wantViolations(t)
		}
	})
}

// TestNewest is about the lag: how far the feed has got is known while older
// pages are being read.
func TestNewest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3", "d@9")
		src := s.source(t)
		r := reading{}
		for i, want := range []int{9, 9, 12, 12, 12} {
			b, err := src.Next(t.Context(), r.cursor)
			if err != nil {
				t.Fatal(err)
			}
			if !b.Newest.Equal(second(want)) {
				t.Errorf("call %d: the newest is of %v, want %v", i, b.Newest, second(want))
			}
			r.cursor = b.Cursor
			if i == 0 {
				s.write("/3", "e@12")
			} else {
				time.Sleep(lookEvery)
			}
			heads := slices.DeleteFunc(s.requests(), func(r string) bool { return r != "HEAD /latest" })
			if want := map[int]int{0: 1, 1: 0, 2: 1, 3: 0}[i]; i < 3 && len(heads) != want {
				t.Errorf("call %d asked for the entry point %d times", i, len(heads))
			}
		}
		// A fresh source learns from "not modified" that there is nothing newer.
		fresh := readOn(t, s.source(t), r.cursor)
		if !fresh.newest.Equal(second(12)) {
			t.Errorf("the newest is of %v", fresh.newest)
		}
	})
}
