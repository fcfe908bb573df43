package config

import (
	"time"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/source"
)

// Serve is the server of topics as feeds. There is none without feeds.
type Serve struct {
	// Listen is its host:port. Default 127.0.0.1:8080.
	Listen string `yaml:"listen" default:"127.0.0.1:8080"`
	// TLS is its certificate. Default: none.
	TLS Certificate `yaml:"tls" doc:"Certificate of the server."`
	// Feeds are by name, which is part of their URLs.
	Feeds map[string]Served `yaml:"feeds" doc:"Served feeds by name. The name is part of the URL, /feeds/NAME/latest." each:"A topic that is served as a feed."`
}

// Certificate is a certificate and its key in PEM files, read again when they
// change.
type Certificate struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Served is a topic that is served as a feed.
type Served struct {
	From From `yaml:"from" doc:"The topic."`
	// Format is the format of the served feed. Default datareplication.
	Format serve.Format `yaml:"format" default:"datareplication"`
	// PageSize is the number of the topic's positions on a page, 1 to 10,000. Default 500,
	// in Atom and RSS 100, because readers load a whole document into memory.
	PageSize int `yaml:"page_size"`
	// PublicURL is the URL of the feed as clients see it behind a proxy. Default: relative
	// links, and in datareplication the host of the request.
	PublicURL string `yaml:"public_url"`
	// Title is the title of the feed in Atom and RSS. Default: its name.
	Title    string     `yaml:"title"`
	Auth     ServedAuth `yaml:"auth" doc:"Credentials that clients must send. Without them everyone can read the feed."`
	Snapshot Snapshot   `yaml:"snapshot" doc:"Snapshots of the topic's state."`
}

// Snapshot configures the snapshots of a topic's state.
type Snapshot struct {
	// Every is the interval of snapshots. Default: none are built.
	Every time.Duration `yaml:"every"`
	// Key selects the key of the thing that a message describes; the newest message of
	// each key counts. Default: the Content-ID. A Kafka tombstone without such a key
	// uses the key of its record.
	Key kafka.Key `yaml:"key"`
}

// From is a topic to read.
type From struct {
	// Bus is a name in Config.Buses. Default: the only one that there is.
	Bus string `yaml:"bus"`
	// Topic is the topic's name, on NATS a subject. Default: the served feed's name.
	Topic string `yaml:"topic"`
	// Stream is the stream that has the subject, on NATS. Default: whichever has it.
	Stream string `yaml:"stream"`
	// Partition is the one that is served, on Kafka. Default 0.
	Partition int `yaml:"partition" min:"0"`
}

// ServedAuth holds the credentials that clients must send. Without any, everyone may read.
type ServedAuth struct {
	// Bearer is a token for "Authorization: Bearer". Its file is read for every request.
	Bearer credential.Secret `yaml:"bearer"`
	// Basic is a user name with its password, whose file is read for every request.
	Basic source.Basic `yaml:"basic" doc:"User name and password."`
}
