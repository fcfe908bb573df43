package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/feedbridge/feedbridge/feed"
)

// Conn is a connection to a Kafka cluster. Any number of sinks and logs share it.
type Conn struct {
	client      *client
	checkpoints *checkpointTopic
	watch       *watch
}

// Connect makes a connection to the cluster that cfg names. It does not wait for a broker:
// [Conn.Check] and the sinks report that none answers, or that one refuses the credentials.
// Errors are those that no retry cures, such as a file that cannot be read, and match
// [feed.ErrPermanent].
func Connect(ctx context.Context, cfg Config, log *slog.Logger) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if errs := cfg.Validate(); len(errs) > 0 {
		return nil, feed.Permanent(fmt.Errorf("kafka: %w", errors.Join(errs...)))
	}
	c, err := newClient(cfg.withDefaults(), log)
	if err != nil {
		return nil, feed.Permanent(fmt.Errorf("kafka: %w", err))
	}
	return &Conn{c, newCheckpointTopic(c), &watch{client: c, lookEvery: defaultLookEvery, sinks: map[string]int{}}}, nil
}

// Close closes the connection. Requests of its sinks and logs that are under way fail.
func (c *Conn) Close() { c.client.close() }

// Check returns an error unless a broker answers, takes the credentials, and is
// new enough.
func (c *Conn) Check(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := c.client.withRequestTimeout(ctx)
	defer cancel()
	// Ping distinguishes a refusal from silence: a request is retried for a while, and
	// may end in the latter.
	err := c.client.kgo.Ping(ctx)
	if err == nil {
		err = c.client.checkVersions(ctx)
	}
	if err != nil {
		return c.client.explainError(ctx, err)
	}
	return nil
}

// Reconnected returns a context that ends when a broker that was unreachable is next
// found reachable again. Each call after that returns a new one.
func (c *Conn) Reconnected() context.Context { return c.client.reconnects.announced() }

// Sink returns a sink for a topic. [Sink.Resume] checks the topic, and creates it if it is
// missing.
func (c *Conn) Sink(t Topic) *Sink {
	t.Events = t.Events.ForKafka()
	s := newSink(c.client, c.checkpoints, t)
	s.watch = c.watch
	s.watch.countSinks(t.Name, 1)
	return s
}

// Log returns a partition of a topic, to read it back.
func (c *Conn) Log(topic string, partition int32) *Log { return newLog(c.client, topic, partition) }

// WatchCheckpoints reads the checkpoint topic from its present end on, with one consumer for all
// topics, which has no group. committed is called with the topic of each commit and the writer of
// its checkpoint, which is empty if the checkpoint was deleted or cannot be read. It is called from
// one goroutine at a time, and must not block. Meanwhile it looks at the topics of all sinks; see
// [Sink.Unchanged].
//
// An outage of a broker delays calls, and loses none. The watch begins when there is a checkpoint
// topic. It ends with ctx, or when the [Conn] is closed. It is called once.
func (c *Conn) WatchCheckpoints(ctx context.Context, committed func(topic, writer string)) {
	go c.watch.keepRunning(ctx, committed)
}
