package syndication_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// longPath is a path of n bytes.
func longPath(i, n int) string {
	p := fmt.Sprintf("/%d/", i)
	return p + strings.Repeat("x", n-len(p))
}

// chain makes a feed of n archives whose paths have size bytes.
func chain(n, size int, entries string) *upstream {
	u := newUpstream("/feed", atom(prev(longPath(0, size)), "s@1:a"))
	for i := range n {
		u.set(longPath(i, size), atom(archive+prev(longPath(i+1, size)), strings.ReplaceAll(entries, "#", fmt.Sprint(i))))
	}
	u.set(longPath(n, size), atom(archive, "first@1:a"))
	return u
}

// The memory that a walk keeps of its documents counts in Bounds.Memory: their URLs, their
// heads, and their entries.
func TestMemoryOfWalks(t *testing.T) {
	t.Run("long URLs of archives", func(t *testing.T) {
		r := chain(400, 7000, "e#@1:a").read(t, func(c *syndication.Config) { c.Bounds.Memory = 1 << 20 })
		must.Succeed(t, r.poll())
		// 1 MiB of URLs, each kept twice.
		if n := strings.Count(r.u.requests(), " "); n < 50 || n > 250 {
			t.Errorf("%d documents were read", n)
		}
		r.wantViolations("walk_limit")
		if len(r.last) < 50 || r.last[len(r.last)-1].ID != "s" || len(r.place().Gaps) != 0 {
			t.Errorf("published %d entities, with the gaps %d", len(r.last), len(r.place().Gaps))
		}
	})
	t.Run("a URL that is too long", func(t *testing.T) {
		r := newUpstream("/feed", atom(prev("/"+strings.Repeat("x", 500_000)), "s@1:a")).read(t)
		r.want("s:a", "invalid_link")
		r.wantRequests("/feed")
	})
	t.Run("heads of archives", func(t *testing.T) {
		if !isOwnProcess(t) {
			return
		}
		u := newUpstream("/feed", atom(prev("/0"), "s@1:a"))
		links := strings.Repeat(link("x", longPath(1, 4000)), 200)
		const n = 60
		for i := range n {
			u.set(fmt.Sprintf("/%d", i), atom(archive+links+prev(fmt.Sprintf("/%d", i+1)), fmt.Sprintf("e%d@1:a", i)))
		}
		u.set(fmt.Sprintf("/%d", n), atom(archive, "first@1:a"))
		r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory, c.PagesAhead = 4<<20, -1 })
		heap := newLiveHeap()
		u.onRequest = heap.look
		must.Succeed(t, r.poll())
		grown := heap.grown()
		t.Logf("%d MB of heap", grown>>20)
		if heap.most.Load() == 0 || grown > 16<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		if len(r.last) != n+2 {
			t.Errorf("published %d entities", len(r.last))
		}
	})
}
