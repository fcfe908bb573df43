package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
)

// history is the sequence of events for the copies of a bridge and their bus, drawn before
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
	stops    bool // copies end and start again
	slow     bool // reading takes time
	seldom   bool // polls are further apart than looks at the checkpoint
	budget   int  // bytes that all copies together may read ahead
	reserves bool // the source reserves memory for its batches
	// repeats makes the feed repeat some IDs, which a gate leaves out.
	repeats bool
	// dead makes a part of the entities dead letters.
	dead bool
	// rewinds are the times at which the topic is restored from a backup, with its
	// checkpoint.
	rewinds []rewind
	// pauses are made one after the other.
	pauses []pause
	// loss is the part that the topic also loses at lossAt.
	loss   loss
	lossAt time.Duration
}

type rewind struct {
	at   time.Duration // when the backup is taken
	back time.Duration // how much later it is restored
}

// pause is a time for which a person pauses the feed.
type pause struct {
	after time.Duration // since the end of the one before
	takes time.Duration
	// by is the copy whose bridge makes the change; a sink of its own makes it if there is no
	// such copy.
	by int
}

// loss is the part that a topic loses permanently.
type loss int

const (
	nothing loss = iota
	lostCheckpoint
	lostMessages
)

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
		budget:   rapid.IntRange(1, 300).Draw(t, "budget"),
		reserves: rapid.Bool().Draw(t, "reserves"),
		repeats:  rapid.Bool().Draw(t, "repeats"),
		dead:     rapid.Bool().Draw(t, "dead"),
		rewinds: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rewind {
			return rewind{
				at:   time.Duration(rapid.IntRange(0, 600).Draw(t, "at")) * time.Second,
				back: time.Duration(rapid.IntRange(0, 120).Draw(t, "back")) * time.Second,
			}
		}), 0, 4).Draw(t, "rewinds"),
		pauses: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pause {
			return pause{
				after: time.Duration(rapid.IntRange(0, 300).Draw(t, "after")) * time.Second,
				takes: time.Duration(rapid.IntRange(0, 200).Draw(t, "takes")) * time.Second,
				by:    rapid.IntRange(0, 4).Draw(t, "by"),
			}
		}), 0, 3).Draw(t, "pauses"),
	}
}

const (
	trouble = 15 * time.Minute // how long things fail
	calm    = 15 * time.Minute // how long there is to recover
)

// outcome is the end of a history.
type outcome struct {
	// lost reports that the topic has lost something, and left has the entities that remained.
	lost bool
	left []feed.Entity
	// states are those of the copies at the end.
	states []bridge.State
	// broken is the error of a pause that did not hold.
	broken error
}

