package syndication_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// atomHopper is a feed as Atom Hopper serves it: live pages that are linked with
// next from entry to entry, and the last of them with next-archive to archives,
// where next-archive leads to older ones too.
type atomHopper struct {
	u        *upstream
	page     int
	archives [][]int

	mu        sync.Mutex // pages may be requested concurrently
	live      []int      // newest first
	onRequest func()     // called with mu
}

func newAtomHopper(page, live, archives int) *atomHopper {
	h := &atomHopper{u: newUpstream(), page: page}
	n := 0
	for range archives {
		var entries []int
		for range page {
			n++
			entries = append([]int{n}, entries...)
		}
		h.archives = append(h.archives, entries)
		h.u.serve(fmt.Sprintf("/a%d", len(h.archives)-1), h.ServeHTTP)
	}
	for range live {
		n++
		h.add(n)
	}
	h.u.serve("/feed", h.ServeHTTP)
	return h
}

func (h *atomHopper) add(n int) {
	h.mu.Lock()
	h.live = append([]int{n}, h.live...)
	h.mu.Unlock()
	h.u.serve(fmt.Sprintf("/feed?marker=%d", n), h.ServeHTTP)
}

func (h *atomHopper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a, ok := strings.CutPrefix(r.URL.Path, "/a"); ok {
		k, _ := strconv.Atoi(a)
		head := archive
		if k > 0 {
			head += link("next-archive", fmt.Sprintf("/a%d", k-1))
		}
		if k < len(h.archives)-1 {
			head += link("prev-archive", fmt.Sprintf("/a%d", k+1))
		}
		_, _ = w.Write([]byte(atom(head, entriesOf(h.archives[k]))))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	page := h.live
	if marker, err := strconv.Atoi(r.URL.Query().Get("marker")); err == nil {
		for len(page) > 0 && page[0] >= marker {
			page = page[1:]
		}
	}
	head := link("current", "/feed")
	if len(page) > h.page {
		page = page[:h.page]
		head += link("next", fmt.Sprintf("/feed?marker=%d", page[h.page-1])) + link("last", "/last")
	} else if len(h.archives) > 0 {
		head += link("next-archive", fmt.Sprintf("/a%d", len(h.archives)-1))
	}
	if h.onRequest != nil {
		h.onRequest()
	}
	_, _ = w.Write([]byte(atom(head, entriesOf(page))))
}

func entriesOf(numbers []int) string {
	var list []string
	for _, n := range numbers {
		list = append(list, fmt.Sprintf("e%d@%[1]d:a", n))
	}
	return strings.Join(list, " ")
}

func all(from, to int) string {
	var list []string
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprintf("e%d:a", n))
	}
	return strings.Join(list, " ")
}

