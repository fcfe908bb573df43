package datareplication

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// elapsed makes the server's clock that of the bubble, n seconds after dawn at
// the start.
func elapsed(n int) func(http.Header) {
	began := time.Now()
	return func(h http.Header) {
		h.Set("Date", second(n).Add(time.Since(began)).Format(http.TimeFormat))
	}
}

// TestIdlePolls counts the requests of a poll that finds nothing, and checks that polls
// find new entities.
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
		parallel.RunVirtual(t, tt.name, func(t *testing.T) {
			s := newSite("a@1", "b@2 c@3")
			s.header = elapsed(4)
			tt.setup(s)
			src := s.source(t)
			r := readOn(t, src, nil)
			r.want(t, "a b c")
			for _, poll := range []struct {
				wait     time.Duration
				requests []string
				moves    bool // the cursor has the time of a full read
			}{
				{0, tt.soon, false},
				{2 * time.Minute, nil, false}, // the page is read once more
				{0, tt.later, false},
				{trustETag + time.Second, tt.full, !s.noETag},
				{0, tt.later, false},
			} {
				time.Sleep(poll.wait)
				s.requests()
				idle := readOn(t, src, r.cursor)
				idle.want(t, "")
				idle.wantViolations(t)
				if moved := string(idle.cursor) != string(r.cursor); moved != poll.moves || !samePosition(t, r.cursor, idle.cursor) {
					t.Errorf("an idle poll moved the cursor from %s\nto %s", r.cursor, idle.cursor)
				}
				r.cursor = idle.cursor
				if poll.requests != nil {
					s.wantRequests(t, poll.requests...)
				}
			}
			// Entities added within the same second are found, with or without "not
			// modified" before.
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
	}
	parallel.RunVirtual(t, "case 97: what is added to a second that has not passed for long", func(t *testing.T) {
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
	parallel.RunVirtual(t, "case 96: an ETag in the cursor serves a fresh source", func(t *testing.T) {
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
			if moved := string(idle.cursor) != string(r.cursor); moved != (want == "GET /1") || !samePosition(t, r.cursor, idle.cursor) {
				t.Errorf("the cursor moved to %s", idle.cursor)
			}
			r.cursor = idle.cursor
			s.wantRequests(t, want)
		}
	})
	parallel.Run(t, "an ETag that does not change with the page", func(t *testing.T) {
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
				src.batch.Entities = 1
				b, err := src.Next(t.Context(), r.cursor, feed.Limits{})
				if err != nil || len(b.Entities) != 1 || b.Entities[0].ID != "b" {
					t.Fatalf("got %+v, %v", b.Entities, err)
				}
				// It is not believed in the middle of a page.
				readOn(t, s.source(t), b.Cursor).want(t, "c d")
			})
		}
	})
	parallel.Run(t, "an ETag that does not change with the links", func(t *testing.T) {
		s := newSite("a@1")
		s.header = func(h http.Header) { h.Set("ETag", `"`+h.Get("Last-Modified")+`"`) }
		src := s.source(t)
		r := readOn(t, src, nil)
		s.publish("b@2")
		s.requests()
		readOn(t, src, r.cursor).want(t, "b")
		s.wantRequests(t, "GET /0 if", "GET /0", "GET /1")
	})
	parallel.Run(t, "a 304 with a link that cannot be read", func(t *testing.T) {
		s := newSite("a@1")
		src := s.source(t)
		r := readOn(t, src, nil)
		s.header = func(h http.Header) { h.Add("Link", `<http://feed.example/1; rel=next`) }
		readOn(t, src, r.cursor).wantError(t, true, "bad_link")
	})
	parallel.Run(t, "an empty page is reported once", func(t *testing.T) {
		s := newSite("a@1", "")
		s.pages["/1"].at = 2
		s.pages["/1"].prev = "/x"
		src := s.source(t, from(t, startBehind("a", 1)), func(cfg *options) { cfg.URL = "http://feed.example/0" })
		r := readOn(t, src, nil)
		r.want(t, "")
		r.wantViolations(t, kindEntryNotNewest, kindLinksAsymmetric, kindEmptyPage)
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
			b, err := src.Next(t.Context(), r.cursor, feed.Limits{})
			must.Succeed(t, err)
			if !b.Newest.Equal(second(want)) {
				t.Errorf("call %d: the newest is of %v, want %v", i, b.Newest, second(want))
			}
			r.cursor = b.Cursor
			if i == 0 {
				s.write("/3", "e@12")
			} else {
				time.Sleep(newestEvery)
			}
			asked := slices.DeleteFunc(s.requests(), func(r string) bool { return !strings.HasSuffix(r, " /latest") })
			want := map[int][]string{0: {"GET /latest"}, 2: {"HEAD /latest"}}[i]
			if i < 3 && !slices.Equal(asked, want) {
				t.Errorf("call %d asked for the entry point by %q, want %q", i, asked, want)
			}
		}
		// A fresh source learns from "not modified" that there is nothing newer.
		fresh := readOn(t, s.source(t), r.cursor)
		if !fresh.newest.Equal(second(12)) {
			t.Errorf("the newest is of %v", fresh.newest)
		}
	})
}