// play runs the history.
func (h history) play(t *testing.T, topic *sinktest.Memory) (end outcome) {
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
				if h.repeats || h.dead { // there is a gate, which leaves out what is stored
					kinds = append(kinds, sinktest.Torn, sinktest.Torn)
				}
				return sinktest.Fault{Kind: kinds[dice.roll(len(kinds))], After: time.Duration(dice.roll(20_000)) * time.Millisecond}
			},
		}
		var rewound atomic.Int64
		for _, r := range h.rewinds {
			if h.loss != nothing && r.at+r.back >= h.lossAt {
				continue // it would restore the lost messages
			}
			time.AfterFunc(r.at, func() {
				if !topic.Checkpoint().IsZero() {
					restore := topic.Backup()
					time.AfterFunc(r.back, func() {
						rewound.Add(1)
						restore()
					})
				}
			})
		}
		if h.loss != nothing {
			time.AfterFunc(h.lossAt, func() { end.lost, end.left = h.lose(topic) })
		}
		budget := readahead.NewBudget(int64(h.budget))
		end.states = make([]bridge.State, h.copies)
		var copies sync.WaitGroup
		person := &person{topic: topic, faults: faults, begin: begin, rewound: &rewound, bridges: make([]atomic.Pointer[bridge.Bridge], h.copies)}
		copies.Go(func() { end.broken = person.makePauses(h.pauses) })
		for n := range h.copies {
			copies.Go(func() {
				for time.Since(begin) < trouble+calm {
					life := trouble + calm - time.Since(begin)
					if h.stops && time.Since(begin) < trouble {
						life = time.Duration(1+dice.roll(120)) * time.Second
					}
					ctx, cancel := context.WithTimeout(t.Context(), life)
					snk, seen := topic.Open(faults), &diary{}
					share := budget.Share()
					numbers := &numbers{h: h, begin: begin, dice: dice, happens: happens, share: share, t: t}
					var src feed.Source = numbers
					if h.repeats || h.dead {
						src = &sink.Gate{Source: numbers, IDs: snk.IDs(), Fits: h.fits, Oversize: sink.DeadLetter, Log: discard}
					}
					b := newBridge(src, snk)
					b.Writer, b.Observer = fmt.Sprintf("copy-%d", n), seen
					b.Limits.Entities, b.Share = h.limit, share
					if h.seldom {
						b.Every = time.Minute
					}
					person.bridges[n].Store(b)
					stopped := make(chan struct{})
					b.Start(ctx, func() { close(stopped) })
					<-stopped
					cancel()
					end.states[n] = seen.states[len(seen.states)-2].State // before Stopped
				}
			})
		}
		copies.Wait()
		wantUnused(t, budget, "copies that have stopped have some of the budget")
	})
	return end
}

// person pauses and resumes the feed.
type person struct {
	topic  *sinktest.Memory
	faults sinktest.Faults
	begin  time.Time
	// bridges are those that run at present, one of each copy.
	bridges []atomic.Pointer[bridge.Bridge]
	// rewound counts how often the topic has gone back.
	rewound *atomic.Int64
}

// makePauses makes the pauses, and resumes the feed at the end of the trouble, because a backup
// may have brought a pause back.
func (p *person) makePauses(pauses []pause) error {
	for _, pause := range pauses {
		time.Sleep(pause.after)
		rewound := p.rewound.Load() // a backup that is restored from here on may end the pause
		if time.Since(p.begin)+pause.takes > trouble || !p.setPaused(pause.by, true) {
			break
		}
		held := len(p.topic.Entities())
		time.Sleep(pause.takes)
		if now := len(p.topic.Entities()); now > held && p.rewound.Load() == rewound {
			return fmt.Errorf("%d entities were published while the feed was paused", now-held)
		}
		p.setPaused(pause.by, false)
	}
	time.Sleep(trouble - time.Since(p.begin))
	p.setPaused(len(p.bridges), false)
	return nil
}

// setPaused tries until it works, and reports whether it does.
func (p *person) setPaused(by int, pause bool) bool {
	for time.Since(p.begin) < trouble+time.Minute {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var err error
		if by < len(p.bridges) && p.bridges[by].Load() != nil {
			_, err = p.bridges[by].Load().SetPaused(ctx, pause)
		} else {
			_, err = bridge.SetPaused(ctx, p.topic.Open(p.faults), "numbers", "person", pause)
		}
		cancel()
		if err == nil {
			return true
		}
		time.Sleep(time.Second)
	}
	return false
}

// lose removes the part of the topic that the history names. It reports whether the topic had it, and
// returns the remaining entities. Entities without a checkpoint that counts them are published again.
func (h history) lose(topic *sinktest.Memory) (lost bool, left []feed.Entity) {
	switch {
	case h.loss == lostMessages:
		lost = topic.LoseMessages(1 + int(h.seed%20))
	case len(topic.Entities())+len(topic.DeadLetters()) > 0:
		topic.LoseCheckpoint()
		lost = true
	}
	return lost, topic.Entities()
}

