// Package fleettest tests what a [fleet.Bus] promises. All buses pass the same tests.
package fleettest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/fleet"
)

// Topics are the topics of 300 feeds.
var Topics = func() (names []string) {
	for n := range 300 {
		names = append(names, fmt.Sprintf("shop.feed-%03d", n))
	}
	return names
}()

// Copy is a copy that takes part in a fleet.
type Copy struct {
	*fleet.Member
	Name string
	// Stop ends the membership, and Leave waits until it has ended.
	Stop  context.CancelFunc
	ended chan struct{}

	mu sync.Mutex
	// note is the text of the note, and its key.
	note string
	all  []fleet.Assignment
	err  error // why the members are not known
}

// Join takes part in a fleet until the test ends, with feeds for some topics.
func Join(t testing.TB, bus fleet.Bus, name string, log *slog.Logger, topics []string) *Copy {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &Copy{Member: fleet.NewMember(name, log), Name: name, Stop: stop, ended: make(chan struct{})}
	c.SetTopics(topics, nil)
	c.Note("1")
	c.SetNote(func(int) fleet.Note {
		c.mu.Lock()
		defer c.mu.Unlock()
		return fleet.Note{Text: []byte(c.note), Key: c.note}
	})
	go func() {
		defer close(c.ended)
		c.Run(ctx, func(context.Context) (fleet.Bus, error) { return bus, nil }, func(a fleet.Assignment) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.all = append(c.all, a)
		}, func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.err = err
		})
	}()
	t.Cleanup(c.Leave)
	return c
}

// Note changes the note of the copy, which is JSON.
func (c *Copy) Note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note = text
}

// Leave leaves the fleet.
func (c *Copy) Leave() {
	c.Stop()
	<-c.ended
}

// All returns all assignments so far.
func (c *Copy) All() []fleet.Assignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// Assignment returns the newest one; its Owner is nil if there is none yet.
func (c *Copy) Assignment() fleet.Assignment {
	all := c.All()
	if len(all) == 0 {
		return fleet.Assignment{}
	}
	return all[len(all)-1]
}

