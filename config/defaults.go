package config

import (
	"cmp"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// completeDefaults fills in the defaults that depend on other values. buses are the names
// of the buses. Values of feed_defaults that are for another kind of bus are dropped.
func completeDefaults(cfg *Config, buses []string, set locations) {
	onlyBus := ""
	if len(buses) == 1 {
		onlyBus = buses[0]
	}
	if cfg.Fleet != nil {
		cfg.Fleet.Bus = cmp.Or(cfg.Fleet.Bus, onlyBus)
	}
	redact := safetext.NewRedactor(cfg.SecretParameters...)
	for name, f := range cfg.Feeds {
		f.Freshness = cmp.Or(f.Freshness, max(5*time.Minute, 3*f.Every))
		topic := cmp.Or(f.To.Topic, name)
		f.To.Topic = expandTemplate(topic, name, f.Source.URL)
		f.To.Bus = cmp.Or(f.To.Bus, onlyBus)
		bus, isKnown := cfg.Buses[f.To.Bus]
		onKafka, isSet := bus.Kafka != nil, func(key string) bool { return set.isSet(joinPath(joinPath("feeds", name), key)) }
		if onKafka && !isSet("to.stream") {
			f.To.Stream = nil
		}
		if isKnown && !onKafka && !isSet("to.kafka") {
			f.To.Kafka = nil
		}
		if isKnown && !onKafka && !isSet("key") {
			f.Key = ""
		}
		if !f.To.CloudEvents && !isSet("to.cloudevents_type") {
			f.To.CloudEventsType = ""
		}
		if !f.To.CloudEvents && !isSet("to.cloudevents_source") {
			f.To.CloudEventsSource = ""
		}
		if f.To.Stream != nil {
			f.To.Stream.Name = expandTemplate(f.To.Stream.Name, name, f.Source.URL)
			if prefix := literalPrefix(topic); prefix != "" && f.To.Stream.Name != "" && f.To.Stream.Subjects == nil {
				f.To.Stream.Subjects = []string{prefix + ">"}
			}
		}
		if f.To.CloudEvents {
			f.To.CloudEventsType = cmp.Or(f.To.CloudEventsType, "feedbridge.entity")
			f.To.CloudEventsSource = cmp.Or(f.To.CloudEventsSource, message.NewEvents("", redact.URL(f.Source.URL)).Source)
		}
		switch {
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
			if f.Format != serve.DataReplication && f.Format != serve.HTTPFeeds {
				f.PageSize = 100
			}
		}
		cfg.Serve.Feeds[name] = f
	}
}

// completeAdmin fills in the defaults of the admin server, by the environment and the path of the file.
func completeAdmin(cfg *Config, environ map[string]string, file string) {
	a := &cfg.Admin
	if a.Listen == "off" {
		a.Listen = ""
	}
	switch {
	case a.Socket == "off":
		a.Socket = ""
	case a.Socket == "" && runtime.GOOS != "windows": // which has no mode 0600
		a.DefaultSockets = defaultSockets(cfg, environ, file)
	}
}

// defaultSockets returns the default paths of the admin socket. It is in the runtime directory of the service (see
// systemd.exec), and without one in the data directory. Clients have no variable for the former. They
// know it by the directory of the configuration, which systemd gives the same name.
func defaultSockets(cfg *Config, environ map[string]string, file string) []string {
	name := "admin.sock"
	// Daemons on one machine have different ports, so that those with one data directory have a socket each.
	if _, port, err := net.SplitHostPort(cfg.Admin.Listen); err == nil && port != "9321" && port != "0" {
		name = "admin-" + filepath.Base(port) + ".sock"
	}
	if dir, _, _ := strings.Cut(environ["RUNTIME_DIRECTORY"], ":"); dir != "" {
		return []string{filepath.Join(dir, name)}
	}
	paths := []string{filepath.Join(cfg.DataDir, name)}
	if dir, service := filepath.Split(filepath.Dir(file)); dir == "/etc/" {
		paths = append(paths, filepath.Join("/run", service, name))
	}
	return paths
}
