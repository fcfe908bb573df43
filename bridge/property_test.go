package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink/sinktest"
)

// history is what befalls the copies of a bridge and their bus, drawn before
// it happens.
type history struct {
	seed     uint64
	copies   int
	length   int           // of the feed, in the end
	growth   time.Duration // how long it takes to get there
	batch    int           // entities in a batch, at most
	limit    int           // entities in a commit, at most
	readFail int           // faults per thousand calls, each
	saveFail int
	lookFail int
	stops    bool // copies end and start anew
	slow     bool // reading takes time
	seldom   bool // polls are further apart than looks at the checkpoint
}

func drawHistory(t *rapid.T) history {
	return history{
		seed:     rapid.Uint64().Draw(t, "seed"),
		copies:   rapid.IntRange(1, 3).Draw(t, "copies"),
		length:   rapid.IntRange(0, 300).Draw(t, "length"),
		growth:   time.Duration(rapid.IntRange(0, 600).Draw(t, "growth")) * time.Second,
		batch:    rapid.IntRange(1, 50).Draw(t, "batch"),
		limit:    rapid.IntRange(0, 100).Draw(t, "limit"),
		readFail: rapid.IntRange(0, 300).Draw(t, "readFail"),
		saveFail: rapid.IntRange(0, 500).Draw(t, "saveFail"),
		lookFail: rapid.IntRange(0, 300).Draw(t, "lookFail"),
		stops:    rapid.Bool().Draw(t, "stops"),
		slow:     rapid.Bool().Draw(t, "slow"),
		seldom:   rapid.Bool().Draw(t, "seldom"),
	}
}

const (
	trouble = 15 * time.Minute // how long things fail
	calm    = 15 * time.Minute // how long there is to recover
)

// play runs the history and returns the topic in the end.
func (h history) play(t *testing.T, topic *sinktest.Memory) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		dice := &dice{rng: rand.New(rand.NewPCG(h.seed, 1))}
		happens := func(perMille int) bool { return time.Since(begin) < trouble && dice.roll(1000) < perMille }
		faults := sinktest.Faults{
			Resume: func() error {
				if happens(h.lookFail) {
					return errors.New("no answer")
				}
				return nil
			},
			Commit: func() sinktest.Fault {
				if !happens(h.saveFail) {
					return sinktest.Fault{}
				}
				kinds := []sinktest.Kind{sinktest.FailBefore, sinktest.FailAfter, sinktest.Late}
				return sinktest.Fault{Kind: kinds[dice.roll(len(kinds))], After: time.Duration(dice.roll(20_000)) * time.Millisecond}
			},
		}
		var copies sync.WaitGroup
		for n := range h.copies {
			copies.Go(func() {
				for time.Since(begin) < trouble+calm {
					life := trouble + calm - time.Since(begin)
					if h.stops && time.Since(begin) < trouble {
						life = time.Duration(1+dice.roll(120)) * time.Second
					}
					ctx, cancel := context.WithTimeout(t.Context(), life)
					b := newBridge(&numbers{h: h, begin: begin, dice: dice, happens: happens, t: t}, topic.Open(faults))
					b.Writer = fmt.Sprintf("copy-%d", n)
					b.Limits.Entities = h.limit
					if h.seldom {
						b.Every = time.Minute
					}
					if err := b.Run(ctx); err != nil {
						t.Errorf("Run: %v", err)
					}
					cancel()
				}
			})
		}
		copies.Wait()
	})
}

// check says what is wrong with the topic.
func (h history) check(topic *sinktest.Memory) error {
	held := topic.Entities()
	for i := range max(len(held), h.length) {
		switch {
		case i >= len(held):
			return fmt.Errorf("the topic has %d entities of %d", len(held), h.length)
		case i >= h.length:
			return fmt.Errorf("the topic has %d entities more than the feed", len(held)-h.length)
		case held[i].ID != strconv.Itoa(i):
			return fmt.Errorf("entity number %d of the topic is %s", i, held[i].ID)
		}
	}
	if cp := topic.Checkpoint(); h.length > 0 && (cp.Count != uint64(h.length) || string(cp.Cursor) != strconv.Itoa(h.length)) {
		return fmt.Errorf("the checkpoint says %d entities, cursor %s, of %d", cp.Count, cp.Cursor, h.length)
	}
	return topic.Err()
}

