//go:build integration && unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// manyFeeds is for what is a matter of chance with few feeds.
const manyFeeds = 300

// someFeeds returns the number of feeds for tests of what happens to each of them.
func someFeeds() int {
	if testing.Short() {
		return 60
	}
	return manyFeeds
}

func TestFleetSharesTheFeeds(t *testing.T) {
	onEachBus(t, func(t *testing.T, bus fleetBus) {
		f, owners := startThree(t, bus, manyFeeds)
		load := map[int]int{}
		for _, c := range owners {
			load[c]++
		}
		for c, n := range load {
			if n < manyFeeds/3*8/10 || n > manyFeeds/3*11/10 { // if two have 110%, the third has 80%
				t.Errorf("copy %d runs %d of %d feeds, want a third, and 10%% more at most", c, n, manyFeeds)
			}
		}

		intervals := 8
		if testing.Short() {
			intervals = 3
		}
		f.awaitPolls(1) // by then no copy polls what it ran when it was alone
		took := f.awaitPolls(intervals)
		sum, most := 0, 0
		for name, feed := range f.feeds {
			for c, n := range feed.takePolls() {
				sum, most = sum+n, max(most, n)
				if c != owners[name] {
					t.Errorf("%s was polled %d times by copy %d, and copy %d runs it", name, n, c, owners[name])
				}
			}
		}
		rate := float64(sum) / manyFeeds / (float64(took) / float64(fleetEvery))
		t.Logf("polls per interval: %.3f on average; in %v a feed had %d to %d", rate, took.Round(time.Millisecond), intervals, most)
		// Two copies would poll twice as often. Polls of the interval before may have been late, which
		// is a larger part of fewer intervals.
		limit := 1.1
		if testing.Short() {
			limit = 1.4
		}
		if rate > limit {
			t.Errorf("upstreams are polled %.2f times per interval, want once", rate)
		}
		if now, ok := f.owners(); !ok || !maps.Equal(now, owners) {
			t.Error("feeds have moved though no copy joined or left")
		}

		f.grow()
		f.start("")
		moved := 0
		for feed, c := range f.awaitOwners("four copies share the feeds") {
			if c != owners[feed] {
				moved++
			}
		}
		t.Logf("%d of %d feeds have moved", moved, manyFeeds)
		if moved > manyFeeds/4+manyFeeds/10 {
			t.Errorf("%d of %d feeds have moved, want at most a quarter and 10%%", moved, manyFeeds)
		}
		f.grow()
		f.checkTopics()
	})
}

func TestFleetRunsTheFeedsOfACopyThatStops(t *testing.T) {
	onEachBus(t, func(t *testing.T, bus fleetBus) {
		f, _ := startThree(t, bus, someFeeds())
		stop := f.keepGrowing()
		f.awaitPolls(2)
		victim := f.copies[1]
		feeds := f.running(victim)
		began := time.Now()
		must.Succeed(t, victim.cmd.Process.Signal(syscall.SIGTERM))
		f.remove(victim)
		if err := victim.cmd.Wait(); err != nil {
			t.Error(err)
		}
		ended := time.Since(began)
		t.Logf("the copy has ended after %v", ended.Round(10*time.Millisecond))
		ended += f.awaitFeeds(fmt.Sprintf("after its end the others run its %d feeds", len(feeds)), feeds)
		t.Logf("%v after SIGTERM the others run its feeds (goal 3s)", ended.Round(10*time.Millisecond))
		stop()
		f.grow()
		f.awaitOwners("two copies share the feeds")
		f.checkTopics()
	})
}

func TestFleetIsUpgradedCopyByCopy(t *testing.T) {
	onEachBus(t, func(t *testing.T, bus fleetBus) {
		f, _ := startThree(t, bus, someFeeds())
		old := slices.Clone(f.copies)
		maps.Copy(f.feeds, f.spare)
		gone := f.feeds["feed-000"]
		delete(f.feeds, "feed-000")
		for _, c := range old {
			f.grow()
			must.Succeed(t, c.cmd.Process.Signal(syscall.SIGTERM))
			f.remove(c)
			_ = c.cmd.Wait()
			f.start("log: {level: debug}\n")
		}
		f.awaitOwners("three new copies share the new feeds")
		f.grow()
		f.checkTopics()
		gone.takePolls()
		f.awaitPolls(2)
		if polls := gone.takePolls(); len(polls) > 0 {
			t.Errorf("a feed is polled that is not configured any more: %v", polls)
		}
	})
}
