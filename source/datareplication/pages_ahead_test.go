package datareplication

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// farSite is a site 50 ms away. It counts the GET requests that it answers at a time.
type farSite struct {
	*site
	getting, most atomic.Int64
}

const farAway = 50 * time.Millisecond

// newFarSite returns a site of n pages of 3 entities, and the IDs of them all.
func newFarSite(n int) (*farSite, []string) {
	var pages, ids []string
	for i := range n {
		var entities []string
		for e := range 3 {
			ids = append(ids, fmt.Sprintf("e%d.%d", i, e))
			entities = append(entities, fmt.Sprintf("%s@%d", ids[len(ids)-1], i+1))
		}
		pages = append(pages, strings.Join(entities, " "))
	}
	f := &farSite{site: newSite(pages...)}
	f.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			n := f.getting.Add(1)
			defer f.getting.Add(-1)
			for most := f.most.Load(); n > most && !f.most.CompareAndSwap(most, n); most = f.most.Load() {
			}
		}
		select {
		case <-time.After(farAway):
			f.answer(w, r)
		case <-r.Context().Done():
		}
	})
	return f, ids
}

// count returns how many of the requests start with that text, and the first that was made twice.
func count(requests []string, prefix string) (n int, twice string) {
	seen := map[string]bool{}
	for _, r := range requests {
		if strings.HasPrefix(r, prefix) {
			n++
			if seen[r] {
				twice = r
			}
			seen[r] = true
		}
	}
	return n, twice
}

// TestPagesAhead reads a feed from a server far away. Each page is requested once, in time
// for its turn. The way back begins with a GET of the entry point.
func TestPagesAhead(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 4} {
		t.Run(fmt.Sprintf("%d pages ahead", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const pages = 100
				s, ids := newFarSite(pages)
				src := s.source(t, ahead(n))
				begin := time.Now()
				readOn(t, src, nil).want(t, strings.Join(ids, " "))
				took := time.Since(begin)
				requests := s.requests()
				heads, _ := count(requests, "HEAD")
				gets, twice := count(requests, "GET")
				if gets != pages+1 || twice != "" {
					t.Errorf("%d GETs for the entry point and %d pages, %q twice", gets, pages, twice)
				}
				if most := s.most.Load(); most != int64(max(n, 1)) && most != int64(n+1) {
					t.Errorf("%d pages were requested at a time", most)
				}
				// Virtual time: nothing but the answers takes any.
				if want := farAway * time.Duration(heads+gets/max(n, 1)+n+1); took > want {
					t.Errorf("%d HEADs and %d GETs took %v, want %v at most", heads, gets, took, want)
				}
			})
		})
	}
}

// Without the way back only the next page is known, from the link of the one being read.
func TestOnePageAheadAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, ids := newFarSite(20)
		r := readOn(t, s.source(t), nil)
		cursor, before := atPageStart(t, r, "/5")
		s.requests()
		s.most.Store(0)
		readOn(t, s.source(t, ahead(4)), cursor).want(t, strings.Join(ids[before:], " "))
		if n, twice := count(s.requests(), "GET"); n != 16 || twice != "" { // 15 pages, and the one before the position
			t.Errorf("%d GETs, %q twice", n, twice)
		}
		if most := s.most.Load(); most != 2 {
			t.Errorf("%d pages were requested at a time, want 2", most)
		}
	})
}

// An error of a page ahead is met after the entities before it, and, unless it is permanent, only
// if the page has it at its turn.
func TestErrorsOfPagesAhead(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]httpfault.Fault{
		"503": httpfault.Status(503), "404": httpfault.Status(404), "cut": httpfault.Cut(250),
	} {
		for _, times := range []int{1, 2} {
			parallel.RunVirtual(t, fmt.Sprintf("%s, %d times", name, times), func(t *testing.T) {
				s, ids := newFarSite(8)
				for range times {
					s.Add("GET", "/3", fault)
				}
				if name == "cut" && times == 2 {
					s.Add("GET", "/3", fault) // the entity before the cut is delivered first
				}
				src := s.source(t, ahead(4))
				r := readOn(t, src, nil)
				before, met := 9, times == 2 || name == "404"
				if name == "cut" {
					before++ // the first entity of the page is complete
				}
				switch {
				case !met && r.err != nil:
					t.Errorf("an error of a request ahead was reported: %v", r.err)
				case met && r.err == nil:
					t.Error("there was no error")
				case met && !slices.Equal(r.ids, ids[:before]):
					t.Errorf("read %v before the error, want %v", r.ids, ids[:before])
				}
				rest := readSure(t, src, r.cursor)
				got := append(slices.Clone(r.ids), rest.ids...)
				if rest.err != nil && name == "cut" && times == 2 {
					// The page was read before its request ahead had failed, so one fault was left.
					rest = readSure(t, src, rest.cursor)
					got = append(got, rest.ids...)
				}
				if !slices.Equal(got, ids) || rest.err != nil {
					t.Errorf("read %v, %v", got, rest.err)
				}
			})
		}
	}
}

