package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/fleet"
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
	// reconnected returns a context that ends when the bus is next found reachable again
	// after it was not.
	reconnected func() context.Context
	close       func()
	// sink returns the sink of a feed's topic.
	sink func(name string, f config.Feed) topicSink
	// watch looks at the topics of all sinks until ctx ends, and calls committed with the topic and
	// the writer of each commit of any copy that is seen.
	watch func(ctx context.Context, committed func(topic, writer string))
	// fleet returns the fleet with a name, for feeds with these destinations on the bus.
	fleet func(name string, feeds []config.To) fleet.Bus
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
	// CommitsBy returns the name that the status gives to the way of the commits, "" if it is not
	// known yet. It is safe for concurrent use.
	CommitsBy() string
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
			return c.Sink(nats.Topic{Feed: name, Subject: f.To.Topic, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Events: f.To.Events(), Stream: *f.To.Stream})
		},
		fleet: func(name string, feeds []config.To) fleet.Bus {
			o := nats.FleetOptions{Name: name, Replicas: 1}
			for _, to := range feeds {
				if to.Stream != nil {
					o.Replicas = max(o.Replicas, to.Stream.Replicas)
				}
			}
			return c.Fleet(o)
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
			return c.Sink(kafka.Topic{Feed: name, Name: f.To.Topic, Key: f.Key, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Events: f.To.Events(), Options: *f.To.Kafka})
		},
		fleet: func(name string, feeds []config.To) fleet.Bus {
			o := kafka.FleetOptions{Name: name, Create: len(feeds) == 0}
			for _, to := range feeds {
				if to.Kafka != nil {
					o.Create, o.Replication = o.Create || to.Kafka.Create, max(o.Replication, to.Kafka.Replication)
				}
			}
			return c.Fleet(o)
		},
		log: func(from config.From) serve.Log { return c.Log(from.Topic, int32(from.Partition)) },
	}, nil
}
