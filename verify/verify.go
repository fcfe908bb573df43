// Package verify compares two feeds, be they read from a URL or from a topic: what
// one has and the other has not, what stands elsewhere, and what differs.
//
// Both are read once, as streams, and what is held of them is bounded: an entity
// waits for its counterpart until [Window] others do. One that comes later than that
// counts as missing in one place and as extra in the other.
package verify

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
)

// Window is how many entities of each feed may wait for their counterparts. It
// takes about 100 bytes for each, and its ID.
const Window = 100_000

// Kind is a kind of difference.
type Kind string

// The kinds of difference, seen from the first feed.
const (
	Missing   Kind = "missing"   // the second feed does not have it
	Extra     Kind = "extra"     // the first feed does not have it
	Reordered Kind = "reordered" // both have it, in another order with others
	Different Kind = "different" // both have it, with other contents
)

// Difference is one entity that is not the same in both feeds.
type Difference struct {
	Kind Kind
	ID   string
	// First and Second are the entity's numbers in the feeds, from 0; -1 where it
	// is not.
	First, Second int
	// Parts says what differs, of "operation", "time", "headers" and "body".
	Parts []string
}

// Summary counts what was compared.
type Summary struct {
	First, Second                          int // entities
	Missing, Extra, Reordered, Differences int
}

// Same says whether there was no difference.
func (s Summary) Same() bool { return s.Missing+s.Extra+s.Reordered+s.Differences == 0 }

// Compare reads two feeds to their ends and tells of each difference, in about the
// order of the feeds. An error of either ends it.
//
// Entities are told by their IDs. Their times are compared in seconds, and their
// headers without regard to the case of names, to the order of different names, and
// to Content-Length, which formats add.
func Compare(first, second iter.Seq2[feed.Entity, error], tell func(Difference)) (Summary, error) {
	return compare(first, second, Window, tell)
}

func compare(first, second iter.Seq2[feed.Entity, error], window int, tell func(Difference)) (Summary, error) {
	c := comparison{tell: tell, seed: maphash.MakeSeed(), lastFirst: -1, lastSecond: -1}
	a, stopA := iter.Pull2(first)
	defer stopA()
	b, stopB := iter.Pull2(second)
	defer stopB()
	left := &side{next: a, waiting: map[string][]*print{}}
	right := &side{next: b, waiting: map[string][]*print{}}
	for !left.ended || !right.ended {
		for _, s := range []*side{left, right} {
			p, err := s.read(&c)
			if err != nil {
				return c.sum(left, right), err
			}
			if p == nil {
				continue
			}
			other, mine := right, left
			if s == right {
				other, mine = left, right
			}
			if q := other.take(p.id); q == nil {
				mine.wait(p)
			} else if s == left {
				c.match(p, q)
			} else {
				c.match(q, p)
			}
		}
		c.missing(left.beyond(window))
		c.extra(right.beyond(window))
	}
	c.missing(left.beyond(0))
	c.extra(right.beyond(0))
	return c.sum(left, right), nil
}

// print is what is kept of an entity.
type print struct {
	id     string
	number int
	parts  [4]uint64
	gone   bool // it has met its counterpart
}

var parts = [4]string{"operation", "time", "headers", "body"}

// side is one of the two feeds.
type side struct {
	next  func() (feed.Entity, error, bool)
	ended bool
	n     int
	// waiting has those that have met no counterpart, and order all of them since
	// the oldest.
	waiting map[string][]*print
	order   []*print
	count   int
}

func (s *side) read(c *comparison) (*print, error) {
	if s.ended {
		return nil, nil
	}
	e, err, ok := s.next()
	if err != nil {
		return nil, err
	}
	if !ok {
		s.ended = true
		return nil, nil
	}
	p := c.print(e)
	p.number = s.n
	s.n++
	return p, nil
}

func (s *side) wait(p *print) {
	s.waiting[p.id] = append(s.waiting[p.id], p)
	s.order = append(s.order, p)
	s.count++
}

// take returns the oldest that waits under an ID.
func (s *side) take(id string) *print {
	list := s.waiting[id]
	if len(list) == 0 {
		return nil
	}
	s.drop(list[0])
	return list[0]
}

func (s *side) drop(p *print) {
	p.gone = true
	s.count--
	if list := s.waiting[p.id]; len(list) > 1 {
		s.waiting[p.id] = list[1:]
	} else {
		delete(s.waiting, p.id)
	}
}

// beyond takes the oldest that wait, until n are left.
func (s *side) beyond(n int) (old []*print) {
	for len(s.order) > 0 && (s.order[0].gone || s.count > n) {
		if p := s.order[0]; !p.gone {
			s.drop(p)
			old = append(old, p)
		}
		s.order = s.order[1:]
	}
	return old
}

type comparison struct {
	tell    func(Difference)
	seed    maphash.Seed
	summary Summary
	// lastFirst and lastSecond are where the last ones met that were in order.
	lastFirst, lastSecond int
}

func (c *comparison) match(p, q *print) {
	d := Difference{ID: p.id, First: p.number, Second: q.number}
	if p.number < c.lastFirst || q.number < c.lastSecond {
		c.summary.Reordered++
		d.Kind = Reordered
		c.tell(d)
	} else {
		c.lastFirst, c.lastSecond = p.number, q.number
	}
	for i, part := range parts {
		if p.parts[i] != q.parts[i] {
			d.Parts = append(d.Parts, part)
		}
	}
	if d.Parts != nil {
		c.summary.Differences++
		d.Kind = Different
		c.tell(d)
	}
}

func (c *comparison) missing(list []*print) {
	for _, p := range list {
		c.summary.Missing++
		c.tell(Difference{Kind: Missing, ID: p.id, First: p.number, Second: -1})
	}
}

func (c *comparison) extra(list []*print) {
	for _, p := range list {
		c.summary.Extra++
		c.tell(Difference{Kind: Extra, ID: p.id, First: -1, Second: p.number})
	}
}

func (c *comparison) sum(left, right *side) Summary {
	c.summary.First, c.summary.Second = left.n, right.n
	return c.summary
}

// print keeps hashes of an entity's parts.
func (c *comparison) print(e feed.Entity) *print {
	fields := make(feed.Header, 0, len(e.Header))
	for _, f := range e.Header {
		f.Name = strings.ToLower(f.Name)
		switch f.Name {
		case "content-id", "last-modified", "operation-type", "content-length":
			continue
		}
		fields = append(fields, f)
	}
	slices.SortStableFunc(fields, func(a, b feed.Field) int { return cmp.Compare(a.Name, b.Name) })
	var headers maphash.Hash
	headers.SetSeed(c.seed)
	for _, f := range fields {
		// Neither has a zero byte.
		_, _ = headers.WriteString(f.Name + "\x00" + f.Value + "\x00")
	}
	return &print{id: strings.Clone(e.ID), parts: [4]uint64{
		maphash.String(c.seed, string(e.Op)), uint64(e.Modified.Unix()), headers.Sum64(), maphash.Bytes(c.seed, e.Body),
	}}
}
