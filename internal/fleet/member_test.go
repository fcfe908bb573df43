package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// memoryBus is a bus in memory. Members share it.
type memoryBus struct {
	mu      sync.Mutex
	err     error // of Join
	values  map[string][]byte
	changed chan struct{}
}

func newMemoryBus() *memoryBus {
	return &memoryBus{values: map[string][]byte{}, changed: make(chan struct{})}
}

// set changes what all members see, and ends their membership if err is not nil.
func (b *memoryBus) set(err error, change func(values map[string][]byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	change(b.values)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *memoryBus) Join(ctx context.Context, self fleet.Self, report func(fleet.Report)) error {
	put := func(values map[string][]byte) { values[self.Name] = self.Value() }
	b.mu.Lock()
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return err
	}
	b.set(nil, put)
	for {
		b.mu.Lock()
		values, changed, err := maps.Clone(b.values), b.changed, b.err
		b.mu.Unlock()
		if err != nil {
			return err
		}
		report(fleet.Report{Members: values})
		select {
		case <-changed:
		case <-self.Changed:
			b.set(nil, put)
		case <-ctx.Done():
			b.set(nil, func(values map[string][]byte) { delete(values, self.Name) })
			return nil
		}
	}
}

// copyOf is a copy with some topics.
type copyOf struct {
	*fleet.Member
	leave func()

	mu     sync.Mutex
	last   fleet.Assignment
	count  int
	failed error
}

func start(t *testing.T, b *memoryBus, name string, log *slog.Logger, topics ...string) *copyOf {
	c := &copyOf{Member: fleet.NewMember(name, log)}
	c.SetTopics(topics, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, func(context.Context) (fleet.Bus, error) { return b, nil }, func(a fleet.Assignment) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.last, c.count = a, c.count+1
		}, func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.failed = err
		})
	}()
	c.leave = func() {
		cancel()
		<-ended
	}
	t.Cleanup(c.leave)
	return c
}

// state returns the last assignment, the number of them, and the error that was reported.
func (c *copyOf) state() (last fleet.Assignment, count int, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.count, c.failed
}

// owned returns the topics that the copy runs, of some.
func (c *copyOf) owned(topics []string) (own []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range topics {
		if c.last.Owner != nil && c.last.Owns(topic) {
			own = append(own, topic)
		}
	}
	return own
}

var quiet = slog.New(slog.DiscardHandler)

// Each feed is run by one copy, and by one that has it, whatever the configurations of the copies are,
// and after each change.
func TestEachFeedIsRunByOneOfTheCopiesThatHaveIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := names("orders", 40)
		b := newMemoryBus()
		has := map[*copyOf][]string{}
		check := func(when string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			runs := map[string]int{}
			for c, topics := range has {
				own := c.owned(all)
				for _, topic := range own {
					runs[topic]++
					if !slices.Contains(topics, topic) {
						t.Errorf("%s: %s is run by a copy that does not have it", when, topic)
					}
				}
			}
			for _, topics := range has {
				for _, topic := range topics {
					if runs[topic] != 1 {
						t.Errorf("%s: %s is run by %d copies", when, topic, runs[topic])
					}
				}
			}
		}
		x, y := start(t, b, "x", quiet, all[:10]...), start(t, b, "y", quiet, all[20:30]...)
		has[x], has[y] = all[:10], all[20:30]
		check("two copies without a feed in common")
		z := start(t, b, "z", quiet, all[5:25]...)
		has[z] = all[5:25]
		check("a third one with feeds of both")
		for n, c := range []*copyOf{x, y, z} {
			c.SetTopics(all, nil)
			has[c] = all
			check(fmt.Sprint("a rollout to copy ", n))
		}
		for _, c := range []*copyOf{x, y, z} {
			if n := len(c.owned(all)); n < 10 || n > 15 {
				t.Errorf("a copy runs %d of 40 feeds", n)
			}
		}
		y.leave()
		delete(has, y)
		check("a copy has left")
	})
}

