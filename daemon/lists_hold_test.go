package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// heldList is a list l without its goroutine, and the configuration with its feeds.
type heldList struct {
	*lists
	l             *list
	base, running *config.Config
}

func newHeldList(t *testing.T) *heldList {
	t.Helper()
	base, err := config.Load(config.Options{Environ: []string{"FEEDBRIDGE_FEEDS_FROM_L_FILE=unused"}})
	must.Succeed(t, err)
	h := &heldList{newLists("v0", nil, slog.New(slog.DiscardHandler)), &list{name: "l"}, base, base}
	h.byName["l"] = h.l
	return h
}

// look takes the result of a look, changes the feeds as the daemon does, and returns their number.
func (h *heldList) look(entries []config.Entry, changed bool, err error) int {
	h.update(h.l, entries, changed, err)
	select {
	case <-h.changed:
		h.change(false)
	default:
	}
	return len(h.running.Feeds)
}

func (h *heldList) change(confirm bool) {
	var accept func()
	h.running, accept = h.addTo(h.base, h.running, confirm)
	accept()
}

// A file that was not read to its end is read again, although it has not changed.
func TestAListWhoseReadFails(t *testing.T) {
	t.Parallel()
	const file = "/proc/self/mem" // a regular file whose read fails
	if _, err := os.Stat(file); err != nil {
		t.Skip(err)
	}
	h := newHeldList(t)
	h.l.cfg.File = file
	for range 2 {
		if err := h.lists.look(t.Context(), h.l); err == nil || h.l.failure == "" {
			t.Errorf("%v, and the status has the error %q", err, h.l.failure)
		}
	}
}

func entriesOf(n int, name func(int) string, url string) (all []config.Entry) {
	for i := range n {
		all = append(all, config.Entry{Name: name(i), URL: fmt.Sprintf(url, i)})
	}
	return all
}

func unnamed(int) string { return "" }

const exampleURL = "https://example.com/%d"

// A list that has lost most of its feeds is used when it has stayed the same for 15 minutes.
func TestShrunkListIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHeldList(t)
		look := func(what string, n, want int, changed bool, err error) {
			t.Helper()
			if got := h.look(entriesOf(n, unnamed, exampleURL), changed, err); got != want {
				t.Fatalf("%s: %d feeds are in use, want %d", what, got, want)
			}
		}
		look("the first version", 1_000, 1_000, true, nil)
		look("an error", 0, 1_000, false, errors.New("503"))
		look("half of them", 500, 500, true, nil)
		look("three", 3, 500, true, nil)
		time.Sleep(holdFor - 1)
		look("not modified", 0, 500, false, nil)
		look("two", 2, 500, true, nil) // begins again
		time.Sleep(holdFor - 1)
		look("two again", 2, 500, true, nil)
		look("an error", 0, 500, false, errors.New("503"))
		time.Sleep(holdFor)
		look("the same after the errors", 2, 500, true, nil) // begins again
		time.Sleep(holdFor - 1)
		look("not modified", 0, 500, false, nil)
		time.Sleep(time.Nanosecond)
		look("not modified for 15 minutes", 0, 2, false, nil)
		look("more", 500, 500, true, nil)
		look("none", 0, 500, true, nil)
		look("the version before", 500, 500, true, nil)
		if h.status()[0].Held != nil {
			t.Error("a version is held that was taken back")
		}
		look("three", 3, 500, true, nil)
		if h.change(true); len(h.running.Feeds) != 3 {
			t.Errorf("%d feeds after the confirmation, want 3", len(h.running.Feeds))
		}
		look("none of three", 0, 3, true, nil)
		if h.change(true); len(h.running.Feeds) != 0 {
			t.Errorf("%d feeds after the confirmation, want none", len(h.running.Feeds))
		}
	})
}

// A list has lost the feeds that the configuration had of it and would no longer have. Entries that are not used are
// none, and a feed whose derived name is written out is the same.
func TestLostFeedsAreCounted(t *testing.T) {
	t.Parallel()
	one := entriesOf(1, unnamed, exampleURL)
	many := entriesOf(40, unnamed, exampleURL)
	written := entriesOf(40, func(i int) string { return config.ListedName(fmt.Sprintf(exampleURL, i)) }, exampleURL)
	renamed := slices.Repeat(one, 50)
	for i := range renamed {
		renamed[i].Name = fmt.Sprint("n", i)
	}
	bad := entriesOf(20, func(i int) string { return fmt.Sprint("Bad name ", i) }, "https://other.example.com/%d")
	corrected := entriesOf(20, func(i int) string { return fmt.Sprint("good-name-", i) }, "https://other.example.com/%d")
	for _, test := range []struct {
		what          string
		before, after []config.Entry
		feeds, lost   int
	}{
		{"a URL 50 times", slices.Concat(many, slices.Repeat(one, 50)), one, 40, 39},
		{"a URL under 50 names", slices.Concat(many, renamed), one, 40, 39},
		{"relative URLs", slices.Concat(many, entriesOf(60, unnamed, "/rel/%d")), slices.Concat(one, entriesOf(60, unnamed, "/rel/%d")), 40, 39},
		{"the derived names are written out", many, written, 40, 0},
		{"they are left out again", written, many, 40, 0},
		{"bad names are corrected", slices.Concat(many[:10], bad), slices.Concat(many[:10], corrected), 30, 0},
		{"bad names come besides", many, slices.Concat(many, bad), 40, 0},
		{"other feeds", many, corrected, 40, 40},
		{"other URLs of the same feeds", corrected, entriesOf(20, func(i int) string { return fmt.Sprint("good-name-", i) }, exampleURL), 20, 20},
		{"less than 20 feeds", many[:19], one, 1, 0},
		{"only bad entries are left", many[:3], bad, 3, 3},
	} {
		h := newHeldList(t)
		h.look(test.before, true, nil)
		if got := h.look(test.after, true, nil); got != test.feeds {
			t.Errorf("%s: %d feeds, want %d", test.what, got, test.feeds)
		}
		lost := 0
		if held := h.status()[0].Held; held != nil {
			lost = held.Lost
		}
		if lost != test.lost {
			t.Errorf("%s: %d feeds are shown as lost, want %d", test.what, lost, test.lost)
		}
	}
}
