package nats

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Count returns how many messages the subject has in its stream now; ok is true. It implements
// serve.Log.
func (l *Log) Count(ctx context.Context) (n uint64, ok bool, err error) {
	err = l.withStream(ctx, func(ctx context.Context, _ *session, stream string) error {
		return l.client.retryRequest(ctx, func(ctx context.Context) error {
			s, err := l.client.js.Stream(ctx, stream)
			if err != nil {
				return err
			}
			info, err := s.Info(ctx, jetstream.WithSubjectFilter(l.subject))
			if err != nil {
				return err
			}
			n = 0
			for _, count := range info.State.Subjects {
				n += count
			}
			return nil
		})
	})
	if err != nil {
		return 0, false, fmt.Errorf("count the messages: %w", err)
	}
	return n, true, nil
}
