package kafka

import (
	"fmt"
	"testing"
)

// With many partitions the group does not wait for all swaps that would make shares more even.
func TestEvenOutIsBounded(t *testing.T) {
	t.Parallel()
	const partitions, members = 3000, 100
	d := division{feeds: make([]int, partitions), owner: map[int32]string{}}
	for n := range members { // all feeds are in partitions of few members
		d.feeds[n/10+n%10*members] = 10
	}
	for m := range members {
		var own []int32
		for n := m; n < partitions; n += members {
			own = append(own, int32(n))
		}
		d.add(fmt.Sprint(m), own)
	}
	before := d.total
	rated := d.evenOut()
	if limit := maxRated + partitions*partitions/members; rated > limit {
		t.Errorf("%d swaps were compared, want at most %d", rated, limit)
	}
	seen, feeds := map[int32]bool{}, 0
	for _, s := range d.shares {
		if len(s.partitions) != partitions/members {
			t.Errorf("member %s has %d partitions", s.member, len(s.partitions))
		}
		for _, n := range s.partitions {
			seen[n] = true
			feeds += d.feeds[n]
		}
	}
	if len(seen) != partitions || feeds != before {
		t.Errorf("%d of %d partitions are assigned, with %d of %d feeds", len(seen), partitions, feeds, before)
	}
}
