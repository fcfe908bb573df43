// Package config reads the configuration of feedbridge: from a YAML file, from
// the environment, or from a feed's URL alone. [Load] fills in every default,
// checks the whole, and reports all that is wrong at once.
//
// # The environment
//
// Every key can be set by a variable: FEEDBRIDGE_ and its path in upper case,
// with _ between the parts and for -. No file is needed, and a variable wins
// over the file:
//
//	FEEDBRIDGE_FEEDS_MY_ORDERS_URL=https://...    feeds.my-orders.url
//	FEEDBRIDGE_BUSES_MAIN_NATS_URL=nats://...     buses.main.nats.url
//	FEEDBRIDGE_ADMIN_LISTEN=                      admin.listen, switched off
//
// Where a variable can be read in several ways, the name that the file has is
// meant, else the longest key. If the file has both names it is an error. A
// variable with the prefix that names no key is an error as well; only
// FEEDBRIDGE_CONFIG, the file's path, and what Kubernetes and Docker set for a
// service called feedbridge are left alone.
//
// A list is either a YAML list, [a, b], or has its items separated by commas or
// line ends; headers and what configures a Kafka topic by line ends only, as their
// values may have commas. The
// value of a variable is taken as it is: ${VAR} in it means nothing.
//
// # Variables in the file
//
// In a value ${VAR} stands for the variable VAR, and ${VAR:-text} for text if
// VAR is unset or empty. $${ stands for ${ itself; every other $ is a $. This
// takes place after the YAML has been parsed, so a variable may stand in a
// comment, and what it holds is neither read as YAML nor replaced again.
//
// # Values
//
// Durations have units (500ms, 10s, 5m, 168h) and whole numbers have digits
// only, sizes too: those are in bytes, and what is an int64 in the structs. Text may stand without quotes wherever YAML lets it: a value is what
// is written there, so that a password of 0123 keeps its zero.
package config

