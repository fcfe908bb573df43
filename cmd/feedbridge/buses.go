package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// buses are the connections to the buses that the configuration names.
type buses struct {
	conns  map[string]*nats.Conn
	server *embedded.Server // nil unless it runs in this process
}

// openBuses starts the embedded server if the configuration wants it, and
// connects to all buses. A bus that does not answer is no error: it may come.
// With attach, an embedded server that another process runs is used instead,
// as the commands need that look at what a daemon does.
func openBuses(ctx context.Context, cfg *config.Config, attach bool, log *slog.Logger) (*buses, error) {
	b := &buses{conns: map[string]*nats.Conn{}}
	for _, name := range slices.Sorted(maps.Keys(cfg.Buses)) {
		bus := cfg.Buses[name]
		conf := bus.NATS
		if bus.Embedded != nil {
			url, err := b.embed(cfg.DataDir, bus.Embedded.Listen, attach, log)
			if err != nil {
				b.close()
				return nil, fmt.Errorf("bus %s: %w", name, err)
			}
			conf = &nats.Config{URL: url}
		}
		conn, err := nats.Connect(ctx, *conf, log.With("bus", name))
		if err != nil {
			b.close()
			return nil, fmt.Errorf("bus %s: %w", name, err)
		}
		b.conns[name] = conn
	}
	return b, nil
}

// embed starts the embedded server, and returns its URL.
func (b *buses) embed(dataDir, listen string, attach bool, log *slog.Logger) (string, error) {
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dataDir, "jetstream"), Listen: listen, Log: log.With("bus", "embedded")})
	if attach && errors.Is(err, embedded.ErrLocked) {
		return "nats://" + listen, nil
	}
	if err != nil {
		return "", err
	}
	b.server = server
	return server.URL(), nil
}

// checks returns what readiness asks the buses.
func (b *buses) checks(cfg *config.Config) []admin.Bus {
	var checks []admin.Bus
	for _, name := range slices.Sorted(maps.Keys(b.conns)) {
		checks = append(checks, admin.Bus{Name: name, Kind: busKind(cfg.Buses[name]), Check: b.conns[name].Check})
	}
	return checks
}

func busKind(b config.Bus) string {
	if b.Embedded != nil {
		return "embedded"
	}
	return "nats"
}

// close closes the connections, and the server when nobody uses it any more.
func (b *buses) close() {
	for _, conn := range b.conns {
		conn.Close()
	}
	if b.server != nil {
		b.server.Close()
	}
}

// sink returns the sink of a feed's topic.
func (b *buses) sink(name string, f config.Feed) *nats.Sink {
	return b.conns[f.To.Bus].Sink(nats.Topic{Feed: name, Subject: f.To.Topic, Stream: f.To.Stream, Window: f.DedupeWindow})
}
