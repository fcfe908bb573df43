package daemon

import (
	"context"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// CheckpointStore has the checkpoint of a topic, for commands. A daemon may be publishing to
// the topic.
type CheckpointStore struct{ sink topicSink }

// Checkpoint returns the stored checkpoint.
func (s *CheckpointStore) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	return s.sink.Checkpoint(ctx)
}

// Overwrite replaces the stored checkpoint, even if it cannot be read, by what next returns
// for it. If a daemon commits at the same time, it tries again for a minute; then the error matches
// [checkpoint.ErrConflict], and nothing was changed.
func (s *CheckpointStore) Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	return retryConflicts(ctx, func() error { return s.sink.Overwrite(ctx, next) })
}
