package bridge_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// endless is a feed with any number of entities of that many bytes. Its batches are as large as
// the limits allow.
type endless int

func (size endless) Next(_ context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	at, bytes := number(after), 0
	b := feed.Batch{More: true}
	for !limits.AreReached(len(b.Entities), bytes) {
		e := feed.Entity{ID: strconv.Itoa(at + len(b.Entities)), Op: feed.Put}
		e.Body = make([]byte, int(size)-e.Size())
		b.Entities, bytes = append(b.Entities, e), bytes+e.Size()
	}
	b.Cursor = cursorAt(at + len(b.Entities))
	return b, nil
}

func (endless) Release() {}

// link is the way to a bus that takes a time for each commit and aborts those that take longer
// than its timeout.
type link struct {
	bridge.Sink
	takes   func(bytes int) time.Duration
	commits []int // bytes of those that succeeded, in order
	aborted []int // bytes
	states  diary
}

const busTimeout = 10 * time.Second

func (l *link) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	bytes := feed.Batch{Entities: entities}.Size()
	took := l.takes(bytes)
	time.Sleep(min(took, busTimeout))
	if took > busTimeout {
		l.aborted = append(l.aborted, bytes)
		return errors.New("no answer")
	}
	l.commits = append(l.commits, bytes)
	return l.Sink.Commit(ctx, entities, cp)
}

func (l *link) bytes() (n int) {
	for _, bytes := range l.commits {
		n += bytes
	}
	return n
}

// publish copies a backlog of entities of that size over the link for a time.
func (l *link) publish(t *testing.T, size endless, d time.Duration) {
	var topic sinktest.Memory
	l.Sink = topic.Open(sinktest.Faults{})
	b := newBridge(nil, l)
	b.Open = func(context.Context, string) (feed.Source, string, error) { return size, "test", nil }
	b.Limits, b.ReadAhead = feed.Limits{Bytes: 4 << 20}, 16<<20
	b.Observer = &l.states
	stop := start(t, b)
	time.Sleep(d)
	stop()
}

// perSecond returns the time that bytes take at a rate.
func perSecond(bytes, rate int) time.Duration {
	return time.Duration(float64(bytes) / float64(rate) * float64(time.Second))
}

func TestCommitsToAFastBusBecomeTheLargest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{takes: func(bytes int) time.Duration { return 5*time.Millisecond + perSecond(bytes, 100<<20) }}
		l.publish(t, 1000, time.Second)
		// 128 KiB, doubled five times.
		if len(l.commits) < 10 || slices.Min(l.commits[6:len(l.commits)-1]) < 4<<20-256<<10 || slices.Max(l.commits) > 4<<20 {
			t.Errorf("commits of %v", l.commits)
		}
	})
}

// A commit that is aborted uses the link for nothing.
func TestCommitsToASlowBusEndInTime(t *testing.T) {
	for name, test := range map[string]struct {
		rate  int // bytes per second
		used  int // percent of the rate
		most  int // bytes of the later commits, in seconds of the rate
		waits func() func(bytes int) time.Duration
	}{
		"40 kB/s": {40_000, 95, 2, nil},
		"1 MB/s":  {1_000_000, 95, 2, nil},
		"4 kB/s":  {4000, 90, 2, nil},
		"40 kB/s after a burst": {40_000, 95, 2, func() func(int) time.Duration {
			free, last := 400_000, time.Now()
			return func(bytes int) time.Duration {
				free, last = min(400_000, free+int(40_000*time.Since(last).Seconds()))-bytes, time.Now()
				return perSecond(max(0, -free)-bytes, 40_000)
			}
		}},
		"40 kB/s after a third commit that suggests a fixed time": {40_000, 95, 2, func() func(int) time.Duration {
			n := 0
			return func(bytes int) time.Duration {
				n++
				switch linear := perSecond(bytes, 40_000); n {
				case 1, 2:
					return -linear
				case 3:
					return 5500*time.Millisecond - linear
				}
				return 0
			}
		}},
		"40 kB/s and half a second for each commit": {40_000, 50, 2, func() func(int) time.Duration {
			return func(int) time.Duration { return 500 * time.Millisecond }
		}},
		"40 kB/s and two seconds for each commit": {40_000, 50, 5, func() func(int) time.Duration {
			return func(int) time.Duration { return 2 * time.Second }
		}},
		"40 kB/s with waits of up to 3 s": {40_000, 30, 7, func() func(int) time.Duration {
			n := 0
			return func(int) time.Duration {
				n++
				return time.Duration(n%4) * time.Second
			}
		}},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			wait := func(int) time.Duration { return 0 }
			if test.waits != nil {
				wait = test.waits()
			}
			l := &link{takes: func(bytes int) time.Duration {
				return 5*time.Millisecond + perSecond(bytes, test.rate) + wait(bytes)
			}}
			const seconds = 300
			l.publish(t, 630, seconds*time.Second)
			if len(l.aborted) > 1 {
				t.Errorf("%d commits were aborted: %v", len(l.aborted), l.aborted)
			}
			if got, want := l.bytes(), test.rate*seconds; got < want*test.used/100 {
				t.Errorf("%d bytes were published, and the link could carry %d", got, want)
			}
			if late := l.commits[len(l.commits)/2:]; slices.Max(late) > test.most*test.rate {
				t.Errorf("late commits have %v bytes", late)
			}
		}))
	}
}

func TestCommitsToADistantBusAreLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{takes: func(int) time.Duration { return 2 * time.Second }}
		l.publish(t, 1000, time.Minute)
		if len(l.aborted) > 0 || slices.Min(l.commits[12:]) < 2<<20-256<<10 || l.bytes() < 60<<20 {
			t.Errorf("commits of %v", l.commits)
		}
	})
}

func TestTheSizeOfCommitsFollowsAChangeOfTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, rate := time.Now(), 100<<20
		var slow, fast int // number of commits when the rate changed
		l := &link{}
		l.takes = func(bytes int) time.Duration {
			switch at := time.Since(begin); {
			case at > 2*time.Minute && fast == 0:
				fast, rate = len(l.commits), 100<<20
			case at > 10*time.Second && slow == 0:
				slow, rate = len(l.commits), 40_000
			}
			return 5*time.Millisecond + perSecond(bytes, rate)
		}
		l.publish(t, 1000, 2*time.Minute+2*time.Second)
		// The one of 4 MiB cannot end in time, nor can the one of a tenth of that.
		if len(l.aborted) > 2 {
			t.Errorf("%d commits were aborted: %v", len(l.aborted), l.aborted)
		}
		if commits := l.commits[slow+2 : fast]; len(commits) < 20 || slices.Max(commits) > 130_000 {
			t.Errorf("commits at 40 kB/s: %v", commits)
		}
		if commits := l.commits[fast:]; slices.Max(commits) < 4<<20-256<<10 {
			t.Errorf("commits at 100 MiB/s: %v", commits)
		}
	})
}

// An entity cannot be divided. The bridge goes on with it, and says what helps.
func TestAnEntityThatIsTooLargeForTheRateIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{takes: func(bytes int) time.Duration { return perSecond(bytes, 10_000) }}
		l.publish(t, 150_000, 10*time.Minute)
		named := func(s bridge.Status) bool {
			return s.Err != nil && strings.Contains(s.Err.Error(), "one entity of 150000 bytes")
		}
		if len(l.commits) > 0 || !slices.ContainsFunc(l.states.states, named) {
			t.Errorf("%d commits, states %v", len(l.commits), l.states.states)
		}
	})
}
