package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/fleet"
)

// scale returns the size of the simulated fleets.
func scale() (members, feeds int) {
	if testing.Short() {
		return 100, 20_000
	}
	return 1_000, 1_000_000
}

// TestSimulatedNATSFleet counts the messages of a large fleet whose members renew a key each and
// watch all of them.
func TestSimulatedNATSFleet(t *testing.T) {
	const beat, ttl = 4 * time.Second, 12 * time.Second // as in sink/nats
	members, _ := scale()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var published, delivered int
		watchers := members
		expired := make(chan time.Time, 1)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for n := range members {
			mine, kill := context.WithCancel(ctx)
			if n == 0 {
				time.AfterFunc(60*time.Second+time.Second, kill)
			}
			group.Go(func() {
				defer kill()
				time.Sleep(rand.N(beat))
				var key *time.Timer
				for ; mine.Err() == nil; time.Sleep(beat) {
					if key != nil {
						key.Stop()
					}
					key = time.AfterFunc(ttl, func() { expired <- time.Now() })
					mu.Lock()
					published, delivered = published+1, delivered+watchers
					mu.Unlock()
				}
				if ctx.Err() != nil {
					key.Stop()
				}
			})
		}
		time.Sleep(60*time.Second + time.Second)
		mu.Lock()
		t.Logf("%d members: %.0f messages per second to the bus, and %.0f from it", members, float64(published)/61, float64(delivered)/61)
		mu.Unlock()
		killed := time.Now()
		late := (<-expired).Sub(killed)
		t.Logf("a member that is killed is missed after %.1f s", late.Seconds())
		if late > ttl {
			t.Errorf("a killed member is missed after %v, want %v at most", late, ttl)
		}
		stop()
		group.Wait()
	})
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