// check returns the errors in the topic.
func (h history) check(topic *sinktest.Memory, end outcome) error {
	if end.broken != nil {
		return end.broken
	}
	want, dead := h.published()
	if end.lost {
		want = nil
		for _, e := range end.left {
			want = append(want, e.ID)
		}
		for n, state := range end.states {
			if state != bridge.Halted {
				return fmt.Errorf("copy %d of a topic that lost something is %s, want halted", n, state)
			}
		}
	}
	held := topic.Entities()
	for i := range max(len(held), len(want)) {
		switch {
		case i >= len(held):
			return fmt.Errorf("the topic has %d entities of %d", len(held), len(want))
		case i >= len(want):
			return fmt.Errorf("the topic has %d entities more than the %d that it should have", len(held)-len(want), len(want))
		case held[i].ID != want[i]:
			return fmt.Errorf("entity number %d of the topic is %s, want %s", i, held[i].ID, want[i])
		}
	}
	if letters := topic.DeadLetters(); !end.lost && !slices.EqualFunc(letters, dead, func(e feed.Entity, id string) bool { return e.ID == id }) {
		return fmt.Errorf("the topic has the dead letters %+v, want %v", letters, dead)
	}
	if cp := topic.Checkpoint(); h.length > 0 && !end.lost && (cp.Count != uint64(len(want)) || string(cp.Cursor) != strconv.Itoa(h.length)) {
		return fmt.Errorf("the checkpoint says %d entities, cursor %s, want %d, cursor %d", cp.Count, cp.Cursor, len(want), h.length)
	}
	return topic.Err()
}

// id returns the ID of the feed's entity number i.
func (h history) id(i int) string {
	if h.repeats && i%3 == 2 {
		i -= 1 + i*7%min(i, 60)
	}
	return strconv.Itoa(i)
}

// fits returns an error for the first entity that is to become a dead letter.
func (h history) fits(entities []feed.Entity) (n int, err error) {
	if i := slices.IndexFunc(entities, func(e feed.Entity) bool { return h.isDead(e.ID) }); i >= 0 {
		return i, sink.ErrTooLarge
	}
	return len(entities), nil
}

// isDead reports whether the entity with an ID is to become a dead letter.
func (h history) isDead(id string) bool {
	n, _ := strconv.Atoi(id)
	return h.dead && n%5 < 2
}

// published returns the IDs that the topic should have in the end, and those of its dead letters.
func (h history) published() (ids, dead []string) {
	seen := map[string]bool{}
	for i := range h.length {
		if id := h.id(i); !seen[id] {
			seen[id] = true
			if h.isDead(id) {
				dead = append(dead, id)
				continue
			}
			ids = append(ids, id)
		}
	}
	return ids, dead
}

// Whatever fails, however many copies run, and however often the topic returns to
// an earlier state with its checkpoint, the topic holds the feed exactly. In half
// of the histories no entity is repeated and no duplicate is filtered: there the
// fence and the checkpoint are all that keeps duplicates out.
func TestTopicHoldsTheFeedExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		var topic sinktest.Memory
		end := h.play(t, &topic)
		if err := h.check(&topic, end); err != nil {
			rt.Fatalf("%v\n%+v", err, h)
		}
	})
}

// A topic that has lost its checkpoint, or messages that its checkpoint counts, is
// left as it is, and every copy of its feed halts.
func TestTopicThatLostSomethingIsLeftAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		h.loss = loss(rapid.IntRange(int(lostCheckpoint), int(lostMessages)).Draw(rt, "loss"))
		h.lossAt = time.Duration(rapid.IntRange(0, 900).Draw(rt, "lossAt")) * time.Second
		var topic sinktest.Memory
		end := h.play(t, &topic)
		if err := h.check(&topic, end); err != nil {
			rt.Fatalf("%v\n%+v", err, h)
		}
	})
}

