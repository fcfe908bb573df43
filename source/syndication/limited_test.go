package syndication_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// All entities before one that the bus does not take are published, and reading continues
// with that one when the bus takes it.
func TestWhatIsBeforeAnUnfitEntityIsPublished(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(...edit) *reader{
		"a window": func(edits ...edit) *reader { return newUpstream("/feed", atom("", "a b c d")).read(t, edits...) },
		"a complete feed": func(edits ...edit) *reader {
			return newUpstream("/feed", atom(complete, "a b c d")).read(t, edits...)
		},
		"archives": func(edits ...edit) *reader { return archived().read(t, edits...) },
		"paged":    func(edits ...edit) *reader { return paged().read(t, edits...) },
		"two parts": func(edits ...edit) *reader {
			return newUpstream("/feed", atom("", "a b c d")).read(t, edits...).inBatches(feed.Limits{Entities: 2})
		},
	} {
		whole := open()
		must.Succeed(t, whole.poll())
		messages := strings.Fields(texts(whole.messages))
		for i, e := range whole.messages {
			parallel.Run(t, fmt.Sprintf("%s, %s is unfit", name, e.ID), func(t *testing.T) {
				errUnfit := errors.New("it has no key")
				r := open()
				fits := r.src.Fits
				r.src.Fits = func(entities []feed.Entity) (int, error) {
					if i := slices.IndexFunc(entities, func(of feed.Entity) bool { return of.ID == e.ID }); i >= 0 {
						return i, errUnfit
					}
					return len(entities), nil
				}
				r.wantError(true, strings.Join(messages[:i], " "), "no key")
				r.wantError(true, "", "no key")
				r.src.Fits = fits
				if err := r.poll(); err != nil {
					t.Errorf("error: %v", err)
				}
				r.wantLast(strings.Join(messages[i:], " "))
			})
		}
	}
}
