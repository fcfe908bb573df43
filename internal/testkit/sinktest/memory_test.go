package sinktest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

var (
	_ bridge.Sink   = (*sinktest.MemorySink)(nil)
	_ sinktest.Sink = (*sinktest.MemorySink)(nil)
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	sinktest.Test(t, open)
}

func TestMemoryConformsAfterARewind(t *testing.T) {
	t.Parallel()
	sinktest.TestRewind(t, open)
}

// open returns a fresh topic in memory.
func open(*testing.T) sinktest.Topic {
	var m sinktest.Memory
	return sinktest.Topic{
		Open:        func() sinktest.Sink { return m.Open(sinktest.Faults{}) },
		Log:         m.Log(),
		DeadLetters: m.DeadLog(),
		MaxEntities: 1000,
		Window:      50,
		Backup:      func(*testing.T) func() { return m.Backup() },
	}
}

// attempt resumes s and commits entity 0 to it.
func attempt(t *testing.T, s *sinktest.MemorySink) error {
	t.Helper()
	if _, err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.Commit(t.Context(), sinktest.Entities(0, 1), sinktest.At(1))
}

func failing(fault sinktest.Fault) sinktest.Faults {
	return sinktest.Faults{Commit: func() sinktest.Fault { return fault }}
}

func TestMemoryFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind sinktest.Kind
		want int
	}{
		"fail before": {sinktest.FailBefore, 0},
		"fail after":  {sinktest.FailAfter, 1},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var m sinktest.Memory
			if err := attempt(t, m.Open(failing(sinktest.Fault{Kind: test.kind}))); !errors.Is(err, sinktest.ErrFault) {
				t.Errorf("error %v, want ErrFault", err)
			}
			if n := len(m.Entities()); n != test.want || m.Checkpoint().Count != uint64(test.want) {
				t.Errorf("%d entities, checkpoint %+v, want %d", n, m.Checkpoint(), test.want)
			}
			if err := m.Err(); err != nil {
				t.Error(err)
			}
		})
	}
	parallel.Run(t, "resume", func(t *testing.T) {
		var m sinktest.Memory
		s := m.Open(sinktest.Faults{Resume: func() error { return errors.New("no bus") }})
		if _, err := s.Resume(t.Context()); !errors.Is(err, sinktest.ErrFault) {
			t.Errorf("error %v, want ErrFault", err)
		}
	})
}

func TestMemoryLateCommitMeetsTheFence(t *testing.T) {
	t.Parallel()
	late := failing(sinktest.Fault{Kind: sinktest.Late, After: time.Hour})
	for name, test := range map[string]struct {
		noFence bool
		others  int // how many commits another writer makes meanwhile
		want    int
	}{
		"nobody else committed":          {want: 1},
		"another committed":              {others: 2, want: 2},
		"another committed and no fence": {others: 2, noFence: true, want: 3},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			m := sinktest.Memory{Broken: sinktest.Guards{Fence: test.noFence}}
			if err := attempt(t, m.Open(late)); !errors.Is(err, sinktest.ErrFault) {
				t.Errorf("error %v, want ErrFault", err)
			}
			other := m.Open(sinktest.Faults{})
			if _, err := other.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			for n := range test.others {
				must.Succeed(t, other.Commit(t.Context(), sinktest.Entities(n, 1), sinktest.At(n+1)))
			}
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if n := len(m.Entities()); n != test.want {
				t.Errorf("%d entities, want %d", n, test.want)
			}
		})
	}
}

func TestMemoryNotesBreaches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want string
		run  func(context.Context, *sinktest.Memory, *sinktest.MemorySink) error
	}{
		"no resume": {"without a resume", func(ctx context.Context, _ *sinktest.Memory, s *sinktest.MemorySink) error {
			return s.Commit(ctx, nil, sinktest.At(0))
		}},
		"no resume after a conflict": {"without a resume", func(ctx context.Context, m *sinktest.Memory, s *sinktest.MemorySink) error {
			other := m.Open(sinktest.Faults{})
			_, err1 := s.Resume(ctx)
			_, err2 := other.Resume(ctx)
			err3 := other.Commit(ctx, nil, sinktest.At(0))
			if err := s.Commit(ctx, nil, sinktest.At(0)); !errors.Is(err, checkpoint.ErrConflict) {
				return errors.New("no conflict")
			}
			_ = s.Commit(ctx, nil, sinktest.At(0))
			return errors.Join(err1, err2, err3)
		}},
		"a count that lies": {"count went from 0 to 7", func(ctx context.Context, _ *sinktest.Memory, s *sinktest.MemorySink) error {
			_, err := s.Resume(ctx)
			return errors.Join(err, s.Commit(ctx, sinktest.Entities(0, 2), sinktest.At(7)))
		}},
		"no ID": {"without ID", func(ctx context.Context, _ *sinktest.Memory, s *sinktest.MemorySink) error {
			_, err := s.Resume(ctx)
			return errors.Join(err, s.Commit(ctx, make([]feed.Entity, 1), sinktest.At(1)))
		}},
		"no feed": {"cannot be read", func(ctx context.Context, _ *sinktest.Memory, s *sinktest.MemorySink) error {
			_, err := s.Resume(ctx)
			return errors.Join(err, s.Commit(ctx, nil, checkpoint.Checkpoint{}))
		}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var m sinktest.Memory
			err := test.run(t.Context(), &m, m.Open(sinktest.Faults{}))
			if test.want != "without a resume" && err != nil {
				t.Fatal(err)
			}
			if err := m.Err(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("breaches: %v, want %q", err, test.want)
			}
		})
	}
}

func TestMemoryWithoutCheckpointForgets(t *testing.T) {
	t.Parallel()
	m := sinktest.Memory{Broken: sinktest.Guards{Checkpoint: true}}
	must.Succeed(t, attempt(t, m.Open(sinktest.Faults{})))
	if cp := m.Checkpoint(); !cp.IsZero() || len(m.Entities()) != 1 {
		t.Errorf("checkpoint %+v and %d entities, want none and 1", cp, len(m.Entities()))
	}
}
