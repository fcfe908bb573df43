//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fault is something that goes wrong, and is healed again when inject returns.
type fault struct {
	name string
	bus  string // nats or kafka; empty for both
	// nodes is the size of the cluster that it is for; 0 for any.
	nodes int
	// needs returns why the machine does not allow it; nil if every machine does.
	needs  func() string
	inject func(ctx context.Context, s *scenario) error
}

// errNotInjected reports that there was no occasion for a fault.
var errNotInjected = errors.New("not injected")

// faults are all faults, in the order of the table.
var faults = []fault{
	{name: "SIGKILL of a copy", inject: func(ctx context.Context, s *scenario) error {
		return s.killCopy(ctx, s.anyCopy(), s.between(0, 500))
	}},
	{name: "SIGSTOP of a copy", inject: func(ctx context.Context, s *scenario) error {
		return s.freezeCopy(ctx, s.anyCopy(), s.between(200, 4000))
	}},
	{name: "SIGKILL of all copies", inject: killAllCopies},
	{name: "SIGTERM of a node", inject: func(ctx context.Context, s *scenario) error {
		return restart(ctx, s, s.anyNode(), (*node).stop)
	}},
	{name: "SIGKILL of a node", inject: func(ctx context.Context, s *scenario) error {
		return restart(ctx, s, s.anyNode(), (*node).kill)
	}},
	{name: "SIGKILL of all nodes", nodes: 3, inject: killAllNodes},
	{name: "SIGSTOP of a node", inject: func(ctx context.Context, s *scenario) error {
		return freeze(ctx, s, s.anyNode(), s.between(200, 3000))
	}},
	{name: "SIGSTOP of a topic's leader", nodes: 3, inject: func(ctx context.Context, s *scenario) error {
		n, err := s.leader(ctx, nil)
		if err != nil {
			return err
		}
		return freeze(ctx, s, n, s.between(500, 9000))
	}},
	{name: "SIGSTOP of the controller", nodes: 3, inject: func(ctx context.Context, s *scenario) error {
		n, err := s.bus.controller(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotInjected, err)
		}
		return freeze(ctx, s, n, s.between(500, 9000))
	}},
	{name: "loss of the tail of a node", inject: loseTail},
	{name: "loss of the tail, and of the copy that fills it", inject: loseTailAndCopy},
	{name: "loss of the end of a block", bus: "nats", nodes: 1, inject: tearBlock},
	{name: "backup restored on all nodes", inject: restoreBackup},
	{name: "disk full", needs: needsMounts, inject: fillDisk},
	{name: "checkpoint set to its own position", inject: setSameCheckpoint},
	{name: "checkpoint set back", inject: setCheckpointBack},
	{name: pauseName, inject: func(ctx context.Context, s *scenario) error {
		return s.pauseFeed(ctx, s.anyCopy(), s.anyFeed(), s.between(0, 3000))
	}},
	{name: "feed that does not end", inject: growWithoutEnd},
	{name: "answers that break off", inject: tearAnswers},
	{name: "feed that does not yield", inject: holdFeed},
	{name: "copies with different feeds", inject: differ},
	{name: "account limit with live connections", bus: "nats", inject: limitAccount},
	{name: "subject mapping of a topic", bus: "nats", inject: mapSubject},
	{name: "producer quota", bus: "kafka", inject: limitProducers},
	{name: "partitions added to the checkpoints", bus: "kafka", inject: addPartitions},
	{name: "SIGSTOP of the coordinator", bus: "kafka", nodes: 3, inject: freezeCoordinator},
	{name: "SIGKILL of the coordinator", bus: "kafka", nodes: 3, inject: killCoordinator},
	{name: "upgrade of a node", bus: "kafka", needs: needsUpgrade, inject: upgradeNode},
	{name: "deposed leader of dead letters", bus: "kafka", nodes: 3, inject: deposeLeaderOfDeadLetters},
	{name: "node cut off from everyone", nodes: 3, needs: needsNetwork, inject: func(ctx context.Context, s *scenario) error {
		n := s.anyNode()
		return s.cutOff(ctx, []*node{n}, n.unplug, n.plug)
	}},
	{name: "leader cut off from the other nodes", nodes: 3, needs: needsNetwork, inject: cutLeaderOff},
	{name: "leader cut off from the controller", nodes: 3, needs: needsNetwork, inject: cutLeaderOffController},
	{name: "leader and copies frozen together", nodes: 3, inject: freezeLeaderAndCopies},
	{name: "leader cut off while copies are frozen", nodes: 3, needs: needsNetwork, inject: cutLeaderOffFromFrozenCopies},
}

