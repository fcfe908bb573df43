package daemon

import (
	"context"

	"github.com/feedbridge/feedbridge/config"
)

// feeds are the feeds that are being copied, by name. One goroutine at a time uses them.
type feeds struct {
	pipelines *pipelines
	running   map[string]*runningFeed
	commands  *feedCommands
}

// runningFeed is a feed that is being copied, or is about to be.
type runningFeed struct {
	cfg config.Feed
	// files is the fingerprint of the files that were read when the feed was started.
	files string
	run   func(context.Context)
	stop  context.CancelFunc
	// ended is closed when the feed has stopped; nil before it is started.
	ended chan struct{}
}

// prepare returns a feed that can be started, and has to be. It takes the place of the feed with
// the same name on the admin server.
func (f *feeds) prepare(name string, cfg config.Feed, b *bus) *runningFeed {
	snk := &busSink{bus: b, name: name, feed: cfg}
	bridge := f.pipelines.newBridge(name, cfg, snk)
	// From now on, so that a request during a reload finds the feed. It waits until the feed runs.
	remove := f.commands.add(bridge)
	return &runningFeed{
		cfg: cfg, files: fingerprintFiles(cfg),
		run: func(ctx context.Context) {
			defer snk.Close()
			defer remove()
			_ = bridge.Run(ctx) // which returns nil
		},
	}
}

// start runs a feed until ctx ends, or until it is stopped.
func (f *feeds) start(ctx context.Context, name string, r *runningFeed) {
	ctx, r.stop = context.WithCancel(ctx)
	r.ended = make(chan struct{})
	f.running[name] = r
	go func() {
		defer close(r.ended)
		defer r.stop()
		r.run(ctx)
	}()
}

// stop stops some of the feeds, and returns when their commits in flight have ended.
func (f *feeds) stop(names []string) {
	for _, name := range names {
		f.running[name].stop()
	}
	for _, name := range names {
		<-f.running[name].ended
		delete(f.running, name)
	}
}

// wait returns when all feeds have ended.
func (f *feeds) wait() {
	for _, r := range f.running {
		<-r.ended
	}
}
