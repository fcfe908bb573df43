package bridge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// pollTimes records the polls of many feeds.
type pollTimes struct {
	mu    sync.Mutex
	begin time.Time
	all   []time.Duration
	feeds map[string][]time.Duration
}

func (p *pollTimes) add(feed string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.feeds == nil {
		p.feeds = map[string][]time.Duration{}
	}
	at := time.Since(p.begin)
	p.all = append(p.all, at)
	p.feeds[feed] = append(p.feeds[feed], at)
}

// most returns the largest number of polls in any of the seconds from and to.
func (p *pollTimes) most(from, to time.Duration) (most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seconds := map[time.Duration]int{}
	for _, at := range p.all {
		if second := at.Truncate(time.Second); second >= from && second < to {
			seconds[second]++
			most = max(most, seconds[second])
		}
	}
	return most
}

// count returns the number of all polls so far, and the times of those of one feed.
func (p *pollTimes) count(feed string) (all int, of []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all), slices.Clone(p.feeds[feed])
}

// startMany starts that many feeds, in the order in which a daemon starts them.
func startMany(t *testing.T, n int, change func(*bridge.Bridge)) (polls *pollTimes, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var stopped sync.WaitGroup
	polls = &pollTimes{begin: time.Now()}
	pacer, bridges := bridge.NewPacer(), []*bridge.Bridge{}
	for i := range n {
		name := fmt.Sprintf("feed-%d", i)
		b := newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			polls.add(name)
			return feed.Batch{Cursor: after}, nil
		}), new(sinktest.Memory).Open(sinktest.Faults{}))
		b.Feed, b.Every, b.Pacer = name, time.Minute, pacer
		if change != nil {
			change(b)
		}
		bridges = append(bridges, b)
	}
	slices.SortFunc(bridges, func(a, b *bridge.Bridge) int {
		return cmp.Compare(a.NextPoll(polls.begin).UnixNano(), b.NextPoll(polls.begin).UnixNano())
	})
	for _, b := range bridges {
		stopped.Add(1)
		b.Start(ctx, stopped.Done)
	}
	return polls, func() {
		cancel()
		stopped.Wait()
	}
}

func TestAFewFeedsStartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls, stop := startMany(t, 10, nil)
		time.Sleep(time.Second)
		if got := polls.most(0, time.Second); got != 10 {
			t.Errorf("%d of 10 feeds were polled in the first second", got)
		}
		stop()
	})
}

// mostIn returns the largest number of polls in any window, wherever it begins, of those that began
// between from and to.
func (p *pollTimes) mostIn(window, from, to time.Duration) (most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.all)
	first := 0
	for i, at := range p.all {
		for p.all[first] <= at-window || p.all[first] < from {
			if first++; first > i {
				break
			}
		}
		if at < to {
			most = max(most, i-first+1)
		}
	}
	return most
}

// First polls keep to the places of the Pacer. Few feeds are polled twice before each was polled
// once, so the start is no more load than polls are. The times of later polls depend on hashes and
// jitter. Their number in a window is about that of a Poisson process with as many in the mean,
// whose standard deviation is the root of that.
func TestManyFeedsStartSpread(t *testing.T) {
	feeds := 10_000
	if testing.Short() {
		feeds = 2_000
	}
	synctest.Test(t, func(t *testing.T) {
		polls, stop := startMany(t, feeds, nil)
		time.Sleep(10 * time.Minute)
		stop()
		started := time.Duration(feeds) * time.Second / 150
		first := &pollTimes{}
		for name, at := range polls.feeds {
			first.all = append(first.all, at[0])
			if at[0] > started {
				t.Errorf("%s was polled first after %v, want %v at most", name, at[0], started)
			}
			for i := range at[1:] {
				least, most := 50*time.Second, 70*time.Second
				if i == 0 {
					least, most = 25*time.Second, 95*time.Second
				}
				if wait := at[i+1] - at[i]; wait < least || wait > most {
					t.Errorf("%s was polled %v after poll %d, want about a minute", name, wait, i)
				}
			}
		}
		if len(polls.feeds) != feeds {
			t.Errorf("%d of %d feeds were polled", len(polls.feeds), feeds)
		}
		if most := first.mostIn(time.Second, 0, time.Hour); most > 151 {
			t.Errorf("%d feeds were polled first in one second, want 151 at most", most)
		}
		even := max(5*150, float64(feeds)/12)
		if most := polls.mostIn(5*time.Second, 0, 10*time.Minute); float64(most) > even+6*math.Sqrt(even) {
			t.Errorf("%d polls in 5 seconds, want about %.0f", most, even)
		}
	})
}

func TestManyFeedsGoOnSpreadAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 1_500
		bus := newFlakyBus()
		bus.set(true)
		polls, stop := startMany(t, feeds, func(b *bridge.Bridge) {
			b.Sink = new(sinktest.Memory).Open(sinktest.Faults{Resume: func() error {
				if bus.isDown() {
					return errors.New("no answer")
				}
				return nil
			}})
			b.Reconnected = bus.Reconnected
		})
		time.Sleep(10 * time.Minute)
		bus.set(false)
		time.Sleep(11 * time.Second)
		stop()
		if got := len(polls.feeds); got != feeds {
			t.Errorf("%d of %d feeds were polled within 11 s of the reconnect", got, feeds)
		}
		if most := polls.most(0, time.Hour); most > 151 {
			t.Errorf("%d polls in one second, want 151 at most", most)
		}
	})
}

