package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// freeing is a feed of n batches of one entity, and a sink that fails at one commit. It notes
// which batches were freed when.
type freeing struct {
	n      int
	failAt int // the commit that fails, from 1; its entities are committed again later

	mu      sync.Mutex
	commits int
	newest  checkpoint.Checkpoint
	log     []string
	all     chan struct{} // closed when n entities were committed
}

func (f *freeing) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf(format, args...))
}

func (f *freeing) Next(_ context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	n, _ := strconv.Atoi(string(after)) // the empty cursor is the beginning
	if n == f.n {
		return feed.Batch{Cursor: after}, nil
	}
	return feed.Batch{
		Entities: []feed.Entity{{ID: strconv.Itoa(n), Op: feed.Put}}, Cursor: feed.Cursor(strconv.Itoa(n + 1)), More: true,
		Free: func() { f.note("free %d", n) },
	}, nil
}

func (*freeing) Release() {}

func (f *freeing) Resume(context.Context) (checkpoint.Checkpoint, error) { return f.newest, nil }

func (f *freeing) Commit(_ context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	time.Sleep(time.Second) // meanwhile the next batches are read
	f.commits++
	if f.commits == f.failAt {
		f.note("fail")
		return errors.New("the answer is lost")
	}
	for _, e := range entities {
		f.note("commit %s", e.ID)
	}
	if f.newest = cp; cp.Count == uint64(f.n) {
		close(f.all)
	}
	return nil
}

type silentObserver struct{}

func (silentObserver) Polled(feed.Batch, error, time.Duration) {}
func (silentObserver) Processed(feed.Batch, time.Duration)     {}
func (silentObserver) Entered(bridge.Status)                   {}

// A batch is freed after its commit, and never if that failed: the sink may still send it.
func TestBatchesAreFreedAfterTheirCommitOnly(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"joined": 3, "single": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &freeing{n: 8, failAt: 3, all: make(chan struct{})}
				b := &bridge.Bridge{
					Feed: "f", Open: func(context.Context, string) (bridge.Source, string, error) { return f, "test", nil },
					Sink: f, Every: time.Minute, Limits: feed.Limits{Entities: limit}, ReadAhead: 1 << 20,
					Log: slog.New(slog.DiscardHandler), Observer: silentObserver{},
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				b.Start(ctx, func() { close(done) })
				<-f.all
				synctest.Wait()
				cancel()
				<-done
				for i := range f.n {
					commit, free := slices.Index(f.log, fmt.Sprintf("commit %d", i)), slices.Index(f.log, fmt.Sprintf("free %d", i))
					if commit < 0 || free < commit {
						t.Errorf("batch %d is committed at %d and freed at %d of %q", i, commit, free, f.log)
					}
				}
				frees := 0
				for _, line := range f.log {
					if line[:4] == "free" {
						frees++
					}
				}
				if frees != f.n || !slices.Contains(f.log, "fail") {
					t.Errorf("%d of %d batches are freed: %q", frees, f.n, f.log)
				}
			})
		})
	}
}
