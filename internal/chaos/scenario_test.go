//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	feedsPerScenario  = 4
	copiesPerScenario = 3
	// settleTimeout is the time that the topics have to catch up when all is healed.
	settleTimeout = 2 * time.Minute
	// doubtTimeout is the time for which a topic that ends like its feed may differ from
	// it. A replica may be behind.
	doubtTimeout = 10 * time.Second
)

// pageSizes are those of the feeds. Small pages make small commits.
var pageSizes = []int{5, 20, 50, 500}

// scenario is a cluster, copies of the program and feeds.
type scenario struct {
	t      *testing.T
	name   string
	kind   string // of bus
	bus    bus
	nodes  []*node
	copies []*program
	table  *table
	// draw draws the fault of each round, and random what happens in the round. What
	// happens depends on the moment, and must not change the rounds that follow.
	// Goroutines beside the rounds have their own.
	draw, random *rand.Rand

	quiet    atomic.Bool // feeds grow by bursts only
	upstream *upstream
	made     int // feeds
	shared   int // chooses the feeds whose topics share a stream on NATS
	drawn    int // chooses the feeds that are no datareplication
	mu       sync.Mutex
	feeds    []*feed // that are published; replaced, never changed
}

// newScenario starts a scenario.
func newScenario(t *testing.T, kind string, nodes, number int, tab *table) (*scenario, error) {
	s := &scenario{
		t: t, name: fmt.Sprintf("%s%d-%d", kind, nodes, number), kind: kind, table: tab, upstream: newUpstream(),
		draw: rand.New(rand.NewPCG(flags.seed, uint64(number)<<16|uint64(nodes)<<8|uint64(len(kind)))),
	}
	s.random = rand.New(rand.NewPCG(s.draw.Uint64(), 0))
	t.Cleanup(s.close)
	if err := os.MkdirAll(chaosDir(s.name), 0o700); err != nil {
		return nil, err
	}
	open := newNATS
	if kind == "kafka" {
		open = newKafka
	}
	var err error
	if s.bus, err = open(s.name, nodes); err != nil {
		return nil, err
	}
	s.nodes = s.bus.servers()
	if err := startAll(t.Context(), s.nodes); err != nil {
		return nil, err
	}
	s.shared, s.drawn = s.random.IntN(4), s.random.IntN(4)
	if b, ok := s.bus.(*natsBus); ok {
		if err := b.createShared(t.Context()); err != nil {
			return nil, err
		}
	}
	fleet := s.random.IntN(2) == 0 && flags.fleet == "" || flags.fleet == "yes"
	for i := range copiesPerScenario {
		p, err := newProgram(s.name, i+1)
		if err != nil {
			return nil, err
		}
		p.fleet = fleet
		s.copies = append(s.copies, p)
	}
	return s, s.replaceFeeds(nil)
}

// close ends all processes. If the test has failed it keeps the stores.
func (s *scenario) close() {
	for _, p := range s.copies {
		if p.run != nil {
			p.run.kill()
		}
	}
	if s.bus != nil {
		s.bus.close()
	}
	for _, n := range s.nodes {
		if n.run != nil {
			n.run.kill()
		}
		if s.t.Failed() {
			if err := n.keepStore(); err != nil {
				s.t.Error(err)
			}
		}
	}
	s.upstream.server.Close()
}

// begin fills the topics. They exist before the first fault.
func (s *scenario) begin() error {
	defer s.watching()()
	for _, f := range s.published() {
		f.grow(firstLength)
	}
	return s.settle("start")
}

// watching watches the ends of the topics until stop is called.
func (s *scenario) watching() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(ctx) })
	return func() {
		cancel()
		watch.Wait()
	}
}