// The warning about different feeds comes after a minute, and once.
func TestDifferentFeedsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logbuffer.Buffer
		b := newMemoryBus()
		x := start(t, b, "x", slog.New(slog.NewTextHandler(&out, nil)), "a", "b")
		y := start(t, b, "y", quiet, "a")
		logged := func() int { return strings.Count(out.String(), "have other feeds than this copy") }
		time.Sleep(fleet.Rollout / 2)
		y.SetTopics([]string{"a", "b"}, nil)
		time.Sleep(2 * fleet.Rollout)
		if logged() != 0 {
			t.Errorf("a short rollout is logged:\n%s", out.String())
		}
		for want := 1; want <= 2; want++ {
			y.SetTopics([]string{"c"}, nil)
			time.Sleep(time.Hour)
			if n := logged(); n != want || !strings.Contains(out.String(), "members=[y]") {
				t.Errorf("logged %d times, want %d:\n%s", n, want, out.String())
			}
			if a, _, _ := x.state(); a.DifferentSince.IsZero() {
				t.Error("the assignment does not show it")
			}
			y.SetTopics([]string{"a", "b"}, nil)
			time.Sleep(time.Minute)
		}
	})
}

// While the bus is away nothing moves, and the log has one line of each copy. The error is reported until
// the copy is a member again.
func TestNothingMovesWhileTheBusIsAway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		text string
	}{
		"no answer": {errors.New("no answer"), "does not see the other members of the fleet"},
		"no right":  {feed.Permanent(errors.New("no right")), "cannot take part in the fleet"},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			var out logbuffer.Buffer
			all := names("orders", 40)
			b := newMemoryBus()
			x, y := start(t, b, "x", slog.New(slog.NewTextHandler(&out, nil)), all...), start(t, b, "y", quiet, all...)
			time.Sleep(time.Minute)
			own, other := x.owned(all), y.owned(all)
			_, before, _ := x.state()
			b.set(test.err, func(values map[string][]byte) { clear(values) })
			time.Sleep(3 * time.Second)
			_, _, failed := x.state()
			if !errors.Is(failed, test.err) {
				t.Errorf("reported: %v", failed)
			}
			b.set(nil, func(map[string][]byte) {})
			time.Sleep(time.Minute)
			if _, count, failed := x.state(); failed != nil || count != before || !slices.Equal(own, x.owned(all)) || !slices.Equal(other, y.owned(all)) {
				t.Errorf("error %v, %d assignments, had %d", failed, count, before)
			}
			if n := strings.Count(out.String(), test.text); n != 1 {
				t.Errorf("%d lines, want one:\n%s", n, out.String())
			}
		})
	}
}

func TestAnEntryOfNoMemberIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logbuffer.Buffer
		b := newMemoryBus()
		x := start(t, b, "x", slog.New(slog.NewTextHandler(&out, nil)), "a")
		for range 3 {
			b.set(nil, func(values map[string][]byte) { values["stranger"] = []byte(`{"topics":"1"}`) })
			time.Sleep(time.Minute)
		}
		a, _, _ := x.state()
		if n := strings.Count(out.String(), "an entry that is no member's; it is ignored\" entry=stranger"); n != 1 || !slices.Equal(a.Members, []string{"x"}) {
			t.Errorf("members %q, logged %d times:\n%s", a.Members, n, out.String())
		}
	})
}

// Notes change no assignment. One that is too large, as another program may store it, is not kept; a member
// that is gone is, for an hour.
func TestNotesAreKeptWithinBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBus()
		x := start(t, b, "x", quiet, "orders")
		put := func(note string) {
			b.set(nil, func(values map[string][]byte) {
				values["y"] = fmt.Appendf(nil, `{"feedbridge_member":"y","topics":"1","note":%s}`, note)
			})
			time.Sleep(time.Minute)
		}
		put(`"small"`)
		_, before, _ := x.state()
		if note := string(x.Seen()["y"].Note); note != `"small"` {
			t.Errorf("the note is %s", note)
		}
		put(`"` + strings.Repeat("x", 40<<10) + `"`)
		if note := x.Seen()["y"].Note; note != nil {
			t.Errorf("a note of %d bytes is kept", len(note))
		}
		if _, after, _ := x.state(); after != before {
			t.Errorf("notes have made %d assignments", after-before)
		}
		b.set(nil, func(values map[string][]byte) { delete(values, "y") })
		time.Sleep(30 * time.Minute)
		if gone := x.Seen()["y"].GoneSince; time.Since(gone) != 30*time.Minute {
			t.Errorf("gone since %v", gone)
		}
		time.Sleep(time.Hour)
		b.set(nil, func(values map[string][]byte) { values["z"] = []byte("x") })
		synctest.Wait()
		if _, known := x.Seen()["y"]; known {
			t.Error("it is remembered for more than an hour")
		}
	})
}
