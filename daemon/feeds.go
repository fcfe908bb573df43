package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/config"
)

// feeds are the feeds that are being copied, by name. One goroutine at a time uses them.
type feeds struct {
	pipelines *pipelines
	running   map[string]*runningFeed
	commands  *feedCommands
	// released are those that were stopped and may still commit.
	released sync.WaitGroup
}

// runningFeed is a feed that is being copied, or is about to be.
type runningFeed struct {
	// files is the fingerprint of the files that were read when the feed was started.
	files string
	// run starts the feed, and calls stopped when it has ended.
	run  func(ctx context.Context, stopped func())
	stop context.CancelFunc
	// nextPoll is [bridge.Bridge.NextPoll].
	nextPoll func(time.Time) time.Time
	// ended is closed when the feed has stopped; nil before it is started.
	ended chan struct{}
}

// prepare returns a feed that can be started, and has to be. It takes the place of the feed with
// the same name on the admin server.
func (f *feeds) prepare(name string, cfg config.Feed, b *bus) *runningFeed {
	snk := &busSink{bus: b, name: name, feed: &cfg}
	bridge := f.pipelines.newBridge(name, &cfg, snk)
	// From now on, so that a request during a reload finds the feed. It waits until the feed runs.
	remove := f.commands.add(bridge)
	return &runningFeed{
		files: fingerprintFiles(cfg), nextPoll: bridge.NextPoll,
		run: func(ctx context.Context, stopped func()) {
			snk.stopping = ctx.Done()
			removeHints := b.hints.add(cfg.To.Topic, bridge.Hint)
			bridge.Start(ctx, func() {
				removeHints()
				remove()
				snk.Close()
				stopped()
			})
		},
	}
}

// startAll starts feeds in the order in which they will be polled. So none is polled again while
// others wait for their first poll.
func (f *feeds) startAll(ctx context.Context, prepared map[string]*runningFeed) {
	now := time.Now()
	order := map[string]time.Time{}
	for name, r := range prepared {
		order[name] = r.nextPoll(now)
	}
	for _, name := range slices.SortedFunc(maps.Keys(prepared), func(a, b string) int { return order[a].Compare(order[b]) }) {
		f.start(ctx, name, prepared[name])
	}
}

// start runs a feed until ctx ends, or until it is stopped.
func (f *feeds) start(ctx context.Context, name string, r *runningFeed) {
	ctx, r.stop = context.WithCancel(ctx)
	r.ended = make(chan struct{})
	f.running[name] = r
	r.run(ctx, func() {
		r.stop()
		close(r.ended)
	})
}

// hasFiles reports whether a feed was started with the files that it has now. One that another
// copy runs reads its files when it is started here.
func (f *feeds) hasFiles(name string, cfg config.Feed) bool {
	r := f.running[name]
	return r == nil || r.files == fingerprintFiles(cfg)
}

// stop stops those of some feeds that are running, and returns when their commits in flight have
// ended.
func (f *feeds) stop(names []string) {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return f.running[name] == nil })
	for _, name := range names {
		f.running[name].stop()
	}
	for _, name := range names {
		<-f.running[name].ended
		delete(f.running, name)
	}
}

// release stops those of some feeds that are running, and closes ended when their commits in flight
// have ended. A feed that is started again before that is like that of another copy: the fence
// refuses one of the two.
func (f *feeds) release(names []string) (ended <-chan struct{}) {
	var released []*runningFeed
	for _, name := range names {
		if r := f.running[name]; r != nil {
			r.stop()
			delete(f.running, name)
			released = append(released, r)
		}
	}
	all := make(chan struct{})
	f.released.Go(func() {
		defer close(all)
		for _, r := range released {
			<-r.ended
		}
	})
	return all
}

// wait returns when all feeds have ended.
func (f *feeds) wait() {
	f.released.Wait()
	for _, r := range f.running {
		<-r.ended
	}
}
