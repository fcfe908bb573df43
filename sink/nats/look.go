package nats

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// Checkpoint returns the checkpoint that the topic has, with the errors of
// Resume. It changes nothing: a stream that is missing is an empty topic.
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.conn.ask(ctx, s.topic.Subject, func(ctx context.Context, _ *session) error {
		info, err := s.streamInfo(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		last, err := s.newest(ctx, info)
		if last == nil || err != nil {
			return err
		}
		cp, err = checkpoint.Decode(last.Data)
		return err
	})
	return cp, err
}

// Check says what would keep a Resume from working, without changing anything:
// a stream that is missing and may be created is fine.
func (s *Sink) Check(ctx context.Context) error {
	return s.conn.ask(ctx, s.topic.Subject, func(ctx context.Context, _ *session) error {
		info, err := s.streamInfo(ctx)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && s.topic.Stream.Create:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return s.errNoStream()
		case err != nil:
			return err
		}
		return s.fitness(info.Config)
	})
}
