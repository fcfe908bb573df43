// Package verify compares two streams of entities that should be the same: a
// feed and its topic, or a feed and the feed that was made of its topic. It
// holds a bounded stretch of each, however long they are.
package verify

import (
	"fmt"
	"iter"

	"github.com/feedbridge/feedbridge/feed"
)

// DefaultLookahead is the default number of entities of each stream that [Compare] looks
// ahead. An entity takes about 500 bytes.
const DefaultLookahead = 10_000

// Kind is the way in which the second stream differs from the first.
type Kind string

// The kinds of difference. An entity that has been moved further than the lookahead
// reaches counts as missing in one place and extra in the other.
const (
	Missing   Kind = "missing"   // the second stream does not have the entity
	Extra     Kind = "extra"     // the first does not have it, or not so often
	Reordered Kind = "reordered" // it is in another place among those that both have
	Different Kind = "different" // it is in its place and not the same
)

// Difference is one entity that differs.
type Difference struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
	// First and Second are the entity's places in the streams, counted from 0;
	// nil where it is not.
	First  *int `json:"first,omitempty"`
	Second *int `json:"second,omitempty"`
	// Parts names the parts that differ: "operation", "time", "body", and
	// "header" with the header's name. It is also set for reordered entities.
	Parts []string `json:"parts,omitempty"`
}

// Summary counts the compared entities.
type Summary struct {
	// First and Second are how many entities were read of the streams.
	First  int `json:"first"`
	Second int `json:"second"`
	// Equal entities are the same, and in their places. A reordered entity counts
	// as different, too, if it is not the same.
	Equal     int `json:"equal"`
	Missing   int `json:"missing"`
	Extra     int `json:"extra"`
	Reordered int `json:"reordered"`
	Different int `json:"different"`
	// Complete reports whether both streams were compared to their ends.
	Complete bool `json:"complete"`
}

// Same reports whether no difference was found.
func (s Summary) Same() bool { return s.Missing+s.Extra+s.Reordered+s.Different == 0 }

// Compare compares two streams by the IDs of their entities. It reads at most lookahead
// entities ahead in each stream; [DefaultLookahead] if lookahead is 0. It calls
// report for each difference as it is found, and ends when that returns false,
// when both streams end, or with the first error of either.
//
// Compare ignores the order of headers with different names, which buses do not keep,
// the case of names, and a Content-Length that is the length of the body. Where
// neither stream has the other's next
// entity among those that were read ahead, the older of the two is the one that is missing in
// the other.
func Compare(first, second iter.Seq2[feed.Entity, error], lookahead int, report func(Difference) bool) (Summary, error) {
	if lookahead <= 0 {
		lookahead = DefaultLookahead
	}
	c := &comparison{a: newSide(first), b: newSide(second), lookahead: lookahead, report: report}
	defer c.a.stop()
	defer c.b.stop()
	for !c.ended {
		if err := c.compareNext(); err != nil {
			return c.summary(), err
		}
	}
	return c.summary(), nil
}

type comparison struct {
	a, b      *side
	lookahead int
	report    func(Difference) bool
	sum       Summary
	ended     bool
}

func (c *comparison) summary() Summary {
	c.sum.First, c.sum.Second = c.a.read, c.b.read
	return c.sum
}

// compareNext settles the next entity of one stream or of both.
func (c *comparison) compareNext() error {
	a, err := c.a.firstUnmatched()
	if err != nil {
		return err
	}
	b, err := c.b.firstUnmatched()
	switch {
	case err != nil:
		return err
	case a == nil && b == nil:
		c.sum.Complete, c.ended = true, true
	case a == nil:
		c.reportExtra(b)
	case b == nil:
		c.missing(a)
	case a.id == b.id:
		c.comparePair(a, b, false)
	default:
		return c.matchDifferentIDs(a, b)
	}
	return nil
}

// matchDifferentIDs settles two entities that have other IDs, by looking for each in the
// other stream. Of two that are in both, the one whose fellow is further away is
// the one that was moved.
func (c *comparison) matchDifferentIDs(a, b *item) error {
	if err := c.a.readUnmatched(c.lookahead); err != nil {
		return err
	}
	if err := c.b.readUnmatched(c.lookahead); err != nil {
		return err
	}
	likeA, likeB := c.b.findByID(a.id), c.a.findByID(b.id)
	switch {
	case likeA != nil && likeB != nil && likeA.number-b.number >= likeB.number-a.number:
		c.comparePair(a, likeA, true)
	case likeA != nil && likeB != nil:
		c.comparePair(likeB, b, true)
	case likeB != nil, likeA == nil && !b.modified.Before(a.modified):
		c.missing(a)
	default:
		c.reportExtra(b)
	}
	return nil
}

func (c *comparison) missing(a *item) {
	c.a.markMatched(a)
	c.sum.Missing++
	c.reportDifference(Difference{Kind: Missing, ID: a.id, First: &a.number})
}

func (c *comparison) reportExtra(b *item) {
	c.b.markMatched(b)
	c.sum.Extra++
	c.reportDifference(Difference{Kind: Extra, ID: b.id, Second: &b.number})
}

// comparePair compares what both streams have.
func (c *comparison) comparePair(a, b *item, reordered bool) {
	c.a.markMatched(a)
	c.b.markMatched(b)
	d := Difference{Kind: Different, ID: a.id, First: &a.number, Second: &b.number, Parts: a.compare(b)}
	if len(d.Parts) > 0 {
		c.sum.Different++
	}
	switch {
	case reordered:
		d.Kind = Reordered
		c.sum.Reordered++
	case len(d.Parts) == 0:
		c.sum.Equal++
		return
	}
	c.reportDifference(d)
}

func (c *comparison) reportDifference(d Difference) {
	c.ended = !c.report(d)
}

// String is the difference in a line.
func (d Difference) String() string {
	text := fmt.Sprintf("%s %s", d.Kind, d.ID)
	if d.First != nil {
		text += fmt.Sprintf(", number %d of the first", *d.First)
	}
	if d.Second != nil {
		text += fmt.Sprintf(", number %d of the second", *d.Second)
	}
	for i, part := range d.Parts {
		if i == 0 {
			text += ": not the same "
		} else {
			text += ", "
		}
		text += part
	}
	return text
}