func needsMounts() string {
	if machine.mounts {
		return ""
	}
	return machine.why
}

func needsNetwork() string {
	if machine.network {
		return ""
	}
	return machine.why
}

// faultNames returns the names of all faults, in the order of the table.
func faultNames() (names []string) {
	for _, f := range faults {
		names = append(names, f.name)
	}
	return names
}

// applicable returns the faults for a cluster of a size. It notes in the table which
// ones the machine does not allow.
func applicable(bus string, nodes int, tab *table) (list []fault) {
	for _, f := range faults {
		if f.bus != "" && f.bus != bus || f.nodes != 0 && f.nodes != nodes || !strings.Contains(f.name, flags.only) {
			continue
		}
		if f.needs != nil && f.needs() != "" {
			tab.skip(f.name, f.needs())
			continue
		}
		list = append(list, f)
	}
	return list
}

// killCopy kills a copy and starts it again after some time.
func (s *scenario) killCopy(ctx context.Context, p *program, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.kill(); err != nil {
		return err
	}
	_ = pause(ctx, d)
	return p.start()
}

func (s *scenario) freezeCopy(ctx context.Context, p *program, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeze()
	defer p.thaw()
	_ = pause(ctx, d)
	return nil
}

func killAllCopies(ctx context.Context, s *scenario) error {
	for _, p := range s.copies {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	for _, p := range s.copies {
		if err := p.kill(); err != nil {
			return err
		}
	}
	_ = pause(ctx, s.between(0, 500))
	for _, p := range s.copies {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

// restart ends a node and starts it again.
func restart(ctx context.Context, s *scenario, n *node, end func(*node)) error {
	end(n)
	_ = pause(ctx, s.between(0, 2000))
	return n.start(ctx)
}

func killAllNodes(ctx context.Context, s *scenario) error {
	for _, n := range s.nodes {
		n.kill()
	}
	_ = pause(ctx, s.between(0, 1000))
	return startAll(ctx, s.nodes)
}

// freeze stops a node's process for a time. The feeds grow meanwhile.
func freeze(ctx context.Context, s *scenario, n *node, d time.Duration) error {
	n.freeze()
	_ = pause(ctx, d/2)
	s.burst()
	_ = pause(ctx, d/2)
	return n.thaw(ctx)
}

// loseTail removes from one node its newest data, as a power cut does.
func loseTail(ctx context.Context, s *scenario) error {
	return rewind(ctx, s, []*node{s.anyNode()}, s.between(100, 2000))
}

// rest lets no feed grow until all copies are idle. Then each copy knows the newest
// checkpoint, and commits at once when its feed has grown. Call grow to go on.
func (s *scenario) rest(ctx context.Context) (grow func()) {
	s.quiet.Store(true)
	// A copy that has lost a race looks twice, a second apart.
	_ = pause(ctx, 3*time.Second)
	return func() { s.quiet.Store(false) }
}

// freezeAllButOne freezes copies, and returns the one that goes on. No other fault is
// injected into the frozen ones until thaw is called. It may be called again.
func (s *scenario) freezeAllButOne() (awake *program, thaw func()) {
	awake = s.anyCopy()
	var frozen []*program
	for _, p := range s.copies {
		if p != awake {
			p.mu.Lock()
			p.freeze()
			frozen = append(frozen, p)
		}
	}
	return awake, sync.OnceFunc(func() {
		for _, p := range frozen {
			p.thaw()
			p.mu.Unlock()
		}
	})
}

// loseTailAndCopy has one copy publish a lost tail again, in smaller commits, and kills it at
// that. The others know the earlier content of the topic.
func loseTailAndCopy(ctx context.Context, s *scenario) error {
	saved, err := saveAll(s.nodes)
	if err != nil {
		return err
	}
	measure := s.anyFeed()
	kept := measure.end().n
	for _, f := range s.published() {
		f.slowDown(0)
		f.grow(300 + s.random.IntN(1200))
	}
	_ = pause(ctx, s.between(100, 3000))
	lost := measure.end().n - kept
	filling, thaw := s.freezeAllButOne()
	defer thaw()
	filling.mu.Lock()
	defer filling.mu.Unlock()
	for _, f := range s.published() {
		f.slowDown(time.Millisecond)
	}
	if err := takeBack(ctx, s.nodes, saved); err != nil {
		return err
	}
	// One that has just started does not wait before it tries again.
	filling.run.kill()
	if err := filling.start(); err != nil {
		return err
	}
	half := kept + int(float64(lost)*(0.5+s.random.Float64()/2))
	for range 50 {
		if measure.end().n >= half {
			break
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
	err = filling.kill()
	thaw()
	_ = pause(ctx, s.between(0, 3000))
	return errors.Join(err, filling.start())
}

// restoreBackup takes all nodes back to an earlier moment.
func restoreBackup(ctx context.Context, s *scenario) error {
	return rewind(ctx, s, s.nodes, s.between(3000, 8000))
}

func rewind(ctx context.Context, s *scenario, nodes []*node, age time.Duration) error {
	saved, err := saveAll(nodes)
	if err != nil {
		return err
	}
	_ = pause(ctx, age/2)
	s.burst()
	_ = pause(ctx, age/2)
	return takeBack(ctx, nodes, saved)
}

// takeBack kills nodes, and starts them with saved stores.
func takeBack(ctx context.Context, nodes []*node, saved []string) error {
	for _, n := range nodes {
		n.kill()
	}
	for i, n := range nodes {
		if err := n.restore(saved[i]); err != nil {
			return err
		}
	}
	return startAll(ctx, nodes)
}

// tearBlock cuts bytes off the newest block of a stream.
func tearBlock(ctx context.Context, s *scenario) error {
	n := s.anyNode()
	n.kill()
	files, err := filepath.Glob(filepath.Join(n.store, "jetstream", natsAccount, "streams", streamOf(s.anyFeed().topic), "msgs", "*.blk"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.Join(errNotInjected, n.start(ctx))
	}
	newest := slices.MaxFunc(files, func(a, b string) int { return blockNumber(a) - blockNumber(b) })
	info, err := os.Stat(newest)
	if err != nil {
		return err
	}
	if err := os.Truncate(newest, max(0, info.Size()-int64(1+s.random.IntN(32<<10)))); err != nil {
		return err
	}
	return n.start(ctx)
}

func blockNumber(path string) (n int) {
	_, _ = fmt.Sscanf(filepath.Base(path), "%d.blk", &n)
	return n
}

// fillDisk leaves a node no space for some time. It is restarted when there is space
// again: nats-server turns JetStream off, and a broker ends.
func fillDisk(ctx context.Context, s *scenario) error {
	n := s.anyNode()
	free, err := n.fill()
	if err != nil {
		return err
	}
	s.burst()
	_ = pause(ctx, s.between(1000, 4000))
	if err := free(); err != nil {
		return err
	}
	n.kill()
	return n.start(ctx)
}

func setSameCheckpoint(ctx context.Context, s *scenario) error {
	p, f := s.anyCopy(), s.feedToMove()
	cursor, err := p.cursor(ctx, f)
	if err == nil && cursor == "" {
		err = errors.New("nothing is published")
	}
	if err == nil {
		_, err = p.checkpoint(ctx, "set", "--yes", f.name, cursor)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	return nil
}

// feedToMove returns a feed whose dedupe window has the whole topic.
func (s *scenario) feedToMove() *feed {
	for {
		if f := s.anyFeed(); !f.repeats {
			return f
		}
	}
}

// setCheckpointBack makes the copies read some of the feed, or all of it, again. They drop the
// entities that the topic has.
func setCheckpointBack(ctx context.Context, s *scenario) error {
	f := s.feedToMove()
	position := "beginning"
	if n := f.end().n; n > 0 && (f.startNow || s.random.IntN(4) > 0) {
		position = f.position(f.base + s.random.IntN(n))
	}
	if _, err := s.anyCopy().checkpoint(ctx, "set", "--yes", f.name, position); err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	return nil
}

const pauseName = "pause and resume of a feed"

// pauseFeed pauses a feed for some time. A copy changes it, or a command does on the bus. A pause
// whose answer is lost may be stored, and one that a frozen copy was asked for may be stored
// later; catchUp ends those.
func (s *scenario) pauseFeed(ctx context.Context, p *program, f *feed, d time.Duration) error {
	if !f.paused.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: it is paused already", errNotInjected)
	}
	defer f.paused.Store(false)
	err := p.setPaused(ctx, f, true)
	if err == nil {
		_ = pause(ctx, d)
	}
	if err := errors.Join(err, p.setPaused(s.t.Context(), f, false)); err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	return nil
}

// cutOff lets some nodes be unreachable for a time. The feeds grow meanwhile. Nodes
// that clients reach still count as up.
func (s *scenario) cutOff(ctx context.Context, unreachable []*node, cut, heal func() error) error {
	for _, n := range unreachable {
		n.up.Store(false)
	}
	if err := cut(); err != nil {
		return err
	}
	d := s.between(500, 9000)
	_ = pause(ctx, d/2)
	s.burst()
	_ = pause(ctx, d/2)
	if err := heal(); err != nil {
		return err
	}
	for _, n := range s.nodes {
		if err := n.waitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cutLeaderOff cuts the leader of a topic off from the other nodes. Clients reach it,
// and it does not know yet that it does not lead any more.
func cutLeaderOff(ctx context.Context, s *scenario) error {
	n, err := s.leader(ctx, nil)
	if err != nil {
		return err
	}
	cut, heal := s.links(n, s.nodes)
	return s.cutOff(ctx, nil, cut, heal)
}

// cutLeaderOffController lets a leader reach all nodes but the controller.
func cutLeaderOffController(ctx context.Context, s *scenario) error {
	n, controller, err := s.leaderAndController(ctx)
	if err != nil {
		return err
	}
	cut, heal := s.links(n, []*node{controller})
	return s.cutOff(ctx, nil, cut, heal)
}

// leaderAndController returns a leader, and the controller, which is another node.
func (s *scenario) leaderAndController(ctx context.Context) (leader, controller *node, err error) {
	controller, err = s.bus.controller(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNotInjected, err)
	}
	leader, err = s.leader(ctx, controller)
	return leader, controller, err
}

// links returns functions that drop all packets between a node and others, and that
// let them through again.
func (s *scenario) links(n *node, others []*node) (cut, heal func() error) {
	each := func(change func(place) error) func() error {
		return func() error {
			for _, other := range others {
				if other != n {
					if err := change(other.place); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	return each(n.block), each(n.unblock)
}

// freezeLeaderAndCopies freezes a leader until another node leads, and all copies but one. When
// they continue, neither the leader nor the copies know the commits since.
func freezeLeaderAndCopies(ctx context.Context, s *scenario) error {
	n, err := s.leader(ctx, nil)
	if err != nil {
		return err
	}
	defer s.rest(ctx)()
	_, thaw := s.freezeAllButOne()
	defer thaw()
	n.freeze()
	s.burst()
	_ = pause(ctx, s.between(4000, 9000))
	n.run.signal(syscall.SIGCONT)
	thaw()
	return n.waitReady(ctx)
}

// cutLeaderOffFromFrozenCopies lets the leader of a topic be deposed by the controller,
// which it cannot reach, and then asked by copies that take it for the leader still.
func cutLeaderOffFromFrozenCopies(ctx context.Context, s *scenario) error {
	n, controller, err := s.leaderAndController(ctx)
	if err != nil {
		return err
	}
	defer s.rest(ctx)()
	_, thaw := s.freezeAllButOne()
	defer thaw()
	cut, heal := s.links(n, []*node{controller})
	if err := cut(); err != nil {
		return err
	}
	// Commits before another node leads are known to this one, too.
	_ = pause(ctx, s.between(3500, 6000))
	s.burst()
	_ = pause(ctx, s.between(500, 3000))
	thaw()
	_ = pause(ctx, s.between(500, 4000))
	if err := heal(); err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// growWithoutEnd lets a feed grow by a page with each request, for some time: no read of it ends.
func growWithoutEnd(ctx context.Context, s *scenario) error {
	f := s.anyFeed()
	f.endless.Store(true)
	defer f.endless.Store(false)
	f.slowDown(2 * time.Millisecond) // an entity
	defer f.slowDown(0)
	_ = pause(ctx, s.between(2000, 8000))
	return nil
}

// tearAnswers lets answers of all feeds break off for some time.
func tearAnswers(ctx context.Context, s *scenario) error {
	for _, f := range s.published() {
		f.torn.Store(true)
		defer f.torn.Store(false)
	}
	s.burst()
	_ = pause(ctx, s.between(1000, 6000))
	return nil
}

// holdFeed keeps a feed of a copy from yielding: its token is in a pipe that nobody fills, as on a file
// system that does not answer. The copy must carry out a pause, a reload that removes the feed, one that
// adds it again while the old one is left behind, and a stop.
func holdFeed(ctx context.Context, s *scenario) error {
	// The first copy has no socket. In a fleet one copy reads the feed.
	p, f := s.copies[1+s.random.IntN(len(s.copies)-1)], s.anyFeed()
	for range 20 {
		if status, err := p.status(ctx, f); err == nil && status.Owner == "" && (status.State == "idle" || status.State == "reading") {
			break
		}
		p, f = s.copies[1+s.random.IntN(len(s.copies)-1)], s.anyFeed()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fill, err := p.holdToken(ctx, f)
	if err != nil {
		return err
	}
	defer fill()
	s.burst()
	if err := s.pauseFeed(ctx, p, f, s.between(0, 2000)); err != nil && !errors.Is(err, errNotInjected) {
		return err
	}
	for _, lacks := range []map[*feed]bool{{f: true}, nil} {
		p.lacks = lacks
		if err := p.configure(s.bus, s.published()); err != nil {
			return err
		}
		out, err := p.command(ctx, "reload", "--json", "-c", p.config)
		left := strings.Contains(string(out), `"feed": "`+f.name+`"`)
		if err == nil && lacks != nil && !left {
			// A request for a page ahead reads the token, and the feed does not wait for it.
			fill()
			p.lacks = nil
			if err := p.configure(s.bus, s.published()); err != nil {
				return err
			}
			if out, err := p.command(ctx, "reload", "--json", "-c", p.config); err != nil {
				return fmt.Errorf("reload of %s: %w: %s", p.name, err, out)
			}
			return fmt.Errorf("%w: %s of %s yields while its token is read", errNotInjected, f.name, p.name)
		}
		if err != nil || left != (lacks != nil) {
			return fmt.Errorf("reload of %s while %s does not yield: %w: %s", p.name, f.name, err, out)
		}
	}
	_ = pause(ctx, s.between(0, 2000))
	fill()
	fillAgain, err := p.holdToken(ctx, f)
	if errors.Is(err, errNotInjected) {
		return nil // another copy runs the feed now
	} else if err != nil {
		return err
	}
	defer fillAgain()
	p.up.Store(false)
	p.run.signal(syscall.SIGTERM)
	select {
	case <-p.run.done:
	case <-time.After(stopLimit):
		return fmt.Errorf("%s does not stop within %v while %s does not yield", p.name, stopLimit, f.name)
	}
	return p.start()
}

// stopLimit is longer than a copy may take to stop: its grace time is 30 s.
const stopLimit = 45 * time.Second

// holdToken makes a copy read the token of a feed from a pipe, and returns when it does. fill fills the pipe.
// The next request reads a file again.
func (p *program) holdToken(ctx context.Context, f *feed) (fill func(), err error) {
	path := p.token(f)
	if err := errors.Join(syscall.Mkfifo(path+".pipe", 0o600), os.Rename(path+".pipe", path)); err != nil {
		return nil, err
	}
	for range 50 {
		// It can be opened like this while it is being read.
		if pipe, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			return sync.OnceFunc(func() {
				_, _ = pipe.WriteString(token)
				_ = pipe.Close()
			}), p.writeToken(f)
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("%w: %s does not read %s", errNotInjected, p.name, f.name), p.writeToken(f))
}

// differ gives the copies different feeds, each of which some copy has. That lasts until the topics
// were compared.
func differ(ctx context.Context, s *scenario) error {
	s.burst()
	lacks := make([]map[*feed]bool, len(s.copies))
	for i := range lacks {
		lacks[i] = map[*feed]bool{}
	}
	for _, f := range s.published() {
		owner := s.random.IntN(len(s.copies))
		for i := range s.copies {
			lacks[i][f] = i != owner && s.random.IntN(3) > 0
		}
	}
	for i, p := range s.copies {
		delete(lacks[i], s.anyFeed()) // a configuration without feeds is refused
		if err := s.reload(p, lacks[i]); err != nil {
			return err
		}
		_ = pause(ctx, s.between(0, 1000)) // a rollout takes some time
	}
	s.burst()
	_ = pause(ctx, s.between(0, 4000))
	return nil
}

// agree gives all copies all feeds.
func (s *scenario) agree() error {
	for _, p := range s.copies {
		if len(p.lacks) > 0 {
			if err := s.reload(p, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// reload makes a copy read a configuration without some feeds.
func (s *scenario) reload(p *program, lacks map[*feed]bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lacks = lacks
	if err := p.configure(s.bus, s.published()); err != nil {
		return err
	}
	// One that has just been started may not expect the signal yet.
	for range 100 {
		if p.answers(s.t.Context()) {
			p.run.signal(syscall.SIGHUP)
			return nil
		}
		_ = pause(s.t.Context(), 100*time.Millisecond)
	}
	if err := p.kill(); err != nil {
		return err
	}
	return p.start()
}
