package nats

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Forgets returns what in the stream's configuration takes messages of the topic
// away in time; nothing if it keeps all of them.
func (s *Sink) Forgets(ctx context.Context) ([]string, error) {
	var limits []string
	err := s.conn.ask(ctx, s.topic.Subject, func(ctx context.Context, _ *session) error {
		info, err := s.streamInfo(ctx)
		if err == nil {
			limits = forgets(info.Config)
		}
		return err
	})
	return limits, err
}

func forgets(c jetstream.StreamConfig) []string {
	var limits []string
	add := func(set bool, format string, args ...any) {
		if set {
			limits = append(limits, fmt.Sprintf(format, args...))
		}
	}
	add(c.MaxAge > 0, "max_age %v", c.MaxAge)
	// A stream that discards what is new refuses it, and keeps what it has.
	old := c.Discard == jetstream.DiscardOld
	add(c.MaxMsgs > 0 && old, "max_msgs %d", c.MaxMsgs)
	add(c.MaxBytes > 0 && old, "max_bytes %d", c.MaxBytes)
	add(c.MaxMsgsPerSubject > 0 && (old || !c.DiscardNewPerSubject), "max_msgs_per_subject %d", c.MaxMsgsPerSubject)
	return limits
}
