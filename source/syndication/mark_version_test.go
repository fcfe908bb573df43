package syndication

import (
	"errors"
	"iter"
	"maps"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
)

// marks are the marks of a topic by ID.
type marks map[string]string

func (m marks) Mark(id string) (mark string, ok bool) { mark, ok = m[id]; return mark, ok }
func (m marks) Marks() iter.Seq2[string, string]      { return maps.All(m) }
func (m marks) Marked() bool                          { return len(m) > 0 }

// A program that cannot read the marks of a newer one would publish all entries again.
func TestMarksOfANewerVersionAreRefusedWithoutACursor(t *testing.T) {
	for mark, refused := range map[string]bool{"": false, fingerprint{}.String(): false, "damaged": false, "2;p;5": true} {
		s := decider{topic: marks{"urn:1": mark}}
		err := s.checkMarks()
		if (err != nil) != refused {
			t.Errorf("mark %q: %v", mark, err)
		}
		if refused && (!errors.Is(err, feed.ErrPermanent) || !strings.Contains(err.Error(), "run the feedbridge that wrote it, or a newer one")) {
			t.Errorf("the error is not permanent, or names no cure: %v", err)
		}
	}
}
