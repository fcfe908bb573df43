package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// Checkpoint returns the checkpoint that the topic has, with the errors of
// Resume. It changes nothing: a stream that is missing, and that Resume would create,
// is an error that matches [feed.ErrNoTopic].
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.conn.ask(ctx, s.topic.Subject, func(ctx context.Context, _ *session) error {
		info, err := s.streamInfo(ctx)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && s.topic.Stream.Create:
			// Nobody can tell which it is.
			return fmt.Errorf("%w: there is no stream %s; if nothing has been published yet, 'feedbridge run' creates it; if it was deleted, "+
				"a daemon that has published to it halts until it is restored, or the feed is started over with 'feedbridge checkpoint reset %s'",
				feed.ErrNoTopic, s.topic.Stream.Name, s.topic.Feed)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return s.errNoStream()
		case err != nil:
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
