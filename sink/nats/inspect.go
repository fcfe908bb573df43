package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// Checkpoint returns the stored checkpoint, with the errors of Resume. It changes nothing: if
// the stream is missing and Resume would create it, the error matches [feed.ErrNoTopic].
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.client.withSession(ctx, s.topic.Subject, s.topic.StreamName(), func(ctx context.Context, _ *session) error {
		info, err := s.stream.readInfo(ctx)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && s.topic.Stream.Create:
			// The two cases are indistinguishable.
			return fmt.Errorf("%w: there is no stream %s; if nothing has been published yet, 'feedbridge run' creates it; if it was deleted, "+
				"a daemon that has published to it halts until it is restored, or the feed is started over with 'feedbridge checkpoint reset %s'",
				feed.ErrNoTopic, s.topic.Stream.Name, s.topic.Feed)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return s.stream.missingError()
		case err != nil:
			return err
		}
		f, err := s.checkpoints.readFence(ctx, info, s.dedupe.seen)
		if f.content == nil || err != nil {
			return err
		}
		cp, err = checkpoint.Decode(f.content)
		return err
	})
	return cp, err
}

// Check returns an error if the stream would keep a Resume from working. It changes nothing.
// A stream that is missing is no error if Resume would create it.
func (s *Sink) Check(ctx context.Context) error {
	return s.client.withSession(ctx, s.topic.Subject, s.topic.StreamName(), func(ctx context.Context, _ *session) error {
		info, err := s.stream.readInfo(ctx)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && s.topic.Stream.Create:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return s.stream.missingError()
		case err != nil:
			return err
		}
		return s.stream.checkConfig(info.Config)
	})
}
