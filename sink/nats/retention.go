package nats

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// RetentionLimits returns the limits in the stream's configuration that delete old messages of the
// topic, such as "max_age 24h0m0s"; none if the stream keeps all of them.
func (s *Sink) RetentionLimits(ctx context.Context) ([]string, error) {
	var limits []string
	err := s.client.withSession(ctx, s.topic.Subject, s.topic.StreamName(), func(ctx context.Context, _ *session) error {
		info, err := s.stream.readInfo(ctx)
		if err == nil {
			limits = retentionLimits(info.Config)
		}
		return err
	})
	return limits, err
}

func retentionLimits(c jetstream.StreamConfig) []string {
	var limits []string
	add := func(set bool, format string, args ...any) {
		if set {
			limits = append(limits, fmt.Sprintf(format, args...))
		}
	}
	add(c.MaxAge > 0, "max_age %v", c.MaxAge)
	// With discard new the stream refuses new messages at the limit and deletes none.
	old := c.Discard == jetstream.DiscardOld
	add(c.MaxMsgs > 0 && old, "max_msgs %d", c.MaxMsgs)
	add(c.MaxBytes > 0 && old, "max_bytes %d", c.MaxBytes)
	add(c.MaxMsgsPerSubject > 0 && (old || !c.DiscardNewPerSubject), "max_msgs_per_subject %d", c.MaxMsgsPerSubject)
	return limits
}
