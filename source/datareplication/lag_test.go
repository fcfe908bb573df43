package datareplication

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// replica returns a copy of the site as it is now: a replica that has stopped
// following it.
func (s *site) replica() *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := &site{base: s.base, pages: map[string]*sheet{}, latest: s.latest, header: s.header, noETag: s.noETag, noLength: s.noLength}
	for path, p := range s.pages {
		page := *p
		page.entities = slices.Clone(p.entities)
		old.pages[path] = &page
	}
	old.stills, old.still, old.named = maps.Clone(s.stills), s.still, s.named
	return old
}

// answerFrom answers a request as old does.
func answerFrom(old *site) httpfault.Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) { old.answer(w, r) }
}

// TestOneOldAnswer lets one answer come from a replica that lags, at each point where
// reading meets newer pages. The source must neither report the position as lost nor count
// a violation, and go on when it asks again.
func TestOneOldAnswer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		method  string // of the request that the replica answers
		path    string
		noETag  bool
		publish bool // c comes on a page of its own
	}{
		{"the newest page is shorter", "GET", "/1", false, false},
		{"the newest page is shorter, without ETags", "HEAD", "/1", true, false},
		{"the newest page is not there", "GET", "/2", false, true},
		{"the newest page is not there, without ETags", "HEAD", "/2", true, true},
	}
	for _, tt := range tests {
		parallel.RunVirtual(t, tt.name, func(t *testing.T) {
			s := newSite("a@1", "b@2")
			s.noETag = tt.noETag
			old := s.replica()
			if tt.publish {
				s.publish("c@3")
			} else {
				s.write("/1", "c@3")
			}
			src := s.source(t)
			r := readOn(t, src, nil)
			r.want(t, "a b c")
			for method, next := range map[string]*limitedSource{tt.method: src, "GET": s.source(t)} {
				s.Add(method, tt.path, answerFrom(old))
				if method == "HEAD" && !tt.publish { // GET follows in the same call
					s.Add("GET", tt.path, answerFrom(old))
				}
				for range 4 {
					bad := readOn(t, next, r.cursor)
					bad.wantIDs(t, "")
					bad.wantViolations(t)
					if bad.err != nil && !unsure(bad.err) || errors.Is(bad.err, feed.ErrPermanent) {
						t.Errorf("error %v", bad.err)
					}
					if v, ok := errors.AsType[*feed.Violation](bad.err); ok {
						t.Errorf("a violation is counted: %v", v)
					}
				}
				if n := s.Left(); n > 0 {
					t.Errorf("the replica was not asked %d times", n)
				}
			}
			s.publish("d@4")
			readOn(t, src, r.cursor).want(t, "d")
			readOn(t, s.source(t), r.cursor).want(t, "d")
		})
	}
	parallel.RunVirtual(t, "on the way back", func(t *testing.T) {
		s := newSite("a@1", "b@2")
		old := s.replica()
		s.publish("c@3")
		s.Add("", "/1", answerFrom(old), answerFrom(old)) // which has no next link there
		src := s.source(t)
		r := readOn(t, src, nil)
		r.wantError(t, false, kindMissingNext)
		readOn(t, src, r.cursor).want(t, "a b c")
	})
	parallel.RunVirtual(t, "on the way back to a position that is lost", func(t *testing.T) {
		s := newSite("a@1", "b@2")
		old := s.replica()
		s.publish("c@3")
		src := s.source(t)
		r := readOn(t, src, nil)
		r.want(t, "a b c")
		s.edit(func() { s.pages["/2"].entities = []string{"x@3", "c@3", "d@3"} })
		s.Add("", "/1", answerFrom(old), answerFrom(old))
		bad := readOn(t, src, r.cursor)
		bad.wantError(t, false, kindMissingNext)
		readOn(t, src, r.cursor).want(t, "d")
	})
	parallel.RunVirtual(t, "a page of a snapshot, and its index", func(t *testing.T) {
		s := newSite("a@0")
		s.offer("s0", startAt(200), "a@0")
		old := s.replica()
		s.offer("s1", startAt(290), "a@0", "b@1")
		s.named = true
		src := s.source(t, fromSnapshot(t))
		s.Add("GET", "/snapshot/s1/1", answerFrom(old))
		r := readOn(t, src, nil)
		r.wantIDs(t, "a")
		r.wantError(t, false, "")
		readOn(t, src, r.cursor).want(t, "b")

		fresh := s.source(t, fromSnapshot(t))
		s.Add("GET", "/snapshot/s1", answerFrom(old))
		s.Add("GET", "/snapshot", answerFrom(old))
		bad := readOn(t, fresh, r.cursor)
		bad.wantIDs(t, "")
		bad.wantError(t, false, kindSnapshotReplaced)
		readOn(t, fresh, r.cursor).want(t, "b")
	})
}