// run injects faults until ctx ends, or for the rounds of the flag.
func (s *scenario) run(ctx context.Context) error {
	defer s.watching()()
	var queue []fault
	for n := 1; ctx.Err() == nil && (flags.rounds == 0 || n <= flags.rounds); n++ {
		if len(queue) == 0 {
			queue = applicable(s.kind, len(s.nodes), s.table)
			s.draw.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
		}
		f := queue[0]
		queue = queue[1:]
		s.t.Logf("%s: round %d: %s", s.name, n, f.name)
		if err := s.round(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// round injects a fault one to three times while copies are killed and frozen and the
// feeds grow, and compares the topics with the feeds when all is healed.
func (s *scenario) round(ctx context.Context, f fault) error {
	s.table.update(f.name, func(*row) {}) // it has a row, whether there is an occasion or not
	s.random = rand.New(rand.NewPCG(s.draw.Uint64(), 0))
	beside, cancel := context.WithCancel(s.t.Context())
	var others sync.WaitGroup
	stop := func() {
		cancel()
		others.Wait()
	}
	defer stop()
	others.Go(s.own(func(r *rand.Rand) { s.grow(beside, r) }))
	calm := s.between(200, 8000)
	for _, p := range s.copies {
		others.Go(s.own(func(r *rand.Rand) { s.disturb(beside, r, p, calm) }))
	}
	others.Go(s.own(func(r *rand.Rand) { s.pauseFeeds(beside, r) }))
	for range 1 + s.random.IntN(3) {
		s.burst()
		_ = pause(ctx, s.between(0, 300))
		if ctx.Err() != nil {
			break
		}
		s.table.update(f.name, func(r *row) { r.tried++ })
		// A fault that has begun is healed, also if the time is over.
		err := f.inject(s.t.Context(), s)
		switch {
		case errors.Is(err, errNotInjected):
			s.t.Logf("%s: %s: %v", s.name, f.name, err)
		case err != nil:
			return err
		default:
			s.table.injected(f.name)
		}
		// The copies are disturbed also while they recover.
		_ = pause(ctx, s.between(0, 2000))
	}
	stop()
	return errors.Join(s.settle(f.name), s.agree())
}

// own gives a goroutine its own source of random numbers.
func (s *scenario) own(run func(*rand.Rand)) func() {
	r := rand.New(rand.NewPCG(s.random.Uint64(), 0))
	return func() { run(r) }
}

// grow lets feeds grow until ctx ends.
func (s *scenario) grow(ctx context.Context, r *rand.Rand) {
	for pause(ctx, time.Duration(100+r.IntN(400))*time.Millisecond) == nil {
		feeds := s.published()
		f, n := feeds[r.IntN(len(feeds))], 1+r.IntN(40)
		if !s.quiet.Load() {
			f.grow(n)
		}
	}
}

// disturb kills and freezes a copy until ctx ends, with up to twice calm between.
func (s *scenario) disturb(ctx context.Context, r *rand.Rand, p *program, calm time.Duration) {
	for pause(ctx, 200*time.Millisecond+time.Duration(r.Int64N(int64(2*calm)))) == nil {
		name, err := "SIGKILL of a copy", error(nil)
		if r.IntN(2) == 0 {
			err = s.killCopy(ctx, p, time.Duration(r.IntN(500))*time.Millisecond)
		} else {
			name = "SIGSTOP of a copy"
			err = s.freezeCopy(ctx, p, time.Duration(200+r.IntN(3000))*time.Millisecond)
		}
		if err != nil {
			s.t.Errorf("%s: %v", s.name, err)
			return
		}
		s.table.injected(name)
	}
}

// pauseFeeds pauses feeds, one at a time, until ctx ends.
func (s *scenario) pauseFeeds(ctx context.Context, r *rand.Rand) {
	for pause(ctx, time.Duration(r.IntN(4000))*time.Millisecond) == nil {
		feeds := s.published()
		p, f := s.copies[r.IntN(len(s.copies))], feeds[r.IntN(len(feeds))]
		switch err := s.pauseFeed(ctx, p, f, time.Duration(r.IntN(2000))*time.Millisecond); {
		case err == nil:
			s.table.injected(pauseName)
		case !errors.Is(err, errNotInjected):
			s.t.Errorf("%s: %v", s.name, err)
		}
	}
}

// burst lets all feeds grow, and one of them, now and then, by a lot. Some get slow and
// some fast: entities that are published again after a loss are then in commits of
// other sizes than before.
func (s *scenario) burst() {
	for _, f := range s.published() {
		f.slowDown(0)
		if s.random.IntN(2) == 0 {
			f.slowDown(s.between(0, 1000) / 1000)
		}
		f.grow(20 + s.random.IntN(150))
	}
	if s.random.IntN(2) == 0 {
		s.anyFeed().grow(500 + s.random.IntN(2000))
	}
}

func (s *scenario) between(least, most int) time.Duration {
	return time.Duration(least+s.random.IntN(most-least)) * time.Millisecond
}

func (s *scenario) anyNode() *node    { return s.nodes[s.random.IntN(len(s.nodes))] }
func (s *scenario) anyCopy() *program { return s.copies[s.random.IntN(len(s.copies))] }
func (s *scenario) anyFeed() *feed    { return s.published()[s.random.IntN(len(s.published()))] }

// leader returns a node that leads the topic of some feed or its checkpoints, but not the
// given one.
func (s *scenario) leader(ctx context.Context, not *node) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var candidates []*node
	for _, f := range s.published() {
		leaders, err := s.bus.leaders(ctx, f.topic)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotInjected, err)
		}
		for _, n := range leaders {
			if n != not {
				candidates = append(candidates, n)
			}
		}
	}
	if len(candidates) == 0 {
		return nil, fmt.Errorf("%w: the controller leads everything", errNotInjected)
	}
	return candidates[s.random.IntN(len(candidates))], nil
}

