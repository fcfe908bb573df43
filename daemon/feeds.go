package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
)

// feeds are the feeds that are being copied, by name. One goroutine at a time uses them, except for
// settle, which waits and is called without a lock.
type feeds struct {
	pipelines *pipelines
	running   map[string]*runningFeed
	commands  *feedCommands
	// stopping are those that were stopped and may not have ended.
	stopping []*runningFeed
}

// runningFeed is a feed that is being copied, or is about to be.
type runningFeed struct {
	name string
	// files is the fingerprint of the files that were read when the feed was started.
	files string
	// run starts the feed, and calls stopped when it has ended.
	run  func(ctx context.Context, stopped func())
	stop context.CancelFunc
	// begin calls run, once.
	begin func()
	// nextPoll is [bridge.Bridge.NextPoll], and work [bridge.Bridge.Work].
	nextPoll func(time.Time) time.Time
	work     func() bridge.Work
	// ended is closed when the feed has stopped; nil before it is added.
	ended chan struct{}
}

// LeftBehind is a feed that was stopped and has not ended in time.
type LeftBehind struct {
	Feed string `json:"feed"`
	// Work is what it waits for.
	Work string `json:"work"`
}

// prepare returns a feed that can be started, and has to be. It takes the place of the feed with
// the same name on the admin server.
func (f *feeds) prepare(name string, cfg config.Feed, b *bus) *runningFeed {
	snk := &lazySink{bus: b, name: name, feed: &cfg}
	bridge := f.pipelines.newBridge(name, &cfg, snk)
	// From now on, so that a request during a reload finds the feed. It waits until the feed runs.
	remove := f.commands.add(bridge, cfg, b)
	return &runningFeed{
		name: name, files: fingerprintFiles(cfg), nextPoll: bridge.NextPoll, work: bridge.Work,
		run: func(ctx context.Context, stopped func()) {
			snk.running = ctx
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

// startAll starts feeds that run until ctx ends, or until they are stopped.
func (f *feeds) startAll(ctx context.Context, prepared map[string]*runningFeed) {
	f.addAll(ctx, prepared)()
}

// addAll adds feeds, and returns a function that starts them. They run until ctx ends, or until they are
// stopped; one that is stopped before it is started ends at once.
//
// Feeds start in the order in which they will be polled. So none is polled again while others wait for
// their first poll.
func (f *feeds) addAll(ctx context.Context, prepared map[string]*runningFeed) (start func()) {
	now := time.Now()
	order := map[string]time.Time{}
	for name, r := range prepared {
		order[name] = r.nextPoll(now)
		f.add(ctx, name, r)
	}
	return func() {
		for _, name := range slices.SortedFunc(maps.Keys(prepared), func(a, b string) int { return order[a].Compare(order[b]) }) {
			prepared[name].begin()
		}
	}
}

func (f *feeds) add(ctx context.Context, name string, r *runningFeed) {
	ctx, r.stop = context.WithCancel(ctx)
	r.ended = make(chan struct{})
	r.begin = sync.OnceFunc(func() {
		r.run(ctx, func() {
			r.stop()
			close(r.ended)
		})
	})
	context.AfterFunc(ctx, r.begin)
	f.running[name] = r
}

// hasFiles reports whether a feed was started with the files that it has now. One that another
// copy runs reads its files when it is started here.
func (f *feeds) hasFiles(name string, cfg config.Feed) bool {
	r := f.running[name]
	return r == nil || r.files == fingerprintFiles(cfg)
}

// stop stops those of some feeds that are running, and returns them. A feed that is started again before
// they have ended is like that of another copy: the fence refuses one of the two.
func (f *feeds) stop(names []string) (stopped []*runningFeed) {
	f.stopping = slices.DeleteFunc(f.stopping, (*runningFeed).hasEnded)
	for _, name := range names {
		if r := f.running[name]; r != nil {
			r.stop()
			delete(f.running, name)
			stopped = append(stopped, r)
		}
	}
	f.stopping = append(f.stopping, stopped...)
	return stopped
}

// settle waits until feeds that were stopped have ended, for [bridge.YieldTime] at most. Those that have
// not are left behind: they are shown until they end, and nobody waits for them any more. A commit in
// flight may still end; after that they commit nothing.
func (f *feeds) settle(stopped []*runningFeed) []LeftBehind {
	left := []LeftBehind{}
	for _, r := range awaitEnds(stopped, bridge.YieldTime) {
		work, log := r.work().String(), f.pipelines.opts.Log
		left = append(left, LeftBehind{r.name, work})
		log.Warn("a feed was stopped and does not end; it is left behind, and its memory is freed when it ends or feedbridge is restarted", "feed", r.name, "work", work)
		remove := f.pipelines.adm.AddLeftBehind(r.name, func() string { return r.work().String() })
		go func() {
			<-r.ended
			remove()
			log.Info("a feed that was left behind has ended", "feed", r.name)
		}()
	}
	return left
}

// all returns the feeds that have not ended.
func (f *feeds) all() []*runningFeed {
	return slices.AppendSeq(slices.DeleteFunc(slices.Clone(f.stopping), (*runningFeed).hasEnded), maps.Values(f.running))
}

// endAll waits until feeds have ended, after the end of their context. It waits until the grace time is
// over for those that commit, and for the others for [bridge.YieldTime] at most: they have nothing that
// could be lost. It returns those that have not ended.
func endAll(all []*runningFeed, grace time.Duration) (committing, others []LeftBehind) {
	stopBy := time.Now().Add(grace)
	commits := func(r *runningFeed) bool { return r.work().Kind == bridge.Committing }
	left := awaitEnds(all, min(grace, bridge.YieldTime))
	awaitEnds(slices.DeleteFunc(slices.Clone(left), func(r *runningFeed) bool { return !commits(r) }), time.Until(stopBy))
	for _, r := range left {
		switch b := (LeftBehind{r.name, r.work().String()}); {
		case r.hasEnded():
		case commits(r):
			committing = append(committing, b)
		default:
			others = append(others, b)
		}
	}
	return committing, others
}

// awaitEnds waits until feeds have ended, and returns those that have not after a time.
func awaitEnds(all []*runningFeed, limit time.Duration) (left []*runningFeed) {
	over := time.After(limit)
	for i, r := range all {
		select {
		case <-r.ended:
		case <-over:
			return slices.DeleteFunc(slices.Clone(all[i:]), (*runningFeed).hasEnded)
		}
	}
	return nil
}

func (r *runningFeed) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}
