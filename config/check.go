package config

import (
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// complete fills in the defaults that depend on other values.
func (l *loader) complete(cfg *Config) {
	if cfg.Admin.Listen == "off" {
		cfg.Admin.Listen = ""
	}
	buses := l.names("buses")
	for name, f := range cfg.Feeds {
		if f.Freshness == 0 {
			f.Freshness = max(5*time.Minute, 3*f.Every)
		}
		if f.To.Topic == "" {
			f.To.Topic = name
		}
		if f.To.Bus == "" && len(buses) == 1 {
			f.To.Bus = buses[0]
		}
		switch onKafka := cfg.Buses[f.To.Bus].Kafka != nil; {
		case onKafka && f.To.Kafka == nil:
			f.To.Kafka = new(kafka.DefaultOptions())
		case !onKafka && f.To.Stream == nil:
			f.To.Stream = new(presets(reflect.TypeFor[nats.Stream]()).Interface().(nats.Stream))
		}
		cfg.Feeds[name] = f
	}
	l.completeServe(cfg)
}

// check reports errors in values that are well formed. Names come from the places
// that occur and not from cfg, because viper drops empty mappings.
func (l *loader) check(cfg *Config) {
	if cfg.Grace < 0 {
		l.wrong("grace", "must not be negative")
	}
	switch least := int64(1 << 16); {
	case cfg.ReadAhead.Feed < least:
		l.wrong("read_ahead.feed", fmt.Sprintf("must be %d or more", least))
	case cfg.ReadAhead.Total < cfg.ReadAhead.Feed:
		l.wrong("read_ahead.total", fmt.Sprintf("must be read_ahead.feed or more, which is %d", cfg.ReadAhead.Feed))
	}
	if cfg.Admin.Listen != "" {
		l.checkListen("admin.listen", cfg.Admin.Listen, "; or off")
	}
	l.checkBuses(cfg)
	l.checkFeeds(cfg)
	l.checkServe(cfg)
}

func (l *loader) checkBuses(cfg *Config) {
	embedded := ""
	for _, name := range l.names("buses") {
		bus, path := cfg.Buses[name], join("buses", name)
		switch {
		case one(bus.NATS != nil)+one(bus.Kafka != nil)+one(bus.Embedded != nil) != 1:
			l.wrong(path, "want exactly one kind of bus, nats, kafka or embedded")
		case bus.NATS != nil:
			l.checkAdapter(join(path, "nats"), bus.NATS.Validate())
		case bus.Kafka != nil:
			l.checkAdapter(join(path, "kafka"), bus.Kafka.Validate())
		case embedded != "":
			l.wrong(join(path, "embedded"), fmt.Sprintf("the bus %s is embedded already; there can be only one such", embedded))
		default:
			embedded = name
			l.checkListen(join(path, "embedded.listen"), bus.Embedded.Listen, "")
			if cfg.DataDir == "" {
				l.wrong("data_dir", fmt.Sprintf("must not be empty, as the bus %s keeps its streams there", name))
			}
		}
	}
}

func (l *loader) checkFeeds(cfg *Config) {
	names := l.names("feeds")
	if len(names) == 0 && cfg.Serve == nil && !l.feedless {
		l.wrong("feeds", "there are no feeds; add one here or set FEEDBRIDGE_FEEDS_<NAME>_URL")
	}
	buses := l.names("buses")
	owners := map[[2]string]string{}
	for _, name := range names {
		f, path := cfg.Feeds[name], join("feeds", name)
		l.checkAdapter(path, f.Source.Validate())
		l.checkAdapter(path, f.Syndication.Validate())
		l.checkFormat(path, f)
		if f.Every < 100*time.Millisecond {
			l.wrong(join(path, "every"), "must be 100ms or more")
		}
		if f.DedupeWindow < 1 || f.DedupeWindow > 10_000_000 {
			l.wrong(join(path, "dedupe_window"), "must be from 1 to 10000000")
		}
		if f.Freshness < 0 {
			l.wrong(join(path, "freshness"), "must not be negative")
		}
		l.checkTo(path, f, cfg.Buses[f.To.Bus], buses)

		topic := [2]string{f.To.Bus, f.To.Topic}
		switch other := owners[topic]; {
		case other == "" || shared(f.To) && shared(cfg.Feeds[other].To):
		case f.To.Kafka != nil:
			l.wrong(join(path, "to.topic"), fmt.Sprintf("%s on bus %s belongs to the feed %s already; each feed needs its own, or all of them to.kafka.shared", topic[1], topic[0], other))
		default:
			l.wrong(join(path, "to.topic"), fmt.Sprintf("%s on bus %s belongs to the feed %s already; each feed needs its own", topic[1], topic[0], other))
		}
		owners[topic] = name
	}
}

// checkFormat reports settings that have no meaning for the format of the feed at path.
func (l *loader) checkFormat(path string, f Feed) {
	if f.Start.ID != "" && f.Format.Kind() == syndication.Kind {
		l.wrong(join(path, "start"), fmt.Sprintf("only datareplication feeds have a place behind an entity, and this one is %s; want beginning, now, or a time such as 2026-01-01T00:00:00Z", f.Format))
	}
	if f.Start.Snapshot != "" && f.Format.Kind() == syndication.Kind {
		l.wrong(join(path, "start"), fmt.Sprintf("only datareplication feeds have snapshots, and this one is %s; want beginning, now, or a time such as 2026-01-01T00:00:00Z", f.Format))
	}
	for _, k := range root.key("feeds").elem.keys {
		if _, occurs := l.places[join(path, k.name)]; !occurs || k.suits(f.Format) {
			continue
		}
		which := "is for Atom and RSS"
		if k.kind == datareplication.Kind {
			which = "is for datareplication feeds"
		}
		l.wrong(join(path, k.name), fmt.Sprintf("%s, and the format of this feed is %s; leave it out", which, f.Format))
	}
}

func shared(to To) bool { return to.Kafka != nil && to.Kafka.Shared }

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// checkTo checks the destination of a feed, which is at path.
func (l *loader) checkTo(feed string, f Feed, bus Bus, buses []string) {
	path, to := join(feed, "to"), f.To
	switch {
	case to.Bus == "":
		l.wrong(join(path, "bus"), "there are several buses; want "+orList(buses))
	case l.faulty["buses"] || l.faulty[join("buses", shown(to.Bus))]: // reported there
	case !slices.Contains(buses, to.Bus):
		l.wrong(join(path, "bus"), fmt.Sprintf("there is no bus %q; want %s", to.Bus, orList(buses)))
	}
	switch kind := bus.kind(); {
	case kind == "kafka":
		if to.Stream != nil {
			l.wrong(join(path, "stream"), fmt.Sprintf("is for NATS, and the bus %s is Kafka; leave it out, or see to.kafka", to.Bus))
		}
		l.checkAdapter(path, kafka.Topic{Name: to.Topic, Key: f.Key, Options: *to.Kafka}.Validate())
	case to.Kafka != nil && kind != "":
		l.wrong(join(path, "kafka"), fmt.Sprintf("is for Kafka, and the bus %s is NATS; leave it out, or see to.stream", to.Bus))
	case f.Key != "" && kind != "":
		l.wrong(join(feed, "key"), fmt.Sprintf("is for Kafka, and the bus %s is NATS, where a feed is one ordered topic; leave it out", to.Bus))
	case to.Stream != nil:
		l.checkAdapter(path, nats.Topic{Subject: to.Topic, Stream: *to.Stream}.Validate())
	}
}

// kind returns nats, also for the embedded server, or kafka. It is empty for a bus that
// is missing or does not have exactly one kind.
func (b Bus) kind() string {
	switch {
	case b.Kafka != nil:
		return "kafka"
	case b.NATS != nil || b.Embedded != nil:
		return "nats"
	}
	return ""
}

func (l *loader) checkListen(path, listen, or string) {
	_, port, err := net.SplitHostPort(listen)
	if _, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil {
		l.wrong(path, "want host:port, such as 127.0.0.1:9321"+or)
	}
}

// adapterKey matches the start of an adapter's error: a key of its part of the
// configuration.
var adapterKey = regexp.MustCompile(`^([a-z0-9_.]+(?:\[[0-9]+\])?): `)

// checkAdapter reports the errors of an adapter in its part of the configuration,
// which is at path.
func (l *loader) checkAdapter(path string, errs []error) {
	for _, err := range errs {
		text := err.Error()
		if m := adapterKey.FindStringSubmatch(text); m != nil {
			l.wrong(join(path, m[1]), text[len(m[0]):])
		} else {
			l.wrong(path, text)
		}
	}
}