// Pages that wait for their turn are of the feed as it was. They are not joined with pages of
// another feed that has its URLs since.
func TestFeedIsReplacedWhilePagesAheadWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, ids := newFarSite(8)
		src := s.source(t, ahead(3))
		b, err := src.Next(t.Context(), nil, feed.Limits{})
		must.Succeed(t, err)
		time.Sleep(2 * provenFor)
		s.edit(func() {
			for _, p := range s.pages {
				for i, e := range p.entities {
					p.entities[i] = "new" + e
				}
			}
		})
		r := readSure(t, src, b.Cursor)
		if want := ids[3:12]; !slices.Equal(r.ids, want) || r.err == nil || !strings.Contains(r.err.Error(), "entities may be missing") {
			t.Errorf("read %v, %v; want %v and a gap", r.ids, r.err, want)
		}
	})
}

// The memory of pages ahead is bounded, and their turn comes without it.
func TestMemoryOfPagesAhead(t *testing.T) {
	t.Parallel()
	const chunk = 32 << 10
	for total, most := range map[int64]int64{1: 1, chunk: 2, 3 * chunk: 4, 64 * chunk: 5} {
		t.Run(fmt.Sprintf("%d bytes", total), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ids := newFarSite(20)
				s.padding = 40_000
				budget := readahead.NewBudget(total)
				s.pageBudget = budget
				src := s.source(t, ahead(4))
				r := readOn(t, src, nil)
				r.want(t, strings.Join(ids, " "))
				if got := s.most.Load(); got != most && got != most-1 {
					t.Errorf("%d pages were requested at a time, want %d", got, most)
				}
				if n, twice := count(s.requests(), "GET"); n != 21 || twice != "" {
					t.Errorf("%d GETs for the entry point and 20 pages, %q twice", n, twice)
				}
				unused(t, budget, total)
			})
		})
	}
}

// Nothing of the pages ahead is left after Release, or after the end of the context.
func TestPagesAheadEnd(t *testing.T) {
	t.Parallel()
	for _, stalled := range []bool{false, true} {
		for _, end := range []string{"release", "cancel"} {
			parallel.RunVirtual(t, fmt.Sprintf("%s, stalled %v", end, stalled), func(t *testing.T) {
				const total = 1 << 20
				s, _ := newFarSite(20)
				if stalled {
					s.Add("GET", "/2", httpfault.Stall(200))
				}
				budget := readahead.NewBudget(total)
				s.pageBudget = budget
				src := s.source(t, ahead(4))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b, err := src.Next(ctx, nil, feed.Limits{})
				must.Succeed(t, err)
				if !stalled {
					synctest.Wait()
					time.Sleep(time.Second) // all answers are there
				}
				if budget.TryAcquire(total) {
					t.Fatal("no page was requested ahead")
				}
				switch end {
				case "release":
					src.Release()
				case "cancel":
					cancel()
				}
				synctest.Wait()
				if s.getting.Load() != 0 && !stalled {
					t.Errorf("%d requests are under way", s.getting.Load())
				}
				unused(t, budget, total)
				if end == "cancel" {
					// Another session goes on.
					r := readOn(t, src, b.Cursor)
					if r.err != nil || len(r.ids) != 57 {
						t.Errorf("read %d entities, %v", len(r.ids), r.err)
					}
				}
			})
		}
	}
}

// A page that grew, or has another next link, at its turn is read as it is.
func TestPagesAheadFollowLinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newFarSite(6)
		// The next links skip /3, and the prev links do not.
		s.edit(func() { s.pages["/2"].next = "/4" })
		src := s.source(t, ahead(4), from(t, startAt(2)))
		r := readOn(t, src, nil)
		alone := readOn(t, s.source(t, from(t, startAt(2))), nil)
		if !slices.Equal(r.ids, alone.ids) || (r.err == nil) != (alone.err == nil) {
			t.Errorf("read %v, %v\none page after the other %v, %v", r.ids, r.err, alone.ids, alone.err)
		}
	})
}

// The pages of a snapshot are requested ahead, too.
func TestSnapshotPagesAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStill()
		reference := readOn(t, s.source(t, fromSnapshot(t)), nil)
		s.requests()
		r := readOn(t, s.source(t, fromSnapshot(t), ahead(4)), nil)
		if !slices.Equal(r.ids, reference.ids) || r.err != nil || len(r.ids) == 0 {
			t.Errorf("read %v, %v, want %v", r.ids, r.err, reference.ids)
		}
		if _, twice := count(s.requests(), "GET /snapshot"); twice != "" {
			t.Errorf("%s was requested twice", twice)
		}
	})
}

// A server that answers one request at a time may send a page for which there is no memory, while
// another page is to be read.
func TestPagesAheadOfAServerThatAnswersOneRequestAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, ids := newFarSite(20)
		s.padding = 40_000
		budget := readahead.NewBudget(96 << 10)
		s.pageBudget = budget
		turn := make(chan struct{}, 1)
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			turn <- struct{}{}
			defer func() { <-turn }()
			s.answer(w, r)
		})
		s.Add("GET", "/2", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			time.Sleep(time.Second) // the pages after it are answered first
			next.ServeHTTP(w, r)
		})
		readOn(t, s.source(t, ahead(4)), nil).want(t, strings.Join(ids, " "))
	})
}
