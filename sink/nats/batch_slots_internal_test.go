package nats

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// newSlotSink returns a sink of a stream that takes one batch at a time.
func newSlotSink() *Sink {
	return &Sink{
		client: &client{cfg: Config{Timeout: 10 * time.Second}},
		topic:  &Topic{Stream: Stream{Name: "feeds"}},
		shared: &openStream{batches: limit.New(1, 0)},
	}
}

// A commit that has waited for its slot has as much time for its own requests as any other. Otherwise
// commits that waited long would be sent and given up, and the server would keep each of them for 10 s.
func TestCommitThatWaitedForItsSlotHasItsFullTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotSink()
		_, free, err := s.commitContext(t.Context(), true)
		must.Succeed(t, err)
		time.AfterFunc(29*time.Second, free)
		ctx, free, err := s.commitContext(t.Context(), true)
		must.Succeed(t, err)
		if deadline, _ := ctx.Deadline(); time.Until(deadline) != 30*time.Second {
			t.Errorf("the commit has %v, want 30s", time.Until(deadline))
		}
		free()
		if ctx.Err() == nil {
			t.Error("the context outlives the commit")
		}
	})
}

// Only a batch needs a slot, and no commit waits for one forever.
func TestCommitWaitsForItsSlotForSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotSink()
		_, free, err := s.commitContext(t.Context(), true)
		must.Succeed(t, err)
		began := time.Now()
		if _, _, err := s.commitContext(t.Context(), true); err == nil || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %v, want an error after 30s", time.Since(began), err)
		}
		_, release, err := s.commitContext(t.Context(), false)
		must.Succeed(t, err)
		release()
		if s.shared.batches.TryAcquire() != nil {
			t.Error("a commit without entities has freed a slot that it did not have")
		}
		free()
		if s.shared.batches.TryAcquire() == nil {
			t.Error("the slot is not free")
		}
	})
}
