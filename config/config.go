// Package config reads the configuration of feedbridge from a YAML file, from
// the environment, and from the URL of a feed; each of them is sufficient. [Load] fills
// in every default, checks the result, and reports all errors at once.
//
// docs/configuration.md has the rules for operators, and describes each key. The structs in this
// package and in the packages that it configures declare the keys, their defaults and their bounds
// by tags; see package setting. The tag doc describes a key that contains others, and each the
// elements of a mapping. A spec has all of a key, and Load works in this order:
//
//  1. A loader reads the file, then FEEDBRIDGE_ variables, and then --set, strictly: a value that its key cannot have is
//     an error here. Each source is a layer for viper, whose values replace those before. ${VAR} in the file is replaced
//     after the YAML has been parsed, so that a variable is never read as YAML. In variables nothing is.
//  2. viper decodes the merged layers into the structs, over their defaults: a feed over the values of feed_defaults.
//  3. completeDefaults fills in the defaults that depend on other values.
//  4. A validator checks the structs. Errors refer to the line or variable of a value.
//
// A value is text until it is decoded: a password of 0123 keeps its zero without quotes. viper only sees layers of text
// that was read strictly before, since it knows neither the line of a value nor a misspelt key, and folds keys to lower
// case: no key and no name has capitals or dots.
// Every int64 in the structs is a size in bytes.
package config

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Config is a configuration with every default filled in. Its yaml tags, and
// those of the structs in it, are the keys of the file.
type Config struct {
	// DataDir is the directory of the embedded bus; its streams are in jetstream
	// below it. Snapshots are written to [os.TempDir]. Default ./feedbridge-data.
	DataDir string `yaml:"data_dir" default:"./feedbridge-data"`
	Log     Log    `yaml:"log" doc:"Level and format of the log."`
	// SecretParameters are query parameters of URLs whose values are hidden in
	// logs, errors, /status and the header Feedbridge-Page, beside those of
	// [safetext.Parameters].
	SecretParameters []string `yaml:"secret_parameters"`
	// Grace limits the time for a graceful stop. Then the process ends at once. Default
	// 30s.
	Grace time.Duration `yaml:"grace" default:"30s" min:"0s"`
	// Memory limits the bytes of all feeds together that were read and are not published
	// yet; see [Config.FeedMemory]. Default 64 MiB.
	Memory int64 `yaml:"memory" default:"67108864" min:"524288"`
	// Buses are by name. Default: one called embedded, of that kind.
	Buses map[string]Bus `yaml:"buses" doc:"Buses by name. Without any, an embedded NATS server is used." each:"A bus: exactly one of nats, kafka and embedded."`
	// Feeds are by name; there is at least one, or one to serve.
	Feeds map[string]Feed `yaml:"feeds" doc:"Feeds to copy, by name." each:"A feed and the topic that it is copied to."`
	// FeedDefaults are the values of the keys that a feed does not set. Feeds has them already.
	FeedDefaults Defaults `yaml:"feed_defaults" doc:"Values of the keys that a feed does not set."`
	// FeedsFrom are lists of feeds, by name. Their feeds are in Feeds after [Config.WithLists].
	FeedsFrom map[string]List `yaml:"feeds_from" doc:"Lists of feeds, by name." each:"A list of feeds in OPML or YAML, from a file or a URL."`
	// Fleet is nil unless this copy shares the feeds with others.
	Fleet *Fleet `yaml:"fleet" doc:"Copies that share the feeds. Without it every copy runs every feed."`
	// Serve is nil unless topics are served.
	Serve *Serve `yaml:"serve" doc:"HTTP server that serves topics as feeds."`
	Admin Admin  `yaml:"admin" doc:"HTTP server for health checks, metrics and status."`

	// ListOf has the list of each feed that is not one of the configuration itself.
	ListOf map[string]string `yaml:"-"`
	// loaded has the values that the configuration was decoded from. It is nil without lists.
	loaded *loader
	// file is the absolute path of the file that was read; empty without one.
	file string
	// set has the locations of the keys that are configured, and the entries of lists.
	set diagnostics
}

// File returns the absolute path of the file that was read; empty without one.
func (c *Config) File() string { return c.file }

// IsSet reports whether a key such as admin.listen is configured, and not a default.
func (c *Config) IsSet(key string) bool { return c.set.locations.isSet(key) }

// Overridden returns the keys of the file that variables override, such as "admin.listen by FEEDBRIDGE_ADMIN_LISTEN".
func (c *Config) Overridden() (keys []string) {
	for _, path := range c.set.overridden {
		if at := c.set.locations[path]; strings.HasPrefix(at.source, envPrefix) {
			keys = append(keys, path+" by "+at.source)
		}
	}
	return keys
}

// Title returns the title that a list has for a feed, or its name.
func (c *Config) Title(feed string) string { return cmp.Or(c.set.listed[feed].Title, feed) }

