package kafkatest

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// once builds a directory that is not there yet. Whoever comes while another
// process builds it waits. It appears complete or not at all: build fills another
// one, which is renamed.
func once(ctx context.Context, dir string, build func(dir string) error) error {
	if exists(dir) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock := flock.New(dir + ".lock")
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	// The kernel unlocks at the latest when the process ends.
	defer func() { _ = lock.Close() }()
	if exists(dir) {
		return nil
	}
	partial := dir + ".partial"
	// It may be there since a process was killed.
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return err
	}
	if err := build(partial); err != nil {
		_ = os.RemoveAll(partial) // the next one does, if this fails
		return err
	}
	return os.Rename(partial, dir)
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}