// A connection that fails again and again must not use up the places of hours.
func TestManyReconnectsDelayNoFeedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 1_500
		bus := newFlakyBus()
		var failing sinktest.Faults
		failing.Resume = func() error {
			if bus.isDown() {
				return errors.New("no answer")
			}
			return nil
		}
		polls, stop := startMany(t, feeds, func(b *bridge.Bridge) {
			b.Every = time.Second
			b.Sink, b.Reconnected = new(sinktest.Memory).Open(failing), bus.Reconnected
		})
		time.Sleep(20 * time.Second)
		bus.set(true)
		time.Sleep(time.Minute)
		for range 100 {
			bus.announce()
			time.Sleep(2 * time.Second)
		}
		bus.set(false)
		back := time.Since(polls.begin)
		time.Sleep(11 * time.Second)
		stop()
		if at := polls.feeds["feed-0"]; at[len(at)-1] < back {
			t.Error("a feed was not polled within 11 s after the last of many reconnects")
		}
	})
}

// A command does not wait for the feed's place.
func TestACommandEndsTheDelayOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 1_500
		var last *bridge.Bridge
		_, stop := startMany(t, feeds, func(b *bridge.Bridge) {
			if b.Feed == "feed-0" {
				last = b
			}
		})
		begin := time.Now()
		if _, err := last.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("a poll took %v", took)
		}
		stop()
	})
}

// opens returns a Bridge.Open of that source.
func opens(source feed.Source) func(context.Context, string) (feed.Source, string, error) {
	return func(context.Context, string) (feed.Source, string, error) { return source, "test", nil }
}

// Places alone would let feeds start that then wait for the bus or for requests of others, each with
// its goroutines.
func TestFeedsThatStartSlowlyHoldOthersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds, took = 3000, 3 * time.Second
		var mu sync.Mutex
		now, most, polled := 0, 0, 0
		_, stop := startMany(t, feeds, func(b *bridge.Bridge) {
			b.Every = time.Hour
			b.Open = opens(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
				mu.Lock()
				now++
				polled++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(took)
				mu.Lock()
				now--
				mu.Unlock()
				return feed.Batch{Cursor: after}, nil
			}))
		})
		time.Sleep(5 * time.Minute)
		stop()
		mu.Lock()
		defer mu.Unlock()
		if most != 400 {
			t.Errorf("%d feeds were starting at a time, want 400", most)
		}
		if polled < feeds {
			t.Errorf("%d of %d feeds have started", polled, feeds)
		}
	})
}

// Feeds with a backlog, and those whose server does not answer, do not stop others.
func TestFeedsThatStartForHoursLetOthersStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 1000
		var mu sync.Mutex
		begun := 0
		_, stop := startMany(t, feeds, func(b *bridge.Bridge) {
			b.Open = opens(sourceFunc(func(ctx context.Context, _ feed.Cursor) (feed.Batch, error) {
				mu.Lock()
				begun++
				mu.Unlock()
				<-ctx.Done()
				return feed.Batch{}, ctx.Err()
			}))
		})
		time.Sleep(time.Minute)
		mu.Lock()
		if begun != feeds {
			t.Errorf("%d of %d feeds have begun to read", begun, feeds)
		}
		mu.Unlock()
		stop()
	})
}

// countedCommits calls commit before each commit.
type countedCommits struct {
	bridge.Sink
	commit func()
}

func (s countedCommits) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	s.commit()
	return s.Sink.Commit(ctx, entities, cp)
}

// startCommitting starts feeds that have one entity each, whose commit takes a while. It returns the
// largest number of commits at a time in a period, and how many were begun.
func startCommitting(t *testing.T, feeds int, took, period time.Duration) (most, begun int) {
	var mu sync.Mutex
	now := 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		now += n
		begun += max(n, 0)
		most = max(most, now)
	}
	_, stop := startMany(t, feeds, func(b *bridge.Bridge) {
		b.Every = 24 * time.Hour
		b.Open = opens(sourceFunc(func(context.Context, feed.Cursor) (feed.Batch, error) {
			return feed.Batch{Entities: sinktest.Entities(0, 1), Cursor: feed.Cursor("1")}, nil
		}))
		b.Sink = countedCommits{b.Sink, func() {
			count(1)
			time.Sleep(took)
			count(-1)
		}}
	})
	time.Sleep(period)
	stop()
	return most, begun
}