// The properties above are worth something only if they notice a sink without one
// of its guards.
func TestPropertyNoticesABrokenSink(t *testing.T) {
	for name, test := range map[string]struct {
		broken  sinktest.Guards
		repeats bool
		rewind  bool
		loss    loss
	}{
		"no fence":                                      {broken: sinktest.Guards{Fence: true}},
		"a fence on the checkpoint only":                {broken: sinktest.Guards{Tail: true}, repeats: true},
		"no checkpoint":                                 {broken: sinktest.Guards{Checkpoint: true}},
		"a fence that compares the sequence only":       {broken: sinktest.Guards{Content: true}, rewind: true},
		"IDs that are kept when the topic went back":    {broken: sinktest.Guards{IDs: true}, rewind: true},
		"IDs that are kept unless the count has fallen": {broken: sinktest.Guards{Counted: true}, rewind: true},
		"a lost checkpoint is taken for a new topic":    {broken: sinktest.Guards{Missing: true}, loss: lostCheckpoint},
		"a topic shorter than its checkpoint is used":   {broken: sinktest.Guards{End: true}, loss: lostMessages},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			for draw := range 1000 {
				h := history{
					seed: rng.Uint64(), copies: 1 + rng.IntN(3), length: 1 + rng.IntN(300), batch: 1 + rng.IntN(50),
					growth: 5 * time.Minute, readFail: 100, saveFail: 300, lookFail: 100, stops: true, slow: true,
					repeats: test.repeats,
				}
				if test.rewind {
					// Copies that live on are the ones that remember.
					h.stops, h.repeats = false, draw%2 == 0
					for range 10 {
						h.rewinds = append(h.rewinds, rewind{time.Duration(rng.IntN(300)) * time.Second, time.Duration(rng.IntN(60)) * time.Second})
					}
				}
				h.loss, h.lossAt = test.loss, time.Duration(60+rng.IntN(300))*time.Second
				topic := sinktest.Memory{Broken: test.broken}
				end := h.play(t, &topic)
				if err := h.check(&topic, end); err != nil {
					t.Logf("noticed in draw %d: %v", draw+1, err)
					return
				}
			}
			t.Error("not noticed in 1000 draws")
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
	share   *readahead.Share
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

func (n *numbers) Next(ctx context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	if !n.busy.CompareAndSwap(false, true) {
		n.t.Error("two goroutines use one source at the same time")
	}
	defer n.busy.Store(false)
	if n.h.slow {
		// It ignores ctx: a source may be slow to notice.
		time.Sleep(time.Duration(n.dice.roll(3000)) * time.Millisecond)
	}
	for i := 0; n.h.reserves && i < n.dice.roll(4); i++ {
		if err := n.share.Reserve(ctx, int64(n.dice.roll(100_000))); err != nil {
			return feed.Batch{}, err
		}
		if more := int64(n.dice.roll(100_000)); n.share.TryReserve(more) {
			n.share.Free(more / 2)
		}
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
	batch := feed.Batch{Entities: entities(at, end), Cursor: feed.Cursor(strconv.Itoa(end)), More: end < length}
	for i := range batch.Entities {
		batch.Entities[i].ID = n.h.id(at + i)
	}
	return batch, nil
}

func (*numbers) Release() {}

// entities returns those with the numbers from at to end.
func entities(at, end int) []feed.Entity {
	var all []feed.Entity
	for i := at; i < end; i++ {
		all = append(all, feed.Entity{ID: strconv.Itoa(i), Op: feed.Put, Body: []byte(strconv.Itoa(i))})
	}
	return all
}

func newBridge(source feed.Source, snk bridge.Sink) *bridge.Bridge {
	return &bridge.Bridge{
		Feed: "numbers", Writer: "me",
		Open:  func(context.Context, string) (feed.Source, string, error) { return source, "test", nil },
		Sink:  snk,
		Every: 5 * time.Second, ReadAhead: 1000,
		Log: discard, Observer: nobody{},
	}
}
