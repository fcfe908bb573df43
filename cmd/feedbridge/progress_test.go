package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// batch is one of n entities of 1,000 bytes, spread over pages.
func batch(modified time.Time, more bool, pages ...string) feed.Batch {
	b := feed.Batch{More: more, Newest: modified.Add(90 * time.Second)}
	for _, page := range pages {
		b.Entities = append(b.Entities, feed.Entity{ID: "x", Modified: modified, Body: make([]byte, 1000-len(page)), Page: page})
	}
	b.Bytes = b.Size()
	return b
}

func TestProgressShowsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &progress{feeds: 1}
		want := func(line string) {
			t.Helper()
			if got := p.statusText(); got != line {
				t.Errorf("got  %q\nwant %q", got, line)
			}
		}
		noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		enter := func(state bridge.State, count uint64, in time.Duration) {
			p.Entered(bridge.Status{State: state, Checkpoint: checkpoint.Checkpoint{Count: count}, Until: time.Now().Add(in)})
		}
		enter(bridge.Starting, 0, 0)
		want("0 pages  0 entities  0.0 MB  waiting for the bus")
		enter(bridge.Reading, 500, 0)
		want("0 pages  0 entities  (500 in all)  0.0 MB  reading")
		p.Processed(feed.Batch{More: true}, 0)
		want("0 pages  0 entities  (500 in all)  0.0 MB  searching the position to start at")
		p.Processed(batch(noon, true, "a", "a"), 0)
		want("1 page  2 entities  (502 in all)  0.0 MB  lag 1m30s")
		p.Processed(batch(noon, true, "a", "b", "b"), 0)
		want("2 pages  5 entities  (505 in all)  0.0 MB  lag 1m30s")
		last := batch(noon.Add(90*time.Second), false, "c")
		last.Duplicates = 1
		p.Processed(last, 0)
		enter(bridge.Idle, 506, time.Second)
		want("3 pages  6 entities  (506 in all)  0.0 MB  1 duplicate left out  caught up")
		enter(bridge.Retrying, 506, 12*time.Second)
		want("3 pages  6 entities  (506 in all)  0.0 MB  1 duplicate left out  retrying, next attempt in 12s")
		enter(bridge.Standby, 506, time.Second)
		want("3 pages  6 entities  (506 in all)  0.0 MB  1 duplicate left out  another copy publishes")
		enter(bridge.Stopped, 506, 0)
		want("3 pages  6 entities  (506 in all)  0.0 MB  1 duplicate left out  stopped")
	})
}

// The time left is computed from how fast the lag has shrunk since the feed fell behind.
func TestProgressShowsTheTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &progress{feeds: 1}
		noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		p.Processed(batch(noon, false, "a"), 0)
		time.Sleep(10 * time.Second)
		p.Processed(batch(noon.Add(time.Minute), true, "b"), 0)
		if got, want := p.statusText(), "2 pages  2 entities  0.0 MB  0.1/s  lag 1m30s, 15s left"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// With several feeds it is unknown which of them a call is about, so neither pages nor lag are
// shown.
func TestProgressOfSeveralFeedsIsTheirSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &progress{feeds: 2}
		for range 600 {
			p.Processed(batch(time.Now(), true, "a"), 0)
			p.Processed(batch(time.Now(), false, "b"), 0)
		}
		p.Entered(bridge.Status{State: bridge.Halted})
		if got, want := p.statusText(), "2 feeds  1200 entities  1.2 MB"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