// Whatever fails and however many copies run, the topic holds the feed exactly.
// Duplicates are not filtered here: what keeps them out is the fence and the
// checkpoint alone.
func TestTopicHoldsTheFeedExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		var topic sinktest.Memory
		h.play(t, &topic)
		if err := h.check(&topic); err != nil {
			rt.Fatalf("%v\n%+v", err, h)
		}
	})
}

// The property above is worth something only if it notices a sink without its
// fence, or without its checkpoint.
func TestPropertyNoticesABrokenSink(t *testing.T) {
	for name, breakIt := range map[string]func(*sinktest.Memory){
		"no fence":      func(m *sinktest.Memory) { m.NoFence = true },
		"no checkpoint": func(m *sinktest.Memory) { m.NoCheckpoint = true },
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			for draw := range 200 {
				h := history{
					seed: rng.Uint64(), copies: 1 + rng.IntN(3), length: 1 + rng.IntN(300), batch: 1 + rng.IntN(50),
					growth: 5 * time.Minute, readFail: 100, saveFail: 300, lookFail: 100, stops: true, slow: true,
				}
				var topic sinktest.Memory
				breakIt(&topic)
				h.play(t, &topic)
				if h.check(&topic) != nil {
					t.Logf("noticed in draw %d", draw+1)
					return
				}
			}
			t.Error("not noticed in 200 draws")
		})
	}
}

// dice are shared by the goroutines of a history.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// numbers is a feed of the numbers from 0 that grows with the clock. Its cursor
// is the next number.
type numbers struct {
	h       history
	begin   time.Time
	dice    *dice
	happens func(int) bool
	t       *testing.T
	busy    atomic.Bool
}

func (n *numbers) length() int {
	age := time.Since(n.begin)
	if age >= n.h.growth {
		return n.h.length
	}
	return int(int64(n.h.length) * int64(age) / int64(n.h.growth))
}

func (n *numbers) Next(_ context.Context, after feed.Cursor) (feed.Batch, error) {
	if !n.busy.CompareAndSwap(false, true) {
		n.t.Error("two goroutines use one source at the same time")
	}
	defer n.busy.Store(false)
	if n.h.slow {
		// It does not heed ctx: a source may be slow to notice.
		time.Sleep(time.Duration(n.dice.roll(3000)) * time.Millisecond)
	}
	if n.happens(n.h.readFail) {
		return feed.Batch{}, errors.New("upstream is down")
	}
	at := 0
	if len(after) > 0 {
		var err error
		if at, err = strconv.Atoi(string(after)); err != nil {
			return feed.Batch{}, err
		}
	}
	length := n.length()
	end := min(at+1+n.dice.roll(n.h.batch), length)
	if end <= at {
		return feed.Batch{Cursor: after}, nil
	}
	return feed.Batch{Entities: entities(at, end), Cursor: feed.Cursor(strconv.Itoa(end)), More: end < length}, nil
}

// entities returns those with the numbers from at to end.
func entities(at, end int) []feed.Entity {
	var all []feed.Entity
	for i := at; i < end; i++ {
		all = append(all, feed.Entity{ID: strconv.Itoa(i), Op: feed.Put, Body: []byte(strconv.Itoa(i))})
	}
	return all
}

func newBridge(source bridge.Source, sink bridge.Sink) *bridge.Bridge {
	return &bridge.Bridge{
		Feed: "numbers", Writer: "me",
		Open:  func(context.Context, string) (bridge.Source, string, error) { return source, "test", nil },
		Sink:  sink,
		Every: 5 * time.Second, ReadAhead: 1000,
		Log: discard, Observer: nobody{},
	}
}
