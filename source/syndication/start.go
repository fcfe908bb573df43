package syndication

import (
	"fmt"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// Start is where the reading of a feed starts when there is no checkpoint yet.
// The zero Start is the beginning: everything that can be reached.
type Start struct {
	// Now publishes nothing of what the feed has at the first poll.
	Now bool
	// At publishes the entries that were updated at that time or later. For
	// those that do not say, it goes by their date of publication.
	At time.Time
}

// ParseStart reads a start position as the configuration writes it: beginning,
// now, or a time such as 2026-01-01T00:00:00Z.
func ParseStart(s string) (Start, error) {
	switch s {
	case "", "beginning":
		return Start{}, nil
	case "now":
		return Start{Now: true}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return Start{}, fmt.Errorf("start %q: want beginning, now, or a time such as 2026-01-01T00:00:00Z", s)
	}
	return Start{At: t.UTC()}, nil
}

// String returns the form that [ParseStart] reads.
func (s Start) String() string {
	switch {
	case s.Now:
		return "now"
	case !s.At.IsZero():
		return s.At.Format(time.RFC3339Nano)
	}
	return "beginning"
}

// UnmarshalText is [ParseStart].
func (s *Start) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStart(string(text))
	return err
}

// MarshalText is [Start.String].
func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// start does what has to be done at the first poll, if reading starts now. done
// says that there is nothing to publish.
func (r *turn) start(d *document) (done bool, err error) {
	if r.cur.Start == "" {
		return false, nil
	}
	r.cur.Start, r.cur.Rewalk = "", false
	if err := r.cur.skipAll(d); err != nil {
		return false, err
	}
	r.seen.addAll(d.seen.all())
	if older := r.s.profile.olderURL(&d.meta, d.dialect); older != "" && d.dialect != Paged {
		r.cur.add(older)
	}
	if this, n := d.meta.Link("this"); n > 0 && d.dialect == Snapshots {
		r.cur.add(withoutFragment(this.Href))
	}
	r.cur.settle(d)
	r.cur.Body, r.cur.Full, r.cur.Walked = d.hash, d.now.Unix(), d.now.Unix()
	r.cur.Hints = hintsOf(&d.meta)
	r.cur.Looks = d.looks
	return true, nil
}

// skipAll takes note of the entries of a document, so that none of them is taken
// for a new one later. It remembers those with the newest dates, and leaves out
// everything that is older.
func (cur *cursor) skipAll(d *document) error {
	impossible := func(why string) error {
		return feed.Permanent(fmt.Errorf("start: now is not possible for %s: %s; start from the beginning, or from a time", d.url, why))
	}
	if !d.window.whole || d.window.cut != nil {
		return impossible("its document is larger than the window")
	}
	items := slices.Clone(d.window.items)
	at := func(it *item) instant { return instantOf(it.Updated.Time) }
	slices.SortStableFunc(items, func(a, b *item) int {
		switch x, y := at(a), at(b); {
		case x == 0 && y != 0:
			return -1
		case y == 0 && x != 0:
			return 1
		default:
			return int(max(-1, min(1, y-x)))
		}
	})
	if len(items) > maxSeen || d.dialect == Paged && len(items) > 0 {
		oldest := at(items[min(len(items), maxSeen)-1])
		if oldest == 0 {
			return impossible("its entries have no dates to tell new ones by")
		}
		cur.Since = oldest
		items = items[:min(len(items), maxSeen)]
	}
	cur.Seen = nil
	for _, it := range items {
		cur.Seen = append(cur.Seen, seenKey(it.ID, it.hash)...)
	}
	return nil
}