// TestOneOldAnswerBehindAGap reads a feed after a gap as configured. A page that is missing
// in one answer must not be taken for the end of the remaining feed: older entities would
// be left out in silence.
func TestOneOldAnswerBehindAGap(t *testing.T) {
	t.Parallel()
	for _, missing := range []int{1, 100} { // answers
		parallel.RunVirtual(t, fmt.Sprintf("%d times", missing), func(t *testing.T) {
			s := newSite("a@1", "b@2", "c@3", "d@4")
			src := s.source(t, onGap(GapRestart))
			r := readOn(t, src, nil)
			r.want(t, "a b c d")
			other := newSite("p@1", "q@2", "r@3", "s@4")
			s.edit(func() { s.pages = other.pages })
			lost := readSure(t, src, r.cursor)
			lost.wantError(t, false, kindIDNotFound)
			time.Sleep(gapPatience)
			b, err := src.Next(t.Context(), r.cursor, feed.Limits{})
			if err != nil || !b.More {
				t.Fatalf("got %+v, %v", b, err)
			}
			s.Add("", "/1", slices.Repeat([]httpfault.Fault{httpfault.Status(404)}, 2*missing)...) // HEAD and GET
			rest := readSure(t, src, b.Cursor)
			if missing == 1 {
				rest.want(t, "p q r s")
			} else {
				rest.want(t, "r s")
			}
		})
	}
}

// TestLaggingReplicas reads a growing feed whose answers come from replicas, of
// which some lag by up to 1.5 s. The reader asks again as a bridge does. It must
// get every entity once and in order, and hear neither of a violation nor of a
// lost position.
func TestLaggingReplicas(t *testing.T) {
	t.Parallel()
	const (
		lag   = 1500 * time.Millisecond
		grows = 200
	)
	for seed := range uint64(8) {
		parallel.RunVirtual(t, fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1)) // the server's
			growth := rand.New(rand.NewPCG(seed, 2))
			reader := rand.New(rand.NewPCG(seed, 3))
			began := time.Now()
			now := func() int { return int(time.Since(began) / time.Second) }
			s := newSite("e0@0")
			s.noETag, s.noLength = seed&1 != 0, seed&2 != 0
			s.header = func(h http.Header) { h.Set("Date", second(now()).Format(http.TimeFormat)) }
			type state struct {
				site *site
				at   time.Time // until when it was the newest
			}
			var states []state
			newest := s.Handler
			old := 0
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.mu.Lock()
				stale := dice.IntN(100) < 30
				since := time.Now().Add(-time.Duration(dice.Int64N(int64(lag))))
				i := slices.IndexFunc(states, func(st state) bool { return st.at.After(since) })
				var from *site
				if stale && i >= 0 {
					from = states[i].site
					old++
				}
				s.mu.Unlock()
				if from != nil {
					from.answer(w, r)
					return
				}
				newest.ServeHTTP(w, r)
			})
			go func() {
				for i := 1; i <= grows; i++ {
					time.Sleep(time.Duration(growth.Int64N(int64(2 * time.Second))))
					before := s.replica()
					s.edit(func() {
						states = append(states, state{before, time.Now()})
						if len(states) > 20 {
							states = states[1:]
						}
					})
					if entity := fmt.Sprintf("e%d@%d", i, now()); growth.IntN(3) == 0 {
						s.publish(entity)
					} else {
						s.write(before.latest, entity)
					}
				}
			}()

			src := s.source(t)
			var cursor feed.Cursor
			read, wait := 0, time.Duration(0)
			for read <= grows && time.Since(began) < time.Hour {
				b, err := src.Next(t.Context(), cursor, feed.Limits{})
				switch {
				case err != nil:
					if !unsure(err) {
						t.Fatalf("after %d entities and %d old answers: %v", read, old, err)
					}
					wait = max(2*wait, 500*time.Millisecond)
				case b.More:
					wait = 0
				default:
					wait = time.Second
				}
				if len(b.Violations) > 0 {
					t.Errorf("violations %v", b.Violations)
				}
				for _, e := range b.Entities {
					if want := fmt.Sprintf("e%d", read); e.ID != want {
						t.Fatalf("read %s, want %s", e.ID, want)
					}
					read++
				}
				if err == nil {
					cursor = b.Cursor
				}
				if reader.IntN(20) == 0 {
					src = s.source(t)
				}
				time.Sleep(wait)
			}
			if read != grows+1 || old < 20 {
				t.Errorf("read %d of %d entities, with %d old answers", read, grows+1, old)
			}
		})
	}
}