// A bus may need longer for the first commits than feeds would otherwise take to start. Feeds that
// started meanwhile would only wait for it, each with its entities and goroutines.
func TestFirstCommitsThatAreSlowHoldOthersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 3000
		most, begun := startCommitting(t, feeds, 10*time.Second, 5*time.Minute)
		if most != 400 {
			t.Errorf("%d feeds were in their first commit at a time, want 400", most)
		}
		if begun != feeds {
			t.Errorf("%d of %d feeds have committed", begun, feeds)
		}
	})
}

// A bus that does not answer keeps the feeds of others from starting for a while only.
func TestFirstCommitsThatHangLetOthersStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 1000
		if _, begun := startCommitting(t, feeds, time.Hour, 2*time.Minute); begun != feeds {
			t.Errorf("%d of %d feeds have begun their first commit", begun, feeds)
		}
	})
}

// A feed has started with its first commit, however much it has to read after that.
func TestFeedsThatHaveCommittedLetOthersStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 1000
		var mu sync.Mutex
		begun := 0
		_, stop := startMany(t, feeds, func(b *bridge.Bridge) {
			b.Open = opens(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
				if after == nil {
					return feed.Batch{Entities: sinktest.Entities(0, 1), Cursor: feed.Cursor("1"), More: true}, nil
				}
				<-ctx.Done()
				return feed.Batch{}, ctx.Err()
			}))
			b.Sink = countedCommits{b.Sink, func() {
				mu.Lock()
				defer mu.Unlock()
				begun++
			}}
		})
		time.Sleep(20 * time.Second)
		stop()
		if begun != feeds {
			t.Errorf("%d of %d feeds have committed", begun, feeds)
		}
	})
}

// heldSink does not answer Resume for a while.
type heldSink struct {
	bridge.Sink
	resumed atomic.Bool
}

func (s *heldSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	s.resumed.Store(true)
	time.Sleep(10 * time.Second)
	return s.Sink.Resume(ctx)
}

// A feed that waits because too many are starting reports when it tries again.
func TestAFeedThatWaitsForItsStartReportsUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sinks []*heldSink
		var seen []*diary
		_, stop := startMany(t, 500, func(b *bridge.Bridge) {
			sink, d := &heldSink{Sink: b.Sink}, &diary{}
			b.Sink, b.Observer = sink, d
			sinks, seen = append(sinks, sink), append(seen, d)
		})
		defer stop()
		waited := 0
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for i, d := range seen {
				if sinks[i].resumed.Load() {
					continue
				}
				waited++
				if s := d.last(); s.State != bridge.Starting || !s.Until.After(time.Now()) {
					t.Fatalf("a feed that waits is %s, and reports a time %v ago", s.State, time.Since(s.Until))
				}
			}
		}
		if waited == 0 {
			t.Error("no feed waited")
		}
	})
}

// The feeds of a host do not make their first polls in a burst, those of others do not wait for them, and a feed that is
// added later is polled at once.
func TestFeedsOfAHostStartOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const host = 100
		added := 0
		polls, stop := startMany(t, host+1, func(b *bridge.Bridge) {
			b.Every, b.StartGap, b.Host = 10*time.Minute, time.Second, "shop.example.com:443"
			if added++; added > host {
				b.Host = "other.example.com:443"
			}
		})
		time.Sleep(2 * time.Second)
		if _, first := polls.count(fmt.Sprintf("feed-%d", host)); len(first) != 1 || first[0] > time.Second {
			t.Errorf("the feed of another host was polled at %v", first)
		}
		time.Sleep(2 * time.Minute)
		all, _ := polls.count("")
		if most := polls.most(0, 2*time.Minute); all != host+1 || most > 13 {
			t.Errorf("%d polls, and %d in one second", all, most)
		}
		time.Sleep(4 * time.Hour)
		if most := polls.most(time.Hour, 4*time.Hour); most > 6 {
			t.Errorf("%d polls in one second later", most)
		}
		stop()
	})
}

// Feeds of a host that asks for the same time to the next poll, and that were polled together, do not stay together.
func TestFeedsThatAreFreshForTheSameTimeDoNotStayTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		polls := &pollTimes{begin: time.Now()}
		_, stop := startMany(t, 100, func(b *bridge.Bridge) {
			b.Every, b.Pacer = 10*time.Minute, nil
			src := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
				polls.add(b.Feed)
				return feed.Batch{Cursor: after, Fresh: time.Hour}, nil
			})
			b.Open = func(context.Context, string) (feed.Source, string, error) { return src, "test", nil }
		})
		time.Sleep(5 * time.Hour)
		if first, later := polls.most(0, time.Minute), polls.most(time.Hour, 5*time.Hour); first != 100 || later > 6 {
			t.Errorf("%d polls in the first second, and %d in one later", first, later)
		}
		stop()
	})
}

// A host that has refused requests gets no more polls than it allows.
func TestSpacingOfPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		polls, stop := startMany(t, 10, func(b *bridge.Bridge) {
			b.Spacing = func() time.Duration { return 10 * time.Minute }
		})
		time.Sleep(10 * time.Hour)
		if n, _ := polls.count(""); n < 400 || n > 600 {
			t.Errorf("%d polls of 10 feeds in 10 h, want nearly 600", n)
		}
		stop()
	})
}