// Err returns why the copy does not know the members, nil if it does.
func (c *Copy) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Owned returns those of [Topics] that the copy runs.
func (c *Copy) Owned() (topics []string) {
	a := c.Assignment()
	for _, topic := range Topics {
		if a.Owner != nil && a.Owns(topic) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// Problem returns why the copies do not agree on an owner among them for each topic, or "".
func Problem(topics []string, copies ...*Copy) string {
	var names []string
	for _, c := range copies {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	for _, c := range copies {
		a := c.Assignment()
		if !slices.Equal(a.Members, names) {
			return fmt.Sprintf("%s sees the members %q, want %q", c.Name, a.Members, names)
		}
		for _, topic := range topics {
			if owner, other := a.Owner(topic), copies[0].Assignment().Owner(topic); owner != other || !slices.Contains(names, owner) {
				return fmt.Sprintf("topic %s: %s sees the owner %q, and %s the owner %q", topic, c.Name, owner, copies[0].Name, other)
			}
		}
	}
	return ""
}

// Within waits until the copies agree on an owner among them for each of [Topics].
func Within(t testing.TB, limit time.Duration, copies ...*Copy) {
	t.Helper()
	Eventually(t, limit, func() string { return Problem(Topics, copies...) })
}

// Eventually waits until problem returns "".
func Eventually(t testing.TB, limit time.Duration, problem func() string) {
	t.Helper()
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		p := problem()
		if p == "" {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("after %v: %s", limit, p)
		}
	}
}

// System is a bus that is shared by the copies of a test.
type System interface {
	// Connect returns the fleet for one more copy, and a function that cuts its connection, as if the copy
	// was killed.
	Connect(t testing.TB) (bus fleet.Bus, kill func())
	// Store stores an entry as other programs can do it.
	Store(t testing.TB, name string, value []byte)
}

// patience limits how long the tests wait. It is not a limit of the product.
const patience = 2 * time.Minute

// Tests are the tests, by name. Each needs a System of its own.
var Tests = map[string]func(*testing.T, System){
	"members see who joins, leaves and is killed":      testMembers,
	"members with different feeds run all of them":     testDifferentFeeds,
	"an entry that other programs store runs no feeds": testStranger,
	"members see each other's notes, and who is gone":  testNotes,
}

func join(t testing.TB, s System, name string, topics []string) (c *Copy, kill func()) {
	t.Helper()
	bus, kill := s.Connect(t)
	return Join(t, bus, name, slog.New(slog.DiscardHandler), topics), kill
}

func testMembers(t *testing.T, s System) {
	a, _ := join(t, s, "a", Topics)
	b, _ := join(t, s, "b", Topics)
	Within(t, patience, a, b)
	c, kill := join(t, s, "c", Topics)
	Within(t, patience, a, b, c)
	for _, copy := range []*Copy{a, b, c} {
		if n := len(copy.Owned()); n < 80 || n > 110 {
			t.Errorf("%s runs %d of 300 feeds, want a third, and 10%% more at most", copy.Name, n)
		}
	}
	b.Leave()
	Within(t, patience, a, c)
	kill()
	Within(t, patience, a)
}

func testDifferentFeeds(t *testing.T, s System) {
	a, _ := join(t, s, "a", Topics[:100])
	b, _ := join(t, s, "b", Topics[200:])
	c, _ := join(t, s, "c", Topics[50:250])
	Within(t, patience, a, b, c)
	has := func(topics ...[]string) map[string][]string {
		return map[string][]string{"a": topics[0], "b": topics[1], "c": topics[2]}
	}
	check := func(has map[string][]string) {
		t.Helper()
		for _, topic := range Topics {
			if owner := a.Assignment().Owner(topic); !slices.Contains(has[owner], topic) {
				t.Errorf("the owner of %s is %s, which does not have the feed", topic, owner)
			}
		}
	}
	check(has(Topics[:100], Topics[200:], Topics[50:250]))
	if different := a.Assignment().Different; !slices.Equal(different, []string{"b", "c"}) {
		t.Errorf("a sees other feeds at %q", different)
	}
	a.SetTopics(Topics, nil)
	Eventually(t, patience, func() string {
		if n := len(a.Owned()); n < 90 {
			return fmt.Sprintf("after a reload a runs %d feeds", n)
		}
		return Problem(Topics, a, b, c)
	})
	check(has(Topics, Topics[200:], Topics[50:250]))
	b.SetTopics(Topics, nil)
	c.SetTopics(Topics, nil)
	Eventually(t, patience, func() string {
		if len(a.Assignment().Different)+len(b.Assignment().Different) > 0 {
			return "there are still different feeds"
		}
		return Problem(Topics, a, b, c)
	})
}

func testStranger(t *testing.T, s System) {
	a, _ := join(t, s, "a", Topics)
	Within(t, patience, a)
	s.Store(t, "stranger", []byte("hello"))
	s.Store(t, "copied", []byte(`{"feedbridge_member":"a","topics":"`+fleet.NewTopics(Topics).Fingerprint()+`"}`))
	b, _ := join(t, s, "b", Topics) // sees them when it starts
	Within(t, patience, a, b)
	for _, c := range []*Copy{a, b} {
		for _, assignment := range c.All() {
			if slices.Contains(assignment.Members, "stranger") || slices.Contains(assignment.Members, "copied") {
				t.Errorf("%s has seen the members %q", c.Name, assignment.Members)
			}
		}
	}
}

func testNotes(t *testing.T, s System) {
	a, _ := join(t, s, "a", Topics)
	b, kill := join(t, s, "b", Topics)
	Within(t, patience, a, b)
	await := func(what string, holds func(fleet.Seen) bool) {
		t.Helper()
		Eventually(t, 2*patience, func() string {
			if holds(a.Seen()["b"]) {
				return ""
			}
			return fmt.Sprintf("%s: %+v", what, a.Seen())
		})
	}
	is := func(note string) func(fleet.Seen) bool {
		return func(s fleet.Seen) bool { return string(s.Note) == note && s.GoneSince.IsZero() }
	}
	await("the first note", is("1"))
	b.Note(`{"x":2}`)
	await("another note", is(`{"x":2}`))
	if n := len(a.All()); n > 2 {
		t.Errorf("a note has changed the assignment: %d of them", n)
	}
	kill()
	await("a member that is killed", func(s fleet.Seen) bool { return !s.GoneSince.IsZero() && string(s.Note) == `{"x":2}` })
}
