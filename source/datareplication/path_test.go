package datareplication

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The URLs that are remembered on the way back are bounded in bytes. The oldest stay, because they
// are read first.
func TestPathIsBounded(t *testing.T) {
	t.Parallel()
	url := func(n int) string { return fmt.Sprintf("http://feed.example/%d/%s", n, strings.Repeat("p", 100)) }
	const pages = 50_000
	var p path
	largest := 0
	for n := range pages {
		p.add(url(pages - n)) // from the newest to the oldest
		size := 0
		for _, u := range p.urls {
			size += len(u)
		}
		if size != p.size {
			t.Fatalf("after %d pages the size is %d, want %d", n+1, p.size, size)
		}
		largest = max(largest, size)
	}
	if largest > 256<<10 || largest < 200<<10 {
		t.Errorf("the URLs have %d bytes at most, want 256 KiB", largest)
	}
	kept := len(p.urls)
	for n := 1; n <= kept; n++ {
		want := []string{url(n)}
		for i := n + 1; i < min(n+4, kept+1); i++ {
			want = append(want, url(i))
		}
		if got := p.following(url(n), 4); !slices.Equal(got, want) {
			t.Fatalf("after page %d: %v", n, got)
		}
	}
	if got := p.following(url(kept+1), 4); len(got) != 1 || got[0] != url(kept+1) || p.size != 0 {
		t.Errorf("after the last page that is remembered: %v, and %d bytes are kept", got, p.size)
	}
}
