package syndication_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// longArchive makes a feed of n archives of 20 entries of about 500 bytes, and a
// subscription document of one entry.
func longArchive(n int) (u *upstream, want []string) {
	u = newUpstream()
	id := 0
	for i := range n + 1 {
		path, head, size := fmt.Sprintf("/a%d", i), archive, 20
		if i > 0 {
			head += prev(fmt.Sprintf("/a%d", i-1))
		}
		if i == n {
			path, head, size = "/feed", prev(fmt.Sprintf("/a%d", i-1)), 1
		}
		var entries []string
		for range size {
			entries = append([]string{fmt.Sprintf("e%d@%d:%s", id, id, randomText(id))}, entries...)
			want = append(want, fmt.Sprintf("e%d", id))
			id++
		}
		u.set(path, atom(head, strings.Join(entries, " ")))
	}
	return u, want
}

// randomText is the text of an entry that compresses badly.
func randomText(i int) string {
	text := ""
	for n := range 8 {
		text += fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i, n)))
	}
	return text
}

func (r *reader) wantIDs(want []string) {
	r.t.Helper()
	var got []string
	for _, e := range r.messages {
		got = append(got, e.ID)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		r.t.Errorf("published %d entities, want %d in the order of the feed", len(got), len(want))
	}
}

// Archives whose entries take more than Bounds.Memory are requested twice, except for those that
// are published first.
func TestArchivesThatDoNotFit(t *testing.T) {
	t.Parallel()
	const archives = 150
	u, want := longArchive(archives)
	r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory = 1 << 20 })
	must.Succeed(t, r.poll())
	r.wantIDs(want)
	asked := strings.Fields(u.requests())
	again := len(asked) - archives - 1
	// The entries of a document take 24 KB or so.
	if again < 90 || again > 120 {
		t.Errorf("%d documents were requested twice", again)
	}
	times := map[string]int{}
	for _, path := range asked {
		times[path]++
	}
	for i := range archives {
		path := fmt.Sprintf("/a%d", i)
		if want := 1 + min(1, max(0, i-(archives-again-1))); times[path] != want {
			t.Errorf("%s was requested %d times, want %d", path, times[path], want)
		}
	}
}

// slowUpstream counts the requests that it answers at the same time. Each takes a second.
type slowUpstream struct {
	mu        sync.Mutex
	asked     int
	now, most int
	after     int // counts most from this request on
}

func (s *slowUpstream) serve(u *upstream, paths int) {
	for path, doc := range u.docs {
		u.serve(path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.asked++
			s.now++
			if s.asked > s.after {
				s.most = max(s.most, s.now)
			}
			s.mu.Unlock()
			sleepUntil(r, time.Second)
			s.mu.Lock()
			s.now--
			s.mu.Unlock()
			_, _ = w.Write([]byte(doc))
		})
	}
	s.after = paths
}

// counts returns how many requests were made, and most.
func (s *slowUpstream) counts() (asked, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.most
}

// Documents that are requested again are requested at the same time, as many as PagesAhead
// allows, and published in order.
func TestDocumentsAhead(t *testing.T) {
	t.Parallel()
	const archives = 60
	for _, ahead := range []int{0, 1, 2, 4} {
		parallel.RunVirtual(t, fmt.Sprint(ahead), func(t *testing.T) {
			u, want := longArchive(archives)
			var slow slowUpstream
			slow.serve(u, archives+1)
			// There is budget for 48 documents or so.
			budget := readahead.NewBudget(64 << 10)
			r := u.read(t, func(c *syndication.Config) {
				c.Bounds.Memory, c.PagesAhead, c.Budget = 1<<20, cmp.Or(ahead, -1), budget
			})
			start := time.Now()
			must.Succeed(t, r.poll())
			r.wantIDs(want)
			asked, most := slow.counts()
			again := asked - archives - 1
			if again < 8 {
				t.Fatalf("%d documents were requested twice", again)
			}
			if most != max(1, ahead) {
				t.Errorf("%d requests at the same time", most)
			}
			took := time.Since(start) - (archives+1)*time.Second
			// The first one is requested by itself.
			if want := time.Duration(1+(again-1)/max(1, ahead)+1) * time.Second; took > want {
				t.Errorf("%d documents were requested again in %v, want %v", again, took, want)
			}
			unused(t, budget, 64<<10)
		})
	}
}

// An error of a document that was requested ahead comes when the document has its turn.
func TestErrorOfADocumentAhead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault http.HandlerFunc
		gone  bool
	}{
		"503": {status(503), false},
		"breaking off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte("<feed"))
		}, false},
		"410": {status(410), true},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			const archives = 40
			u, want := longArchive(archives)
			r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory = 150 << 10 })
			const broken = archives - 2
			path := fmt.Sprintf("/a%d", broken)
			doc := u.docs[path]
			u.serve(path, tt.fault)
			u.fault(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(doc)) })
			before, after := want[:broken*20], want[(broken+1)*20:]
			err := r.poll()
			if tt.gone {
				must.Succeed(t, err)
				r.wantIDs(append(before[:len(before):len(before)], after...))
				r.wantViolations("archive_gone")
				return
			}
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v", err)
			}
			r.wantIDs(before)
			u.serve(path, nil)
			must.Succeed(t, r.poll())
			r.wantIDs(want)
		})
	}
}

// Release ends the requests under way and returns the budget; reading continues after it.
func TestReleaseEndsRequestsAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const archives = 40
		u, want := longArchive(archives)
		var slow slowUpstream
		slow.serve(u, archives+1)
		budget := readahead.NewBudget(1 << 20)
		r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory, c.Budget = 150<<10, budget })
		for range 10_000 {
			more, err := r.next()
			if err != nil || !more {
				t.Fatalf("nothing was requested ahead: more %v, error %v", more, err)
			}
			if synctest.Wait(); slow.now > 1 {
				break
			}
		}
		r.src.Release()
		if synctest.Wait(); slow.now != 0 {
			t.Errorf("%d requests are under way after Release", slow.now)
		}
		unused(t, budget, 1<<20)
		must.Succeed(t, r.poll())
		r.wantIDs(want)
		unused(t, budget, 1<<20)
	})
}