// Log configures the log.
type Log struct {
	// Level is the lowest level that is logged. Default info.
	Level Level `yaml:"level" default:"info"`
	// Format is text, json, or auto: text on a terminal and JSON otherwise. Default
	// auto.
	Format LogFormat `yaml:"format" default:"auto"`
}

// FeedMemory returns the part of Memory that one feed with a backlog may hold: an eighth, so
// that one feed cannot keep the others from reading. A commit has at most three quarters of
// it. Each feed has one batch of up to 256 KiB besides, or one larger entity.
func (c *Config) FeedMemory() int64 { return c.Memory / 8 }

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
	NATS     *nats.Config  `yaml:"nats" doc:"Connection to a NATS system with JetStream."`
	Kafka    *kafka.Config `yaml:"kafka" doc:"Connection to a Kafka cluster."`
	Embedded *Embedded     `yaml:"embedded" doc:"NATS server inside feedbridge, which stores its streams below data_dir."`
}

// Embedded is a JetStream server in this process, with its streams in
// Config.DataDir. There is at most one.
type Embedded struct {
	// Listen is the host:port where it takes clients. Default 127.0.0.1:4222.
	Listen string `yaml:"listen" default:"127.0.0.1:4222"`
}

// Feed is a feed and the topic that it is copied to. The tag kind marks settings that
// have a meaning for one kind of feed only. They may be set for that kind and for auto.
type Feed struct {
	// Source configures the requests to the feed's upstream.
	Source source.Config `yaml:",inline"`
	// Format is the format of the feed; auto detects it. Default auto.
	Format Format `yaml:"format" default:"auto"`
	// Every is the wait between polls that find nothing new: at least 100ms.
	// Default 10s.
	Every time.Duration `yaml:"every" default:"10s" min:"100ms"`
	// Start selects the first entity to read when the topic has no checkpoint. Only
	// datareplication feeds can start at an ID. Default beginning.
	Start source.Start `yaml:"start" default:"beginning"`
	// Gap selects the action when the feed no longer has the position that was
	// reached. Default halt.
	Gap datareplication.Gap `yaml:"gap" kind:"datareplication" default:"halt"`
	// Syndication configures the reading of Atom and RSS.
	Syndication syndication.Settings `yaml:",inline" kind:"syndication"`
	// Oversize selects the action for an entity that is too large for the bus, or that has a
	// header that the bus cannot carry, which only dead-letter affects. Default stop.
	Oversize sink.Oversize `yaml:"oversize" default:"stop"`
	// DedupeWindow is the number of the topic's newest IDs that are kept in memory to
	// drop repeated entities, 1 to 10,000,000. Default 100,000.
	DedupeWindow int `yaml:"dedupe_window" kind:"datareplication http-feeds" default:"100000" min:"1" max:"10000000"`
	// Freshness is the largest age of the last successful poll of a feed that is
	// ready. Zero means the default: 5m, or three times Every if that is longer.
	Freshness time.Duration `yaml:"freshness" min:"0s"`
	// Key selects the record key of an entity, for topics on Kafka. Default: none, so
	// that the whole feed goes to one partition.
	Key kafka.Key `yaml:"key"`
	To  To        `yaml:"to" doc:"Destination: a topic on a bus."`
}

// Format is the format of a feed, or auto.
type Format string

// Values returns the valid values.
func (Format) Values() []string {
	return []string{"auto", datareplication.Kind, string(feedxml.Atom), string(feedxml.RSS), string(feedxml.JSON), httpfeed.Kind}
}

// Kind returns the kind of source that reads the format; empty if it has to be
// detected.
func (f Format) Kind() string {
	switch f {
	case "atom", "rss", "jsonfeed":
		return syndication.Kind
	case datareplication.Kind, httpfeed.Kind:
		return string(f)
	}
	return ""
}

// To is the topic that a feed is copied to. It belongs to that feed only, unless it is
// a shared topic on Kafka.
type To struct {
	// Bus is a name in Config.Buses. Default: the only one.
	Bus string `yaml:"bus"`
	// Topic is the topic's name, on NATS the subject of the feed's messages.
	// Default: the feed's name.
	Topic string `yaml:"topic"`
	// CloudEvents makes the messages CloudEvents in binary mode. CloudEventsType is the beginning of their
	// type, by default feedbridge.entity, and CloudEventsSource their source, by default the feed's URL
	// without secrets. Both are empty unless CloudEvents is set.
	CloudEvents       bool   `yaml:"cloudevents"`
	CloudEventsType   string `yaml:"cloudevents_type"`
	CloudEventsSource string `yaml:"cloudevents_source"`
	// Stream configures the stream of the topic. It is set for NATS buses only.
	Stream *nats.Stream `yaml:"stream" doc:"NATS: the stream of the topic."`
	// Kafka configures the topic and its records. It is set for Kafka buses only.
	Kafka *kafka.Options `yaml:"kafka" doc:"Kafka: creation and form of the topic."`
}

// DeadLetters reports whether some entities are published to the dead-letter topic.
func (f Feed) DeadLetters() bool {
	return f.Oversize == sink.DeadLetter || f.To.Kafka != nil && f.To.Kafka.MissingKey == kafka.KeyDeadLetter
}

