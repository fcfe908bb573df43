package fleet_test

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"testing"

	"github.com/feedbridge/feedbridge/internal/fleet"
)

// scale returns the size of the simulated fleets.
func scale() (members, feeds int) {
	if testing.Short() {
		return 100, 20_000
	}
	return 300, 100_000
}

// TestSimulatedAssignment computes who runs the feeds of a large fleet, as every member does
// after each change.
func TestSimulatedAssignment(t *testing.T) {
	members, feeds := scale()
	list := names("shop.feed", feeds)
	copies := names("copy", members+1)
	owners := func(what string, members []string, before []string) []string {
		owner, now, load, moved := fleet.Balance(alike(members, list)), make([]string, feeds), map[string]int{}, 0
		for n, topic := range list {
			now[n] = owner(topic)
			load[now[n]]++
			if before != nil && before[n] != now[n] {
				moved++
			}
		}
		most, least := 0, math.MaxInt
		for _, n := range load {
			most, least = max(most, n), min(least, n)
		}
		t.Logf("%-14s %d of %d feeds move; feeds of a member: %d to %d", what, moved, feeds, least, most)
		even := float64(feeds) / float64(len(members))
		if len(load) != len(members) || float64(most) > math.Ceil(even*(100+fleet.Slack)/100) {
			t.Errorf("%s: %d of %d members have feeds, one has %d, even is %.0f", what, len(load), len(members), most, even)
		}
		if float64(moved) > 2*even {
			t.Errorf("%s: %d feeds move, want twice the share of a member at most, which is %.0f", what, moved, even)
		}
		return now
	}
	first := owners("at the start", copies[:members], nil)
	second := owners("one more", copies, first)
	owners("one leaves", copies[1:], second)
}

// BenchmarkAssignment measures how long one assignment takes, and what it holds in memory.
func BenchmarkAssignment(b *testing.B) {
	for _, size := range []struct{ members, feeds int }{{10, 10_000}, {100, 100_000}, {1_000, 1_000_000}} {
		for _, sets := range []int{1, 2} {
			b.Run(fmt.Sprintf("%d-members-%d-feeds-%d-sets", size.members, size.feeds, sets), func(b *testing.B) {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				list, copies := names("shop.feed", size.feeds), names("copy", size.members)
				members := alike(copies, list)
				if sets == 2 {
					maps.Copy(members, alike(copies[:size.members/2], list[:size.feeds*9/10]))
				}
				list = nil
				owner := fleet.Balance(members)
				runtime.GC()
				runtime.ReadMemStats(&after)
				for b.Loop() {
					owner = fleet.Balance(members)
				}
				b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MiB")
				runtime.KeepAlive(owner)
			})
		}
	}
}