// Case 56: the way back is next, next, …, next-archive, ….
func TestAtomHopper(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ live, archives int }{
		"with archives":                     {43, 2},
		"with archives, and one live page":  {4, 3},
		"with an archive, and no live page": {0, 1},
		"without archives":                  {43, 0},
		"with one page":                     {4, 0},
	} {
		for _, dialect := range []syndication.DialectName{"atomhopper", "auto", "paged"} {
			parallel.Run(t, name+", "+string(dialect), func(t *testing.T) {
				h := newAtomHopper(6, tt.live, tt.archives)
				r := h.u.read(t, func(c *syndication.Config) { c.Dialect = dialect })
				must.Succeed(t, r.poll())
				n := tt.live + 6*tt.archives
				r.wantLast(all(1, n))
				if dialect == "atomhopper" {
					r.wantViolations()
				}
				h.u.requests()
				// Many are added at once.
				for k := range 20 {
					h.add(n + k + 1)
				}
				r.restart()
				must.Succeed(t, r.poll())
				r.wantLast(all(n+1, n+20))
				if log := h.u.requests(); strings.Contains(log, "/a0") && tt.archives > 1 {
					t.Errorf("archives that are published were read again: %s", log)
				}
			})
		}
	}
	parallel.Run(t, "while it grows", func(t *testing.T) {
		h := newAtomHopper(6, 40, 2)
		n, grown := 52, 0
		h.onRequest = func() {
			if grown < 10 {
				grown++
				h.live = append([]int{n + grown}, h.live...)
			}
		}
		for i := range 10 {
			h.u.serve(fmt.Sprintf("/feed?marker=%d", n+i+1), h.ServeHTTP)
		}
		r := h.u.read(t, func(c *syndication.Config) { c.Dialect = "atomhopper" })
		for range 4 {
			must.Succeed(t, r.poll())
			r.wantViolations()
		}
		if got := texts(r.messages); got != all(1, n+10) {
			t.Errorf("published %s", got)
		}
	})
	parallel.Run(t, "a live page is missing", func(t *testing.T) {
		h := newAtomHopper(6, 20, 2)
		h.u.serve("/feed?marker=21", status(404))
		r := h.u.read(t, func(c *syndication.Config) { c.Dialect, c.FullEvery = "atomhopper", 1 })
		r.want(all(21, 32), "incomplete")
		h.u.serve("/feed?marker=21", h.ServeHTTP)
		r.want(all(1, 20))
	})
	parallel.Run(t, "an archive is missing", func(t *testing.T) {
		h := newAtomHopper(6, 5, 3)
		h.u.serve("/a1", status(404))
		r := h.u.read(t, func(c *syndication.Config) { c.Dialect, c.FullEvery = "atomhopper", 1 })
		r.want(all(13, 23), "incomplete")
		h.u.serve("/a1", h.ServeHTTP)
		r.want(all(1, 12))
	})
}

// A poll that shares no entry with the topic is reported for every type of feed,
// unless a link leads back to the published entries.
func TestPossibleOverrun(t *testing.T) {
	t.Parallel()
	const overrun = "possible_overrun"
	for name, tt := range map[string]struct {
		before, after []string // documents
		want          []string
	}{
		"archived, without a link":            {[]string{"/feed", atom(prev("/a1"), "b"), "/a1", atom(archive, "a")}, []string{"/feed", atom("", "d")}, []string{"dialect_changed", overrun}},
		"archived, and the chain starts over": {[]string{"/feed", atom(prev("/a1"), "b"), "/a1", atom(archive, "a")}, []string{"/feed", atom(prev("/b1"), "d"), "/b1", atom(archive, "c")}, []string{overrun}},
		"archived, bridged by what is known":  {[]string{"/feed", atom(prev("/a1"), "b"), "/a1", atom(archive, "a")}, []string{"/feed", atom(prev("/a2"), "d"), "/a2", atom(archive+prev("/a1"), "c")}, nil},
		"archived, bridged by an entry":       {[]string{"/feed", atom(prev("/a1"), "b"), "/a1", atom(archive, "a")}, []string{"/feed", atom(prev("/b1"), "d"), "/b1", atom(archive, "c b")}, nil},
		"paged":                               {[]string{"/feed", atom(link("next", "/2"), "b"), "/2", atom("", "a")}, []string{"/feed", atom(link("next", "/2"), "d"), "/2", atom("", "c")}, []string{overrun}},
		"paged, bridged by a page":            {[]string{"/feed", atom(link("next", "/2"), "b"), "/2", atom("", "a")}, []string{"/feed", atom(link("next", "/2"), "d"), "/2", atom("", "b")}, nil},
		"complete":                            {[]string{"/feed", atom(complete, "a b")}, []string{"/feed", atom(complete, "c d")}, nil},
		"snapshots":                           {[]string{"/feed", atom(link("this", "/s1"), "a")}, []string{"/feed", atom(link("this", "/s2"), "b")}, []string{overrun}},
		"snapshots, bridged":                  {[]string{"/feed", atom(link("this", "/s1"), "a")}, []string{"/feed", atom(link("this", "/s2")+link("prev", "/s1"), "b")}, nil},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := newUpstream(tt.before...).read(t)
			must.Succeed(t, r.poll())
			for i := 0; i < len(tt.after); i += 2 {
				r.u.set(tt.after[i], tt.after[i+1])
			}
			must.Succeed(t, r.poll())
			r.wantViolations(tt.want...)
		})
	}
}
