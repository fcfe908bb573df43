package config

import (
	"cmp"
	"reflect"
	"time"

	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// defaultStream has the defaults of a stream on NATS.
var defaultStream = nats.Stream{Create: true, Replicas: 1}

// defaultsOf returns a value of type t with its constant defaults, where t is Config or
// the element type of a map or a pointer in it.
func defaultsOf(t reflect.Type) reflect.Value {
	for _, v := range []any{
		Config{
			DataDir: "./feedbridge-data",
			Log:     Log{Level: "info", Format: "auto"},
			Grace:   30 * time.Second,
			Memory:  64 << 20,
			Admin:   Admin{Listen: "127.0.0.1:9321"},
			Metrics: Metrics{PerFeed: "full"},
		},
		Feed{
			Source:       source.Defaults(),
			Format:       "auto",
			Every:        10 * time.Second,
			Gap:          datareplication.GapHalt,
			Syndication:  syndication.Defaults().Settings,
			Oversize:     sink.Stop,
			DedupeWindow: 100_000,
		},
		nats.Config{Timeout: 10 * time.Second},
		defaultStream,
		kafka.Defaults(),
		kafka.DefaultOptions(),
		Embedded{Listen: "127.0.0.1:4222"},
		Serve{Listen: "127.0.0.1:8080", Connections: serve.DefaultConnections, Memory: serve.DefaultCacheSize},
		Served{Format: serve.DataReplication},
	} {
		if reflect.TypeOf(v) == t {
			return reflect.ValueOf(v)
		}
	}
	return reflect.Zero(t)
}

// completeDefaults fills in the defaults that depend on other values. buses are the names
// of the buses.
func completeDefaults(cfg *Config, buses []string) {
	onlyBus := ""
	if len(buses) == 1 {
		onlyBus = buses[0]
	}
	if cfg.Admin.Listen == "off" {
		cfg.Admin.Listen = ""
	}
	if cfg.Fleet != nil {
		cfg.Fleet.Bus = cmp.Or(cfg.Fleet.Bus, onlyBus)
	}
	for name, f := range cfg.Feeds {
		f.Freshness = cmp.Or(f.Freshness, max(5*time.Minute, 3*f.Every))
		f.To.Topic = cmp.Or(f.To.Topic, name)
		f.To.Bus = cmp.Or(f.To.Bus, onlyBus)
		switch onKafka := cfg.Buses[f.To.Bus].Kafka != nil; {
		case onKafka && f.To.Kafka == nil:
			f.To.Kafka = new(kafka.DefaultOptions())
		case !onKafka && f.To.Stream == nil:
			f.To.Stream = new(defaultStream)
		}
		cfg.Feeds[name] = f
	}
	if cfg.Serve == nil {
		return
	}
	for name, f := range cfg.Serve.Feeds {
		f.From.Topic = cmp.Or(f.From.Topic, name)
		f.From.Bus = cmp.Or(f.From.Bus, onlyBus)
		if f.PageSize == 0 {
			f.PageSize = serve.DefaultPageSize
			if f.Format != serve.DataReplication {
				f.PageSize = 100
			}
		}
		cfg.Serve.Feeds[name] = f
	}
}
