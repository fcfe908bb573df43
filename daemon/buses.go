package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// conn is a connection to a bus of any kind, which reconnects until it is closed.
// Check returns an error unless the bus answers. Reconnected returns a channel that is
// closed when the bus is next found reachable again after it was not.
type conn interface {
	Check(ctx context.Context) error
	Reconnected() <-chan struct{}
	Close()
}

// topicSink is the sink of a topic on a bus of any kind. IDs are those that the topic
// holds, Fits returns an error for an entity that the bus would refuse, and Check returns an
// error unless the topic can be published to.
type topicSink interface {
	bridge.Sink
	IDs() *sink.IDs
	Fits(e feed.Entity) error
	Check(ctx context.Context) error
	// RetentionLimits returns the settings by which messages of the topic are deleted in time.
	RetentionLimits(ctx context.Context) ([]string, error)
	CheckpointStore
}

// CheckpointStore has the checkpoint of a topic, for commands. Checkpoint returns the stored
// one. Overwrite replaces it, even if it cannot be read, by what next returns for it; it
// returns [checkpoint.ErrConflict], and changes nothing, if a daemon commits at the same
// time.
type CheckpointStore interface {
	Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error)
	Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error
}

// buses are the connections to the buses that the configuration names.
type buses struct {
	conns  map[string]conn
	server *embedded.Server // nil unless it runs in this process
}

// openBuses connects to all configured buses, to the embedded one by embed. A bus that
// does not answer is not an error: the connection is retried in the background.
func openBuses(ctx context.Context, cfg *config.Config, embed openEmbedded, log *slog.Logger) (*buses, error) {
	b := &buses{conns: map[string]conn{}}
	confs := maps.Clone(cfg.Buses)
	for name, bus := range confs {
		if bus.Embedded == nil {
			continue
		}
		server, url, err := embed(cfg.DataDir, bus.Embedded.Listen, log.With("bus", name))
		if err != nil {
			return nil, err
		}
		b.server, confs[name] = server, config.Bus{NATS: &nats.Config{URL: url}}
	}
	if err := b.connect(ctx, confs, log); err != nil {
		b.closeAll()
		return nil, err
	}
	return b, nil
}

// connect connects to all buses concurrently, as each may take its timeout if nothing
// answers.
func (b *buses) connect(ctx context.Context, confs map[string]config.Bus, log *slog.Logger) error {
	var connecting errgroup.Group
	var mu sync.Mutex
	for name, conf := range confs {
		connecting.Go(func() error {
			conn, err := connect(ctx, conf, log.With("bus", name))
			if err != nil {
				return fmt.Errorf("bus %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			b.conns[name] = conn
			return nil
		})
	}
	return connecting.Wait()
}

func connect(ctx context.Context, conf config.Bus, log *slog.Logger) (conn, error) {
	if conf.Kafka != nil {
		return kafka.Connect(ctx, *conf.Kafka, log)
	}
	return nats.Connect(ctx, *conf.NATS, log)
}

// readinessChecks returns the checks of the buses for /readyz.
func (b *buses) readinessChecks(cfg *config.Config) []admin.Bus {
	var checks []admin.Bus
	copied, served := map[string]bool{}, map[string]bool{}
	for _, f := range cfg.Feeds {
		copied[f.To.Bus] = true
	}
	if cfg.Serve != nil {
		for _, f := range cfg.Serve.Feeds {
			served[f.From.Bus] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.conns)) {
		checks = append(checks, admin.Bus{
			Name: name, Kind: busKind(cfg.Buses[name]), ServedOnly: served[name] && !copied[name], Check: b.conns[name].Check,
		})
	}
	return checks
}

func busKind(b config.Bus) string {
	switch {
	case b.Embedded != nil:
		return "embedded"
	case b.Kafka != nil:
		return "kafka"
	}
	return "nats"
}

// closeAll closes the connections, and after them the embedded server.
func (b *buses) closeAll() {
	for _, conn := range b.conns {
		conn.Close()
	}
	if b.server != nil {
		b.server.Close()
	}
}

// The list of served feeds shows how many entities a topic on NATS has.
var _ serve.Counter = (*nats.Log)(nil)

// openLog returns a topic to read.
func (b *buses) openLog(from config.From) serve.Log {
	if c, ok := b.conns[from.Bus].(*kafka.Conn); ok {
		return c.Log(from.Topic, int32(from.Partition))
	}
	return b.conns[from.Bus].(*nats.Conn).Log(from.Topic, from.Stream)
}

// openSink returns the sink of a feed's topic, and the limits of its commits.
func (b *buses) openSink(name string, f config.Feed) (topicSink, bridge.Limits) {
	if c, ok := b.conns[f.To.Bus].(*kafka.Conn); ok {
		topic := kafka.Topic{Feed: name, Name: f.To.Topic, Key: f.Key, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Options: *f.To.Kafka}
		return c.Sink(topic), bridge.Limits{Entities: kafka.MaxEntities, Bytes: kafka.MaxBytes}
	}
	topic := nats.Topic{Feed: name, Subject: f.To.Topic, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Stream: *f.To.Stream}
	return b.conns[f.To.Bus].(*nats.Conn).Sink(topic), bridge.Limits{Entities: nats.MaxEntities, Bytes: nats.MaxBytes}
}

// Bus is a connection to one of the configured buses, for commands. A daemon may be running
// beside it.
type Bus struct {
	buses *buses
	name  string
}

// OpenBus connects to the bus of that name, which must be configured. A bus that does not
// answer is not an error; [Bus.Check] reports it. If the bus is embedded, OpenBus connects to
// the daemon that runs it. While none does, it runs the bus itself, at a port that only it
// knows. It creates no bus and no topic. The caller closes the Bus.
func OpenBus(ctx context.Context, cfg *config.Config, name string, log *slog.Logger) (*Bus, error) {
	only := *cfg
	only.Buses = map[string]config.Bus{name: cfg.Buses[name]}
	b, err := openBuses(ctx, &only, attachEmbedded, log)
	if err != nil {
		return nil, err
	}
	return &Bus{b, name}, nil
}

// Check returns an error unless the bus answers.
func (b *Bus) Check(ctx context.Context) error { return b.buses.conns[b.name].Check(ctx) }

// Log returns a topic of the bus to read. The name of the bus in from is ignored.
func (b *Bus) Log(from config.From) serve.Log {
	from.Bus = b.name
	return b.buses.openLog(from)
}

// Checkpoints returns the checkpoint of a feed, whose topic must be on this bus.
func (b *Bus) Checkpoints(feed string, f config.Feed) CheckpointStore {
	snk, _ := b.buses.openSink(feed, f)
	return snk
}

// Close closes the connection.
func (b *Bus) Close() { b.buses.closeAll() }