// samePosition reports whether two cursors differ in nothing but the time of the
// last full read.
func samePosition(t *testing.T, a, b feed.Cursor) bool {
	t.Helper()
	before, err := decodeCursor(a)
	after, err2 := decodeCursor(b)
	must.Succeed(t, errors.Join(err, err2))
	before.Full, after.Full = 0, 0
	return bytes.Equal(before.encodeCursor(), after.encodeCursor())
}

// TestTrustOutlivesRestarts restarts the reader more often than a page is
// trusted for. Entities that a server hides behind "not modified" must still be found
// within the hour, and idle polls may not move the cursor more often than the page is read
// in full.
func TestTrustOutlivesRestarts(t *testing.T) {
	t.Parallel()
	const polls, every = 40, 10 * time.Minute
	tests := []struct {
		name  string
		setup func(*site)
		add   func(*site)
	}{
		{
			"an ETag that does not change with the page",
			func(s *site) { s.header = func(h http.Header) { h.Set("ETag", `"x"`) } },
			func(s *site) { s.write("/1", "c@3") },
		},
		{
			"an ETag that does not change with the links, and 304 without Link",
			func(s *site) {
				s.header = func(h http.Header) { h.Set("ETag", `"`+h.Get("Last-Modified")+`"`) }
				answer := s.Handler
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					answer.ServeHTTP(linkless{w}, r)
				})
			},
			func(s *site) { s.publish("c@3") },
		},
		{
			"no Content-Length, and an entity of the same second",
			func(s *site) {
				s.noETag, s.noLength = true, true
				s.header = elapsed(1000)
			},
			func(s *site) { s.write("/1", "c@2") },
		},
	}
	for _, tt := range tests {
		for name, restarts := range map[string]bool{"one process": false, "a process for each poll": true} {
			parallel.RunVirtual(t, tt.name+", "+name, func(t *testing.T) {
				s := newSite("a@1", "b@2")
				tt.setup(s)
				src := s.source(t)
				r := readOn(t, src, nil)
				r.want(t, "a b")
				moves := 0
				for range polls {
					time.Sleep(every)
					if restarts {
						src = s.source(t)
					}
					idle := readOn(t, src, r.cursor)
					idle.want(t, "")
					if string(idle.cursor) != string(r.cursor) {
						moves++
					}
					r.cursor = idle.cursor
				}
				if most := int(polls * every / (trustETag - trustETag/6)); moves > most {
					t.Errorf("the cursor moved %d times in %v, want at most %d", moves, polls*every, most)
				}
				tt.add(s)
				for range trustETag/every + 1 {
					if restarts {
						src = s.source(t)
					}
					if r = readOn(t, src, r.cursor); len(r.ids) > 0 {
						break
					}
					time.Sleep(every)
				}
				r.want(t, "c")
			})
		}
	}
	parallel.RunVirtual(t, "a time that is of no use", func(t *testing.T) {
		s := newSite("a@1")
		r := readOn(t, s.source(t), nil)
		cur, err := decodeCursor(r.cursor)
		must.Succeed(t, err)
		for want, full := range map[string]time.Time{
			"GET /0":    time.Now().Add(2 * trustETag), // of a clock that was wrong
			"GET /0 if": time.Now().Add(time.Minute),   // of a clock that is ahead
		} {
			cur.Full = full.Unix()
			s.requests()
			readOn(t, s.source(t), cur.encodeCursor()).want(t, "")
			s.wantRequests(t, want)
		}
		cur.Full = 0 // of a version that did not store it
		s.requests()
		readOn(t, s.source(t), cur.encodeCursor()).want(t, "")
		s.wantRequests(t, "GET /0")
	})
	parallel.RunVirtual(t, "an ETag that is another each time", func(t *testing.T) {
		s := newSite("a@1")
		n := 0
		s.header = func(h http.Header) { n++; h.Set("ETag", fmt.Sprintf(`"%d"`, n)) }
		src := s.source(t)
		r := readOn(t, src, nil)
		for range 10 {
			time.Sleep(time.Minute)
			idle := readOn(t, src, r.cursor)
			idle.want(t, "")
			if string(idle.cursor) != string(r.cursor) {
				t.Errorf("the cursor moved to %s", idle.cursor)
			}
		}
	})
}

// linkless leaves the Link header out of 304.
type linkless struct{ http.ResponseWriter }

func (w linkless) WriteHeader(status int) {
	if status == http.StatusNotModified {
		w.Header().Del("Link")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w linkless) Unwrap() http.ResponseWriter { return w.ResponseWriter }
