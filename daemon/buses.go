package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// buses are the configured buses, by name. The daemon replaces some of them when it reloads
// the configuration.
type buses struct {
	byName map[string]*bus
	server *embedded.Server // nil unless it runs in this process
}

// openBuses returns all configured buses, the embedded one by embed. None is connected yet.
func openBuses(cfg *config.Config, embed openEmbedded, log *slog.Logger) (*buses, error) {
	if err := CheckBuild(cfg); err != nil {
		return nil, err
	}
	b := &buses{byName: map[string]*bus{}}
	for name, conf := range cfg.Buses {
		bus := newBus(name, conf, log)
		if conf.Embedded != nil {
			server, url, err := embed(cfg.DataDir, conf.Embedded.Listen, bus.log)
			if err != nil {
				return nil, err
			}
			b.server, bus.conf = server, config.Bus{NATS: &nats.Config{
				URL: url, FullCure: fmt.Sprintf("the disk of %s is full; free some of it, and the feed continues by itself", embeddedDir(cfg.DataDir)),
			}}
		}
		b.byName[name] = bus
	}
	return b, nil
}

// connectAll begins to connect to all buses, also to those that no feed needs yet. It does not wait: a
// bus that does not answer may take its timeout, and delays only those that need it. [bus.open] returns
// errors.
func (b *buses) connectAll(ctx context.Context) {
	for _, bus := range b.byName {
		go func() { _, _ = bus.open(ctx) }()
	}
}

// readinessChecks returns the checks of the buses for /readyz, by name.
func (b *buses) readinessChecks(cfg *config.Config) map[string]admin.Bus {
	checks := map[string]admin.Bus{}
	copied, served := map[string]bool{}, map[string]bool{}
	for _, f := range cfg.Feeds {
		copied[f.To.Bus] = true
	}
	if cfg.Serve != nil {
		for _, f := range cfg.Serve.Feeds {
			served[f.From.Bus] = true
		}
	}
	for name, bus := range b.byName {
		checks[name] = admin.Bus{
			Name: name, Kind: busKind(cfg.Buses[name]), ServedOnly: served[name] && !copied[name], Check: bus.check,
		}
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
	for _, bus := range b.byName {
		bus.close()
	}
	if b.server != nil {
		b.server.Close()
	}
}

// Bus is a connection to one of the configured buses, for commands. A daemon may be running
// beside it.
type Bus struct {
	buses *buses
	conn  *connection
}

// OpenBus connects to the bus of that name, which must be configured. A bus that does not
// answer is not an error; [Bus.Check] reports it. If the bus is embedded, OpenBus connects to
// the daemon that runs it. While none does, it runs the bus itself, at a port that only it
// knows. It creates no bus and no topic. The caller closes the Bus.
func OpenBus(ctx context.Context, cfg *config.Config, name string, log *slog.Logger) (*Bus, error) {
	only := *cfg
	only.Buses = map[string]config.Bus{name: cfg.Buses[name]}
	b, err := openBuses(&only, attachEmbedded, log)
	if err != nil {
		return nil, err
	}
	conn, err := b.byName[name].open(ctx)
	if err != nil {
		b.closeAll()
		return nil, err
	}
	return &Bus{b, conn}, nil
}

// Check returns an error unless the bus answers.
func (b *Bus) Check(ctx context.Context) error { return b.conn.check(ctx) }

// Log returns a topic of the bus to read. The name of the bus in from is ignored.
func (b *Bus) Log(from config.From) serve.Log { return b.conn.log(from) }

// Checkpoints returns the checkpoint of a feed, whose topic must be on this bus.
func (b *Bus) Checkpoints(feed string, f config.Feed) *CheckpointStore {
	return &CheckpointStore{b.conn.sink(feed, f)}
}

// Close closes the connection.
func (b *Bus) Close() { b.buses.closeAll() }
