package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// Checkpoint returns the checkpoint that the topic has, with the errors of
// Resume. It changes nothing: a stream that is missing is an empty topic.
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.ask(ctx, func(ctx context.Context, _ *session) error {
		info, err := s.streamInfo(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		last, err := s.lastCheckpoint(ctx)
		if err != nil {
			return err
		}
		if last == nil {
			return s.checkEmpty(ctx, info)
		}
		cp, err = checkpoint.Decode(last.Data)
		return err
	})
	return cp, err
}

// Check says what would keep a Resume from working, without changing anything:
// a stream that is missing and may be created is fine.
func (s *Sink) Check(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, _ *session) error {
		info, err := s.streamInfo(ctx)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && s.topic.Stream.Create:
			return nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return s.errNoStream()
		case err != nil:
			return err
		}
		if wrong := s.misfits(info.Config); len(wrong) > 0 {
			return feed.Permanent(fmt.Errorf("stream %s cannot hold the topic: %s", info.Config.Name, strings.Join(wrong, "; ")))
		}
		return nil
	})
}
