package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/fleet"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// connection is a connection to a bus of any kind, which reconnects until it is closed. What
// differs between the kinds of buses is in its functions.
type connection struct {
	// check returns an error unless the bus answers.
	check func(ctx context.Context) error
	// reconnected returns a channel that is closed when the bus is next found reachable again
	// after it was not.
	reconnected func() <-chan struct{}
	close       func()
	// sink returns the sink of a feed's topic.
	sink func(name string, f config.Feed) topicSink
	// watch looks at the topics of all sinks until ctx ends, and calls committed with the topic and
	// the writer of each commit of any copy that is seen.
	watch func(ctx context.Context, committed func(topic, writer string))
	// member returns the membership of this copy in a fleet.
	member func(o fleetOptions) fleetMember
	// log returns a topic to read.
	log func(from config.From) serve.Log
}

// topicSink is the sink of a topic on a bus of any kind. IDs are those that the topic
// holds, Fits is that of [sink.Gate], and Check returns an error unless the topic can be published
// to.
type topicSink interface {
	bridge.Sink
	IDs() *sink.IDs
	Fits(entities []feed.Entity) (n int, err error)
	Check(ctx context.Context) error
	// Unchanged is that of [bridge.Bridge].
	Unchanged() time.Time
	// Close frees the sink's share of the connection, after the last commit.
	Close()
	// RetentionLimits returns the settings by which messages of the topic are deleted in time.
	RetentionLimits(ctx context.Context) ([]string, error)
	// Checkpoint returns the stored checkpoint.
	Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error)
	// Overwrite replaces the stored checkpoint, even if it cannot be read, by what next
	// returns for it. It returns [checkpoint.ErrConflict], and changes nothing, if a daemon
	// commits at the same time.
	Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error
}

// connect connects to a bus. A bus that does not answer is not an error.
func connect(ctx context.Context, conf config.Bus, log *slog.Logger) (*connection, error) {
	if conf.Kafka != nil {
		return connectKafka(ctx, *conf.Kafka, log)
	}
	return connectNATS(ctx, *conf.NATS, log)
}

func connectNATS(ctx context.Context, conf nats.Config, log *slog.Logger) (*connection, error) {
	c, err := nats.Connect(ctx, conf, log)
	if err != nil {
		return nil, err
	}
	return &connection{
		check: c.Check, reconnected: c.Reconnected, close: c.Close,
		watch: c.WatchCheckpoints,
		sink: func(name string, f config.Feed) topicSink {
			return c.Sink(nats.Topic{Feed: name, Subject: f.To.Topic, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Stream: *f.To.Stream})
		},
		member: func(o fleetOptions) fleetMember {
			fleet := nats.FleetOptions{Name: o.name, Self: o.self, Replicas: 1, Topics: o.topics}
			for _, to := range o.feeds {
				if to.Stream != nil {
					fleet.Replicas = max(fleet.Replicas, to.Stream.Replicas)
				}
			}
			return c.Fleet(fleet)
		},
		log: func(from config.From) serve.Log { return c.Log(from.Topic, from.Stream) },
	}, nil
}

func connectKafka(ctx context.Context, conf kafka.Config, log *slog.Logger) (*connection, error) {
	c, err := kafka.Connect(ctx, conf, log)
	if err != nil {
		return nil, err
	}
	return &connection{
		check: c.Check, reconnected: c.Reconnected, close: c.Close,
		watch: c.WatchCheckpoints,
		sink: func(name string, f config.Feed) topicSink {
			return c.Sink(kafka.Topic{Feed: name, Name: f.To.Topic, Key: f.Key, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Options: *f.To.Kafka})
		},
		member: func(o fleetOptions) fleetMember {
			group := kafka.GroupOptions{Fleet: o.name, Self: o.self, Topics: o.topics, Create: len(o.feeds) == 0}
			for _, to := range o.feeds {
				if to.Kafka != nil {
					group.Create, group.Replication = group.Create || to.Kafka.Create, max(group.Replication, to.Kafka.Replication)
				}
			}
			return c.GroupMember(group)
		},
		log: func(from config.From) serve.Log { return c.Log(from.Topic, int32(from.Partition)) },
	}, nil
}

// fleetMember is the membership of this copy in a fleet.
type fleetMember interface {
	// Run takes part until ctx ends, and then leaves, so that the others need not wait for a
	// time limit to take over. It calls assigned whenever the assignment has changed, from one
	// goroutine at a time; the first time when this copy has become a member. assigned returns
	// when the feeds that this copy owns no longer have ended their commits, or after handOver; the
	// others may start them earlier, since the fence keeps topics exact. While the bus cannot be reached,
	// Run keeps trying, and the last assignment remains unless the bus has surely given the feeds
	// to others. It returns nil after ctx has ended, and otherwise an error that requires action by a
	// person.
	Run(ctx context.Context, assigned func(fleet.Assignment)) error
	// Check returns the number of members, or the error for which this copy could not take part. It
	// does not take part, and stores and creates nothing. A fleet that has no bucket or group yet has
	// no members.
	Check(ctx context.Context) (members int, err error)
}

// fleetOptions are the parameters of a membership on a bus of any kind.
type fleetOptions struct {
	name, self string
	// feeds are the destinations on the bus. A missing bucket or topic is created like theirs.
	feeds []config.To
	// topics returns the topics of all feeds in the configuration.
	topics func() *fleet.Topics
}
