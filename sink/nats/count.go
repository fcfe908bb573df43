package nats

import (
	"context"
	"fmt"
)

// Count returns how many messages the subject has in its stream now; ok is true. It implements
// serve.Log.
func (l *Log) Count(ctx context.Context) (n uint64, ok bool, err error) {
	err = l.withStream(ctx, func(ctx context.Context, _ *session, stream string) error {
		info, err := l.client.streamInfo(ctx, stream, l.subject)
		if err != nil {
			return err
		}
		for _, count := range info.State.Subjects {
			n += count
		}
		return nil
	})
	if err != nil {
		return 0, false, fmt.Errorf("count the messages: %w", err)
	}
	return n, true, nil
}
