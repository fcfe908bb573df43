package config

import (
	"cmp"
	"time"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
)

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
	redact := safetext.NewRedactor(cfg.SecretParameters...)
	for name, f := range cfg.Feeds {
		f.Freshness = cmp.Or(f.Freshness, max(5*time.Minute, 3*f.Every))
		f.To.Topic = cmp.Or(f.To.Topic, name)
		f.To.Bus = cmp.Or(f.To.Bus, onlyBus)
		if f.To.CloudEvents {
			f.To.CloudEventsType = cmp.Or(f.To.CloudEventsType, "feedbridge.entity")
			f.To.CloudEventsSource = cmp.Or(f.To.CloudEventsSource, message.NewEvents("", redact.URL(f.Source.URL)).Source)
		}
		switch onKafka := cfg.Buses[f.To.Bus].Kafka != nil; {
		case onKafka && f.To.Kafka == nil:
			f.To.Kafka = new(kafka.DefaultOptions())
		case !onKafka && f.To.Stream == nil:
			f.To.Stream = new(setting.Defaults[nats.Stream]())
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
