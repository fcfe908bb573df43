package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/config"
)

// A list that has lost most of its feeds is used when it has stayed the same for 15 minutes.
func TestShrunkListIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLists("v0", nil, slog.New(slog.DiscardHandler))
		l := &list{name: "l"}
		s.byName["l"] = l
		entries := func(n int) (all []config.Entry) {
			for i := range n {
				all = append(all, config.Entry{URL: fmt.Sprintf("https://example.com/%d", i)})
			}
			return all
		}
		look := func(what string, n, want int, changed bool, err error) {
			t.Helper()
			if s.update(l, entries(n), changed, err); len(l.inUse.all) != want {
				t.Fatalf("%s: %d feeds are in use, want %d", what, len(l.inUse.all), want)
			}
		}
		look("the first version", 10_000, 10_000, true, nil)
		look("an error", 0, 10_000, false, errors.New("503"))
		look("half of them", 5_000, 5_000, true, nil)
		look("three", 3, 5_000, true, nil)
		time.Sleep(holdFor - 1)
		look("not modified", 0, 5_000, false, nil)
		look("two", 2, 5_000, true, nil) // begins again
		time.Sleep(holdFor - 1)
		look("two again", 2, 5_000, true, nil)
		look("an error", 0, 5_000, false, errors.New("503"))
		time.Sleep(holdFor)
		look("the same after the errors", 2, 5_000, true, nil) // begins again
		time.Sleep(holdFor - 1)
		look("not modified", 0, 5_000, false, nil)
		time.Sleep(time.Nanosecond)
		look("not modified for 15 minutes", 0, 2, false, nil)
		look("more", 5_000, 5_000, true, nil)
		look("none", 0, 5_000, true, nil)
		look("the version before", 5_000, 5_000, true, nil)
		if l.held.digest != "" {
			t.Error("a version is held that was taken back")
		}
		look("three", 3, 5_000, true, nil)
		if s.useHeld(nil); len(l.inUse.all) != 3 {
			t.Errorf("%d feeds after the confirmation, want 3", len(l.inUse.all))
		}
		look("none of three", 0, 3, true, nil)
		if s.useHeld(nil); len(l.inUse.all) != 0 {
			t.Errorf("%d feeds after the confirmation, want none", len(l.inUse.all))
		}
	})
}
