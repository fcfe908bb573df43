package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
)

// slowTopic is a topic whose Resume takes that long.
type slowTopic struct {
	topicSink
	took     time.Duration
	now, max *atomic.Int64
}

func (s slowTopic) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	if n := s.now.Add(1); n > s.max.Load() {
		s.max.Store(n)
	}
	defer s.now.Add(-1)
	select {
	case <-time.After(s.took):
		return checkpoint.Checkpoint{}, nil
	case <-ctx.Done():
		return checkpoint.Checkpoint{}, ctx.Err()
	}
}

func (s slowTopic) Commit(ctx context.Context, _ []feed.Entity, _ checkpoint.Checkpoint) error {
	_, err := s.Resume(ctx)
	return err
}

func TestAtMost64FeedsOfABusWaitForItAtATime(t *testing.T) {
	for name, do := range map[string]func(*testing.T, *lazySink) error{
		"Resume": func(t *testing.T, s *lazySink) error { _, err := s.Resume(t.Context()); return err },
		"Commit": func(t *testing.T, s *lazySink) error { return s.Commit(t.Context(), nil, checkpoint.Checkpoint{}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus("main", config.Bus{}, slog.New(slog.DiscardHandler))
			var now, most atomic.Int64
			done := make(chan error)
			for range 1000 {
				go func() {
					done <- do(t, &lazySink{bus: b, running: t.Context(), topicSink: slowTopic{nil, time.Second, &now, &most}})
				}()
			}
			for range 1000 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if got := most.Load(); got != 64 {
				t.Errorf("%s of %d feeds at a time, want 64", name, got)
			}
		})
	}
}

// A topic that nobody answers for does not stop the feeds of other topics.
func TestFeedsThatCannotResumeDoNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus("main", config.Bus{}, slog.New(slog.DiscardHandler))
		var now, most atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		stuck := make(chan error, 100)
		for range 100 {
			go func() {
				_, err := (&lazySink{bus: b, topicSink: slowTopic{nil, time.Hour, &now, &most}}).Resume(ctx)
				stuck <- err
			}()
		}
		synctest.Wait()
		begin := time.Now()
		if _, err := (&lazySink{bus: b, topicSink: slowTopic{nil, time.Second, &now, &most}}).Resume(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("it took %v to resume", took)
		}
		cancel()
		for range 100 {
			if err := <-stuck; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}