import (
	"time"

	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// Config is a configuration with every default filled in. Its yaml tags, and
// those of the structs in it, are the keys of the file.
type Config struct {
	// DataDir is the directory of the embedded bus; its streams are in jetstream
	// below it. Snapshots are written to Snapshot.Dir. Default ./feedbridge-data.
	DataDir string `yaml:"data_dir"`
	Log     Log    `yaml:"log"`
	// SecretParameters are query parameters of URLs whose values are hidden in
	// logs, errors, /status and the header Feedbridge-Page, beside those of
	// [safetext.Parameters].
	SecretParameters []string `yaml:"secret_parameters"`
	// Grace is how long a stop may take before it is cut short. Default 30s.
	Grace     time.Duration `yaml:"grace"`
	ReadAhead ReadAhead     `yaml:"read_ahead"`
	// Buses are by name. Default: one called embedded, of that kind.
	Buses map[string]Bus `yaml:"buses"`
	// Feeds are by name; there is at least one, or one to serve.
	Feeds map[string]Feed `yaml:"feeds"`
	// Serve is nil unless topics are served.
	Serve *Serve `yaml:"serve"`
	Admin Admin  `yaml:"admin"`
}

// Log says what is logged, and how.
type Log struct {
	// Level is the least level that is logged. Default info.
	Level Level `yaml:"level"`
	// Format is text, json, or auto: text on a terminal and JSON elsewhere.
	// Default auto.
	Format LogFormat `yaml:"format"`
}

// ReadAhead bounds the memory for entities that were read and are not published yet. Each
// feed has one batch of up to 1 MiB besides, or one larger entity.
type ReadAhead struct {
	// Total is how many bytes all feeds together may hold. Default 64 MiB.
	Total int64 `yaml:"total"`
	// Feed is how many bytes of them one feed may hold, while it has a backlog. Half of
	// it is the size of its commits at most. Default 8 MiB.
	Feed int64 `yaml:"feed"`
}

// Level is a level of the log; slog.Level reads it as text.
type Level string

// Values returns the valid values.
func (Level) Values() []string { return []string{"debug", "info", "warn", "error"} }

// LogFormat is the form of log lines.
type LogFormat string

// Values returns the valid values.
func (LogFormat) Values() []string { return []string{"auto", "text", "json"} }

// Bus is a message bus: exactly one of its fields is set.
type Bus struct {
	NATS     *nats.Config  `yaml:"nats"`
	Kafka    *kafka.Config `yaml:"kafka"`
	Embedded *Embedded     `yaml:"embedded"`
}

// Embedded is a JetStream server in this process, with its streams in
// Config.DataDir. There is at most one.
type Embedded struct {
	// Listen is the host:port where it takes clients. Default 127.0.0.1:4222.
	Listen string `yaml:"listen"`
}

// Feed is a feed and the topic that it is copied to. The tag kind marks what has a
// meaning for one kind of feed alone, and may be set for those and for auto.
type Feed struct {
	// Source says how to speak to the feed's upstream.
	Source source.Config `yaml:",inline"`
	// Format is that of the feed; auto goes by what the upstream answers.
	// Default auto.
	Format Format `yaml:"format"`
	// Every is the wait between polls that find nothing new: at least 100ms.
	// Default 10s.
	Every time.Duration `yaml:"every"`
	// Start is where reading starts when the topic has no checkpoint. Only
	// datareplication feeds have one with an ID. Default beginning.
	Start datareplication.Start `yaml:"start"`
	// Gap says what to do when the feed no longer has the place that was
	// reached. Default halt.
	Gap datareplication.Gap `yaml:"gap" kind:"datareplication"`
	// Syndication says how Atom and RSS are to be understood.
	Syndication syndication.Settings `yaml:",inline" kind:"syndication"`
	// Oversize says what to do with an entity that the bus does not take
	// because of its size. Default stop.
	Oversize sink.Oversize `yaml:"oversize"`
	// DedupeWindow is how many of the topic's newest IDs are held in memory to
	// tell repeated entities by, 1 to 10,000,000. Default 100,000.
	DedupeWindow int `yaml:"dedupe_window" kind:"datareplication"`
	// Freshness is how long ago the last good poll may be for the feed to
	// count as ready. Zero stands for the default, 5m or three times Every,
	// whichever is longer.
	Freshness time.Duration `yaml:"freshness"`
	// Key says where an entity's key is, for topics on Kafka. Default: none, and
	// then all of the feed goes to one partition.
	Key kafka.Key `yaml:"key"`
	To  To        `yaml:"to"`
}

// Format is the format of a feed, or auto.
type Format string

// Values returns the valid values.
func (Format) Values() []string {
	return []string{"auto", datareplication.Kind, string(syndication.Atom), string(syndication.RSS)}
}

// Kind is the kind of source that reads the format; empty if only the feed can
// tell.
func (f Format) Kind() string {
	switch f {
	case "atom", "rss":
		return syndication.Kind
	case datareplication.Kind:
		return datareplication.Kind
	}
	return ""
}

// To is the topic that a feed is copied to. It belongs to that feed alone, unless
// it is one on Kafka that says to be shared.
type To struct {
	// Bus is a name in Config.Buses. Default: the only one that there is.
	Bus string `yaml:"bus"`
	// Topic is the topic's name, on NATS the subject of the feed's messages.
	// Default: the feed's name.
	Topic string `yaml:"topic"`
	// Stream says what the stream is like that the topic lies in. It is set for
	// NATS buses alone.
	Stream *nats.Stream `yaml:"stream"`
	// Kafka says what the topic is like, and how entities lie in it. It is set
	// for Kafka buses alone.
	Kafka *kafka.Options `yaml:"kafka"`
}

// Admin is the server for health, metrics and status.
type Admin struct {
	// Listen is its host:port. Empty, or off in the file, means no server.
	// Default 127.0.0.1:9321.
	Listen string `yaml:"listen"`
}

// Options say where a configuration is to be found. What stands in more than
// one place is taken from URL, else from Environ, else from File.
type Options struct {
	// File is the path of the YAML file; empty for none.
	File string
	// Environ has the environment, as os.Environ returns it.
	Environ []string
	// URL adds a feed with this URL, whose name is made from the host and path.
	URL string
	// Feedless takes a configuration without feeds, for who needs its buses alone.
	Feedless bool
}
