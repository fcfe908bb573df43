package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

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

// openBuses connects to all buses, to the embedded one in the way that embed
// has. A bus that does not answer is no error: it may come.
func openBuses(ctx context.Context, cfg *config.Config, embed embedding, log *slog.Logger) (*buses, error) {
	b := &buses{conns: map[string]*nats.Conn{}}
	confs := map[string]nats.Config{}
	for name, bus := range cfg.Buses {
		if bus.Embedded == nil {
			confs[name] = *bus.NATS
			continue
		}
		server, url, err := embed(cfg.DataDir, bus.Embedded.Listen, log.With("bus", name))
		if err != nil {
			return nil, err
		}
		b.server, confs[name] = server, nats.Config{URL: url}
	}
	if err := b.connect(ctx, confs, log); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// connect connects to all at once: each may take its timeout to find out that
// nobody answers.
func (b *buses) connect(ctx context.Context, confs map[string]nats.Config, log *slog.Logger) error {
	var connecting errgroup.Group
	var mu sync.Mutex
	for name, conf := range confs {
		connecting.Go(func() error {
			conn, err := nats.Connect(ctx, conf, log.With("bus", name))
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
