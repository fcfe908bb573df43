package datareplication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// All entities before one that the bus does not take are published, and reading continues
// with that one when the bus takes it. It makes no difference where it is.
func TestWhatIsBeforeAnUnfitEntityIsPublished(t *testing.T) {
	t.Parallel()
	feedPages := []string{"a@1 b@2 c@3", "d@4 e@5", "f@6 g@7 h@8 i@9"}
	for name, test := range map[string]struct {
		ids   string
		site  func() *site
		edits []func(*options)
	}{
		"the whole feed": {"a b c d e f g h i", func() *site { return newSite(feedPages...) }, nil},
		"from a time on": {"e f g h i", func() *site { return newSite(feedPages...) }, []func(*options){from(t, startAt(5))}},
		"with a snapshot": {"a c e2 e3 e4 e5 e f g", func() *site {
			s := newStill()
			s.offer("s1", startAt(290), "a@0", "c@200 e@250", "", "e2@220 e3@10 e4@20 e5@20")
			return s
		}, []func(*options){fromSnapshot(t)}},
		"in batches of two": {"a b c d e f g h i", func() *site { return newSite(feedPages...) }, []func(*options){batchesOf(2)}},
	} {
		ids := strings.Fields(test.ids)
		for i, unfit := range ids {
			parallel.Run(t, fmt.Sprintf("%s, %s is unfit", name, unfit), func(t *testing.T) {
				errUnfit := errors.New("it has no key")
				g := gated(test.site().source(t, test.edits...))
				g.Fits = func(entities []feed.Entity) (int, error) {
					if i := slices.IndexFunc(entities, func(e feed.Entity) bool { return e.ID == unfit }); i >= 0 {
						return i, errUnfit
					}
					return len(entities), nil
				}
				r := readOn(t, g, nil)
				if !errors.Is(r.err, errUnfit) {
					t.Fatalf("error %v, want that %s is unfit", r.err, unfit)
				}
				r.wantIDs(t, strings.Join(ids[:i], " "))
				// The next session meets it again.
				g.IDs.Rollback()
				again := readOn(t, g, r.cursor)
				again.wantIDs(t, "")
				if !errors.Is(again.err, errUnfit) {
					t.Errorf("error %v, want that %s is unfit", again.err, unfit)
				}
				g.Fits = func(e []feed.Entity) (int, error) { return len(e), nil }
				readOn(t, g, r.cursor).want(t, strings.Join(ids[i:], " "))
			})
		}
	}
}
