package bridge

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// YieldTime is how long a source may take to return after the end of its context before people, or
// a stop, no longer wait for it.
const YieldTime = 5 * time.Second

// WorkKind is what a step waits for.
type WorkKind string

// The kinds of work.
const (
	ReadingFeed       WorkKind = "reading the feed"
	ReadingCheckpoint WorkKind = "waiting for the bus to return the checkpoint"
	Committing        WorkKind = "waiting for the bus to store a commit"
)

// Work is what the running step of a bridge waits for, and since when. It is the zero Work if no
// step runs.
type Work struct {
	Kind  WorkKind
	Since time.Time
}

func (w Work) String() string {
	if w.Kind == "" {
		return "not running"
	}
	return fmt.Sprintf("%s for %v", w.Kind, time.Since(w.Since).Round(time.Second))
}

// doesNotYield reports whether the source has been at work for YieldTime. That is an error only if
// its context has ended.
func (w Work) doesNotYield() bool {
	return w.Kind == ReadingFeed && time.Since(w.Since) >= YieldTime
}

// work holds the [Work] of a bridge. The zero value is ready. The steps set it, and any goroutine
// reads it.
type work struct{ now atomic.Pointer[Work] }

func (w *work) begin(kind WorkKind) { w.now.Store(&Work{kind, time.Now()}) }
func (w *work) end()                { w.now.Store(nil) }

func (w *work) current() Work {
	if now := w.now.Load(); now != nil {
		return *now
	}
	return Work{}
}

// workSink notes the calls of a sink as work. Between them the step waits for the source.
type workSink struct {
	Sink
	work *work
}

// Resume implements [Sink].
func (s workSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	s.work.begin(ReadingCheckpoint)
	defer s.work.begin(ReadingFeed)
	return s.Sink.Resume(ctx)
}

// Commit implements [Sink].
func (s workSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	s.work.begin(Committing)
	defer s.work.begin(ReadingFeed)
	return s.Sink.Commit(ctx, entities, cp)
}
