package kafkatest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "dir")
	failed := errors.New("failed")
	err := once(t.Context(), dir, func(dir string) error {
		fill(t, dir, "half")
		return failed
	})
	if !errors.Is(err, failed) || exists(dir) {
		t.Errorf("after a failure: %v, want %v; directory there: %t", err, failed, exists(dir))
	}
	// The leftovers of a killed process.
	if err := os.MkdirAll(dir+".partial", 0o755); err != nil {
		t.Fatal(err)
	}
	fill(t, dir+".partial", "half")

	var builds atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			err := once(t.Context(), dir, func(dir string) error {
				builds.Add(1)
				fill(t, dir, "whole")
				return nil
			})
			if err != nil || !exists(filepath.Join(dir, "whole")) || exists(filepath.Join(dir, "half")) {
				t.Errorf("once: %v, or the directory is not whole", err)
			}
		})
	}
	all.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestOnceEndsWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	ctx, cancel := context.WithCancel(t.Context())
	err := once(t.Context(), dir, func(string) error {
		cancel()
		if err := once(ctx, dir, func(string) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("the second waits: %v, want %v", err, context.Canceled)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func fill(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Error(err)
	}
}