// published returns the feeds that are published now.
func (s *scenario) published() []*feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds
}

// replaceFeeds puts new feeds into the place of some, and restarts the copies. A defect
// of a topic stays there; in the next rounds it would be found again and again.
func (s *scenario) replaceFeeds(old map[*feed]bool) error {
	for _, p := range s.copies {
		if p.run != nil {
			p.run.kill()
		}
	}
	var feeds []*feed
	for _, f := range s.published() {
		if !old[f] {
			feeds = append(feeds, f)
		}
	}
	for len(feeds) < feedsPerScenario {
		s.made++
		name := fmt.Sprintf("feed%d", s.made)
		f := s.upstream.add(name, pageSizes[(s.made+s.made/4)%len(pageSizes)], traitsOf(s.made, s.drawn))
		if s.kind == "nats" && (s.made+s.shared)%4 < 2 {
			f.topic = sharedStream + "." + name
		}
		feeds = append(feeds, f)
	}
	s.mu.Lock()
	s.feeds = feeds
	s.mu.Unlock()
	for _, p := range s.copies {
		p.lacks = nil
		if err := p.configure(s.bus, feeds); err != nil {
			return err
		}
		if err := p.start(); err != nil {
			return err
		}
	}
	return s.waitStarted(feeds)
}

// waitStarted waits until feeds that are read from now on have a checkpoint, and lets them grow.
func (s *scenario) waitStarted(feeds []*feed) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), settleTimeout)
	defer cancel()
	for _, f := range feeds {
		for f.held.Load() {
			cursor, err := s.copies[0].cursor(ctx, f)
			// An http-feed may have many answers with events to skip, and more checkpoints.
			if err == nil && cursor != "" && (f.format == "" || !strings.Contains(cursor, `"start":`)) {
				f.held.Store(false)
				break
			}
			if pause(ctx, 200*time.Millisecond) != nil {
				return fmt.Errorf("%s has no checkpoint %v after it was started: %w", f.name, settleTimeout, err)
			}
		}
	}
	return nil
}

// available reports whether a quorum of the nodes and one copy are up.
func (s *scenario) available() bool {
	nodes, copies := 0, 0
	for _, n := range s.nodes {
		if n.up.Load() {
			nodes++
		}
	}
	for _, p := range s.copies {
		if p.up.Load() {
			copies++
		}
	}
	return 2*nodes > len(s.nodes) && copies > 0
}

// watch looks at the ends of the topics until ctx ends, and measures how long they
// do not move though their feeds have more and the cluster and a copy are up.
func (s *scenario) watch(ctx context.Context) {
	since := time.Now() // when all was up, again
	for pause(ctx, 100*time.Millisecond) == nil {
		for _, f := range s.published() {
			attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
			n, last, err := s.bus.tip(attempt, f.topic)
			cancel()
			if !s.available() {
				since = time.Now()
			}
			f.observe(n, last, err, since)
		}
	}
}

// settle waits until the topics have caught up with the feeds, compares them, and
// counts differences for a fault.
func (s *scenario) settle(fault string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), settleTimeout)
	defer cancel()
	old := map[*feed]bool{} // to be replaced
	for _, f := range s.published() {
		f.endLive()
	}
	for _, f := range s.published() {
		cured := false
		d, where, err := s.catchUp(ctx, f, &cured)
		if s.t.Context().Err() != nil {
			return context.Cause(s.t.Context())
		}
		stalled := f.takeStall()
		s.table.update(fault, func(r *row) {
			r.add(d)
			r.stall = max(r.stall, stalled)
			if cured {
				r.cured++
			}
			if err != nil {
				r.behind++
			}
		})
		if d == (defects{}) && err == nil {
			if b, ok := s.bus.(*natsBus); ok {
				if err := b.checkIngest(ctx, s.copies, f); err != nil {
					return err
				}
			}
			continue
		}
		old[f] = true
		if err != nil {
			where += "; " + err.Error()
		}
		s.t.Errorf("%s: %s: %s: %s of %d entities: %v: %s", time.Now().Format(time.TimeOnly), s.name, fault, f.name, f.Len(), d, where)
		for _, p := range s.copies {
			s.t.Logf("%s: %s: %s", p.name, f.name, p.explain(s.t.Context(), f))
		}
	}
	var full []*feed
	for _, f := range s.published() {
		if f.Len() > fullLength && !old[f] {
			full = append(full, f)
		}
	}
	if len(old)+len(full) == 0 {
		return nil
	}
	for _, f := range full {
		old[f] = true
	}
	if err := s.replaceFeeds(old); err != nil {
		return err
	}
	for _, f := range full {
		if err := s.bus.remove(s.t.Context(), f.topic); err != nil {
			return fmt.Errorf("remove %s: %w", f.name, err)
		}
	}
	return nil
}