// Events returns the form of the messages as CloudEvents, nil if they are none.
func (t To) Events() *message.Events {
	if !t.CloudEvents {
		return nil
	}
	return message.NewEvents(t.CloudEventsType, t.CloudEventsSource)
}

// isShared reports whether other feeds may be copied to the topic too.
func (t To) isShared() bool { return t.Kafka != nil && t.Kafka.Shared }

// streamName returns the name of the stream on NATS.
func (t To) streamName() string { return nats.Topic{Subject: t.Topic, Stream: *t.Stream}.StreamName() }

// Defaults are values of the keys of feeds, as feed_defaults sets them: by the key, such as
// to.topic. Values that are empty are left out.
type Defaults map[string]any

// List is a list of feeds: an OPML or YAML document in a file or at a URL.
type List struct {
	// URL or File is set.
	URL  string `yaml:"url"`
	File string `yaml:"file"`
	// Every is the wait between requests of URL: at least 10s. Default 5m.
	Every time.Duration `yaml:"every" default:"5m" min:"10s"`
	// Headers and Auth are for the request of URL, not for the feeds of the list.
	Headers []credential.Secret `yaml:"headers"`
	Auth    source.Auth         `yaml:"auth" doc:"Credentials that are sent to the origin of the list."`
	// Defaults are the values of the keys of the list's feeds.
	Defaults Defaults `yaml:"defaults" doc:"Values of the keys of the list's feeds, before those of feed_defaults."`
}

// Source configures the requests of the list.
func (l List) Source() source.Config {
	cfg := source.Defaults()
	cfg.URL, cfg.Headers, cfg.Auth, cfg.LargestPage = l.URL, l.Headers, l.Auth, MaxList
	return cfg
}

// Fleet is the fleet that a copy is a member of: each feed is run by one of the members.
type Fleet struct {
	// Name is the same for all members. It has the form of the names of feeds, and at most
	// 64 characters.
	Name string `yaml:"name"`
	// Bus is a name in Config.Buses, by which the members find each other. Default: the only
	// one.
	Bus string `yaml:"bus"`
	// Advertise is the host:port at which the other members reach the admin server of this
	// copy. Default: admin.listen, or if that is all addresses, that of the machine.
	Advertise string `yaml:"advertise"`
}

// Admin is the server for health, metrics and status.
type Admin struct {
	// Listen is its host:port. Empty, or off in the file, means no server.
	// Default 127.0.0.1:9321.
	Listen string `yaml:"listen" default:"127.0.0.1:9321"`
	// Socket is the path of a Unix socket for the same server, with mode 0600. Its clients
	// may change things without a token. Empty, or off in the file, means none.
	Socket string `yaml:"socket"`
	// DefaultSockets are paths of the socket if the file has none: a daemon listens on the first if it can, and
	// its clients use the first that answers.
	DefaultSockets []string `yaml:"-"`
	// Token is what clients of Listen need for changes. Default: none, so that Listen is
	// read-only. Its file is read for every change.
	Token credential.Secret `yaml:"token"`
	// Hosts are names of the server in the public DNS, which its clients may use.
	Hosts []string `yaml:"hosts"`
}

// HasToken reports whether a token is configured.
func (a Admin) HasToken() bool { return a.Token != "" }

// ReadToken returns the token, from its file if it has one. It is empty if none is configured.
func (a Admin) ReadToken() (credential.Secret, error) {
	token, err := credential.ReadTrimmed(a.Token, "admin.token")
	if file, ok := a.Token.File(); ok && err == nil {
		err = checkToken("admin.token: "+file, token)
	}
	return token, err
}

// leastToken is the fewest characters of a token for changes.
const leastToken = 16

// checkToken returns an error, which begins with what, unless the token can be used.
func checkToken(what string, token credential.Secret) error {
	isUsable := func(r rune) bool { return r > ' ' && r <= '~' }
	switch text := token.Reveal(); {
	case strings.TrimFunc(text, isUsable) != "":
		return fmt.Errorf("%s must have only printable ASCII characters without spaces", what)
	case len(text) < leastToken:
		return fmt.Errorf("%s must have %d characters or more, such as those of 'openssl rand -hex 32'", what, leastToken)
	}
	return nil
}

// Options are the sources of a configuration. A setting in more than one of them is
// taken from URL, else from Set, else from Environ, else from File.
type Options struct {
	// File is the path of the YAML file; empty for none. If Data is not nil, it is the content of the file.
	File string
	Data []byte
	// Environ has the environment, as os.Environ returns it.
	Environ []string
	// Set has settings of the form path=value, such as feeds.orders.every=30s. Lists are
	// written as in Environ. Secrets are refused.
	Set []string
	// URL adds a feed with this URL, whose name is made from the host and path.
	URL string
	// Topic is the topic of the feed that URL adds; empty for the default.
	Topic string
	// Feedless accepts a configuration without feeds, for commands that need only its
	// buses, or that add feeds.
	Feedless bool
}
