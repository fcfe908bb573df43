package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/feedbridge/feedbridge/sink/nats"
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
		cfg.Feeds[name] = f
	}
}

// check reports what is wrong in values that are well formed. Names are taken
// from what occurs, and not from cfg, as viper drops mappings that are empty.
func (l *loader) check(cfg *Config) {
	if cfg.Grace < 0 {
		l.wrong("grace", "must not be negative")
	}
	if cfg.Admin.Listen != "" {
		l.checkListen("admin.listen", cfg.Admin.Listen, "; or off")
	}
	l.checkBuses(cfg)
	l.checkFeeds(cfg)
}

func (l *loader) checkBuses(cfg *Config) {
	embedded := ""
	for _, name := range l.names("buses") {
		bus, path := cfg.Buses[name], join("buses", name)
		switch {
		case (bus.NATS == nil) == (bus.Embedded == nil):
			l.wrong(path, "want exactly one kind of bus, nats or embedded")
		case bus.NATS != nil:
			l.checkAdapter(join(path, "nats"), bus.NATS.Validate())
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
	if len(names) == 0 {
		l.wrong("feeds", "there are no feeds; add one here or set FEEDBRIDGE_FEEDS_<NAME>_URL")
	}
	buses := l.names("buses")
	owners := map[[2]string]string{}
	for _, name := range names {
		f, path := cfg.Feeds[name], join("feeds", name)
		l.checkAdapter(path, f.Source.Validate())
		if f.Every < 100*time.Millisecond {
			l.wrong(join(path, "every"), "must be 100ms or more")
		}
		if f.DedupeWindow < 1 || f.DedupeWindow > 10_000_000 {
			l.wrong(join(path, "dedupe_window"), "must be from 1 to 10000000")
		}
		if f.Freshness < 0 {
			l.wrong(join(path, "freshness"), "must not be negative")
		}
		l.checkTo(join(path, "to"), f.To, buses)

		topic := [2]string{f.To.Bus, f.To.Topic}
		if other := owners[topic]; other != "" {
			l.wrong(join(path, "to.topic"), fmt.Sprintf("%s on bus %s belongs to the feed %s already; each feed needs its own", topic[1], topic[0], other))
		}
		owners[topic] = name
	}
}

func (l *loader) checkTo(path string, to To, buses []string) {
	switch {
	case to.Bus == "":
		l.wrong(join(path, "bus"), "there are several buses; want "+orList(buses))
	case l.faulty["buses"] || l.faulty[join("buses", shown(to.Bus))]: // reported there
	case !slices.Contains(buses, to.Bus):
		l.wrong(join(path, "bus"), fmt.Sprintf("there is no bus %q; want %s", to.Bus, orList(buses)))
	}
	l.checkAdapter(path, nats.Topic{Subject: to.Topic, Stream: to.Stream}.Validate())
}

func (l *loader) checkListen(path, listen, or string) {
	_, port, err := net.SplitHostPort(listen)
	if _, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil {
		l.wrong(path, "want host:port, such as 127.0.0.1:9321"+or)
	}
}

// adapterKey matches what an adapter's error starts with: a key of its part of
// the configuration.
var adapterKey = regexp.MustCompile(`^([a-z0-9_.]+(?:\[[0-9]+\])?): `)

// checkAdapter reports what an adapter says about its part of the
// configuration, which lies at path.
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