// catchUp waits until a topic is its feed, and returns the differences that remain. An
// error reports that the topic has not reached the end of the feed. If the topic has lost its
// checkpoint, the feed must halt; catchUp runs the command that its error names, once, and
// sets cured.
func (s *scenario) catchUp(ctx context.Context, f *feed, cured *bool) (d defects, where string, err error) {
	n, last := f.newest()
	live := f.live(n)
	var reached time.Time // when the topic ended like the feed
	for ctx.Err() == nil {
		if !*cured && f.end().last != last {
			p, said := s.explain(ctx, f)
			if *cured, err = s.cure(ctx, p, f, said); err != nil {
				return d, where, err
			}
			// The answer to a resume was lost, or a pause was carried out late.
			if strings.HasPrefix(said, "paused: ") {
				_ = p.setPaused(ctx, f, false) // an error is tried again
			}
		}
		switch tip := f.end(); {
		case tip.last != last:
			reached = time.Time{}
		case reached.IsZero():
			reached = time.Now()
			continue
		case tip.n == live || time.Since(reached) > doubtTimeout:
			if d, where, err = s.compare(f, n); err == nil && (d == (defects{}) || time.Since(reached) > doubtTimeout) {
				return d, where, nil
			}
		}
		_ = pause(ctx, 200*time.Millisecond)
	}
	if d, where, err = s.compare(f, n); err != nil {
		return d, where, fmt.Errorf("the topic cannot be read %v after all was healed: %w", settleTimeout, err)
	}
	if d == (defects{}) && f.end().last == last {
		return d, where, nil // it waited for the topic of another feed only
	}
	return d, where, fmt.Errorf("it has not caught up %v after all was healed", settleTimeout)
}

// cure runs the command that an error of a feed names, if it names one. A feed that has lost its
// checkpoint is reset. If that would publish entities again that the topic has, or leave some out,
// and if a subject mapping has moved entities away, the position is set to the end of the topic.
func (s *scenario) cure(ctx context.Context, p *program, f *feed, said string) (cured bool, err error) {
	lost := strings.Contains(said, "the topic has lost its checkpoint") && strings.Contains(said, "feedbridge checkpoint reset "+f.name)
	moved := strings.Contains(said, "a subject mapping of the account moves entities away") && strings.Contains(said, "feedbridge checkpoint set "+f.name)
	if !lost && !moved {
		return false, nil
	}
	args := []string{"reset", "--yes", f.name}
	if moved || f.repeats || f.startNow {
		// Dead letters are not moved: those behind the end of the topic are known.
		end, err := s.endOf(ctx, f, !moved)
		if err != nil {
			return false, err
		}
		if end >= 0 {
			args = []string{"set", "--yes", f.name, f.position(end)}
		}
	}
	_, err = p.checkpoint(ctx, args...)
	return true, err
}

// endOf returns the number of the latest entity in a topic, or in it and its dead letters; -1, or
// the one before the first of the topic, if there is none.
func (s *scenario) endOf(ctx context.Context, f *feed, letters bool) (int, error) {
	end := f.base - 1
	for _, dead := range []bool{false, true} {
		if dead && (!letters || !f.deadLetters) {
			continue
		}
		all, err := s.bus.read(ctx, f.topic, dead)
		if err != nil {
			return 0, err
		}
		for _, m := range all {
			end = max(end, f.numberOf(m.id))
		}
	}
	return end, nil
}

// explain returns a copy that runs a feed, and its explanation of the feed's state.
func (s *scenario) explain(ctx context.Context, f *feed) (p *program, said string) {
	for _, p = range s.copies {
		if said = p.explain(ctx, f); said != unknownFeed && !strings.HasPrefix(said, "elsewhere: ") {
			break
		}
	}
	return p, said
}

// compare reads a topic and its dead letters, and compares them with the first n entities of the
// feed.
func (s *scenario) compare(f *feed, n int) (d defects, where string, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	topic, err := s.bus.read(ctx, f.topic, false)
	if err != nil {
		return d, where, err
	}
	var dead []message
	if f.deadLetters {
		if dead, err = s.bus.read(ctx, f.topic, true); err != nil {
			return d, where, err
		}
	}
	if d, where = f.compareAll(topic, dead, n); d == (defects{}) {
		s.table.equal(len(topic), len(dead))
	}
	return d, where, nil
}
