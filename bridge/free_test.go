package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
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
		parallel.RunVirtual(t, name, func(t *testing.T) {
			f := &freeing{n: 8, failAt: 3, all: make(chan struct{})}
			b := &bridge.Bridge{
				Feed: "f", Open: func(context.Context, string) (feed.Source, string, error) { return f, "test", nil },
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
	}
}

// freedSource is a feed of batches of two entities. Free overwrites their memory.
type freedSource struct{ read, freed atomic.Int64 }

func (s *freedSource) Next(_ context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	n, _ := strconv.Atoi(string(after))
	var memory [][]byte
	share := func(b []byte) string {
		memory = append(memory, b)
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	var entities []feed.Entity
	for i := range 2 {
		body := bytes.Repeat([]byte("x"), 100<<10)
		entities = append(entities, feed.Entity{ID: share(fmt.Append(nil, 2*n+i)), Op: feed.Put, Body: body, Header: feed.Header{{Name: "N", Value: share([]byte("v"))}}})
		memory = append(memory, body)
	}
	if 2*n == deadFreed {
		entities[0].Dead = &feed.DeadReason{Kind: feed.DeadTooLarge}
	}
	s.read.Add(1)
	return feed.Batch{Entities: entities, Cursor: feed.Cursor(strconv.Itoa(n + 1)), More: true, Free: func() {
		s.freed.Add(1)
		clear(entities)
		for _, b := range memory {
			clear(b)
		}
	}}, nil
}

func (*freedSource) Release() {}

// deadFreed is the number of an entity that is a dead letter.
const deadFreed = 60

// freeingSink frees entities during its commits.
type freeingSink struct {
	t      *testing.T
	source *freedSource
	early  int // batches that were freed during a commit
	next   int // number of the next entity
}

func (s *freeingSink) Resume(context.Context) (checkpoint.Checkpoint, error) {
	return checkpoint.Checkpoint{}, nil
}

func (s *freeingSink) Commit(_ context.Context, entities []feed.Entity, _ checkpoint.Checkpoint) error {
	synctest.Wait()
	read, freed, kept := s.source.read.Load(), s.source.freed.Load(), false
	for i, e := range entities {
		kept = kept || e.Dead != nil
		if e.Free == nil {
			continue
		}
		e.Free()
		before := freed
		freed = s.source.freed.Load()
		switch e := entities[i]; {
		case kept && (freed != before || e.Body == nil):
			s.t.Errorf("a batch behind the dead letter %d is freed", deadFreed)
		case !kept && (freed != before+1 || e.Body != nil || e.Header != nil):
			s.t.Errorf("after Free of entity %d, %d batches are freed, %d before; its header is %v", s.next+i, freed, before, e.Header)
		}
		s.early++
	}
	synctest.Wait()
	if len(entities) > 2 && s.next < deadFreed && s.source.read.Load() == read {
		s.t.Errorf("nothing is read into the memory of the entities from %d on that were freed", s.next)
	}
	return nil
}

// freeingObserver compares the entities of commits.
type freeingObserver struct {
	silentObserver
	sink *freeingSink
	all  chan struct{}
}

func (o *freeingObserver) Processed(b feed.Batch, _ time.Duration) {
	if size := len(b.Entities) * (100<<10 + len("Nv: \r\n")); b.Bytes != size {
		o.sink.t.Errorf("the size is %d, want %d", b.Bytes, size)
	}
	for _, e := range b.Entities {
		if e.ID != strconv.Itoa(o.sink.next) {
			o.sink.t.Errorf("entity %d has the ID %q", o.sink.next, e.ID)
		}
		o.sink.next++
	}
	if o.sink.next > 2*deadFreed && o.all != nil {
		close(o.all)
		o.all = nil
	}
}

// A sink that has stored some entities of a commit frees them, and others are read before it ends. Their
// IDs and the size of all are known after the commit. Dead letters are stored last, so they stay.
func TestSinkFreesEntitiesDuringItsCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := new(freedSource)
		snk := &freeingSink{t: t, source: src}
		all := make(chan struct{})
		budget := readahead.NewBudget(16 << 20)
		b := &bridge.Bridge{
			Feed: "f", Open: func(context.Context, string) (feed.Source, string, error) { return src, "test", nil },
			Sink: snk, Every: time.Minute, ReadAhead: 2 << 20, Share: budget.Share(),
			Log: slog.New(slog.DiscardHandler), Observer: &freeingObserver{sink: snk, all: all},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		b.Start(ctx, func() { close(done) })
		<-all
		cancel()
		<-done
		if snk.early < deadFreed/4 {
			t.Errorf("%d batches are freed during a commit", snk.early)
		}
		wantUnused(t, budget, "some of the budget is not returned")
	})
}
