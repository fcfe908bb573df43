package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/credential"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// Serve is the server of topics as feeds. There is none without feeds.
type Serve struct {
	// Listen is its host:port. Default 127.0.0.1:8080.
	Listen string `yaml:"listen"`
	// TLS is its certificate. Default: none.
	TLS Certificate `yaml:"tls"`
	// Connections is how many clients may be connected at a time; more have to
	// wait. Default 4096.
	Connections int `yaml:"connections"`
	// Memory is how many bytes of pages are held, those that are being sent
	// included. Default 64 MiB.
	Memory int64 `yaml:"memory"`
	// Feeds are by name, which is part of their URLs.
	Feeds map[string]Served `yaml:"feeds"`
}

// Certificate is a certificate and its key in PEM files, read again when they
// change.
type Certificate struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Served is a topic that is served as a feed.
type Served struct {
	From From `yaml:"from"`
	// Format is the format of the served feed. Default datareplication.
	Format serve.Format `yaml:"format"`
	// PageSize is how many of the topic's positions a page has, 1 to 10,000.
	// Default 500, in Atom and RSS 100: readers hold a document as a whole.
	PageSize int `yaml:"page_size"`
	// PublicURL is the URL of the feed as clients see it behind a proxy. Default: the
	// host of the request.
	PublicURL string `yaml:"public_url"`
	// Title is the title of the feed in Atom and RSS. Default: its name.
	Title string `yaml:"title"`
	// BusTime dates all entities with the time when the bus stored them, instead of
	// their own Last-Modified. Default false, and true with snapshots.
	BusTime  bool       `yaml:"bus_time"`
	Auth     ServedAuth `yaml:"auth"`
	Snapshot Snapshot   `yaml:"snapshot"`
}

// Snapshot configures the snapshots of a topic's state.
type Snapshot struct {
	// Every is the interval of snapshots. Default: none are built.
	Every time.Duration `yaml:"every"`
	// Key selects the key of the thing that a message describes; the newest message of
	// each key counts. Default: the Content-ID. A Kafka tombstone without such a key
	// uses the key of its record.
	Key kafka.Key `yaml:"key"`
	// Dir is the directory for the files of served snapshots. Default: the system's
	// directory for temporary files.
	Dir string `yaml:"dir"`
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
	Partition int `yaml:"partition"`
}

// ServedAuth is what clients have to know. Without any, everyone may read.
type ServedAuth struct {
	// Bearer is a token for "Authorization: Bearer".
	Bearer credential.Secret `yaml:"bearer"`
	// BearerFile has such a token. It is read once, at the start.
	BearerFile string `yaml:"bearer_file"`
	// Basic is a user name with its password, or with a file that has it, which is
	// read once, at the start.
	Basic ServedBasic `yaml:"basic"`
}

// ServedBasic is a user name and its password.
type ServedBasic struct {
	Username     string            `yaml:"username"`
	Password     credential.Secret `yaml:"password"`
	PasswordFile string            `yaml:"password_file"`
}

func (l *loader) completeServe(cfg *Config) {
	if cfg.Serve == nil {
		return
	}
	buses := l.names("buses")
	for name, f := range cfg.Serve.Feeds {
		if f.From.Topic == "" {
			f.From.Topic = name
		}
		if f.From.Bus == "" && len(buses) == 1 {
			f.From.Bus = buses[0]
		}
		if f.PageSize == 0 {
			f.PageSize = serve.DefaultPageSize
			if f.Format != serve.DataReplication {
				f.PageSize = 100
			}
		}
		cfg.Serve.Feeds[name] = f
	}
}

func (l *loader) checkServe(cfg *Config) {
	if cfg.Serve == nil {
		return
	}
	l.checkListen("serve.listen", cfg.Serve.Listen, "")
	if cfg.Serve.Listen == cfg.Admin.Listen {
		l.wrong("serve.listen", "is admin.listen too; each needs its own")
	}
	if tls := cfg.Serve.TLS; (tls.CertFile == "") != (tls.KeyFile == "") {
		l.wrong("serve.tls", "want both cert_file and key_file, or neither")
	}
	if cfg.Serve.Connections < 1 {
		l.wrong("serve.connections", "must be 1 or more")
	}
	if least := int64(1 << 20); cfg.Serve.Memory < least {
		l.wrong("serve.memory", fmt.Sprintf("must be %d or more", least))
	}
	names := l.names("serve.feeds")
	if len(names) == 0 {
		l.wrong("serve.feeds", "there are no feeds to serve; add one, or leave serve out")
	}
	buses := l.names("buses")
	for _, name := range names {
		f, path := cfg.Serve.Feeds[name], join("serve.feeds", name)
		l.checkAdapter(path, serve.Config{
			Name: name, Format: f.Format, PageSize: f.PageSize, PublicURL: f.PublicURL,
			Snapshot: serve.Snapshot{Every: f.Snapshot.Every},
		}.Validate())
		l.checkServedAuth(join(path, "auth"), f.Auth)
		l.checkFrom(join(path, "from"), f.From, cfg.Buses[f.From.Bus], buses)
	}
}

func (l *loader) checkServedAuth(path string, a ServedAuth) {
	basic, hasBasic := join(path, "basic"), a.Basic != ServedBasic{}
	_, asked := l.places[path]
	switch {
	case asked && a == ServedAuth{}:
		// An empty variable must not remove a configured password.
		l.wrong(path, "nothing is set, or what is set is empty, and everyone could read the feed; leave auth out if that is meant")
	case a.Bearer != "" && a.BearerFile != "":
		l.wrong(path, "want bearer or bearer_file, not both")
	case hasBasic && (a.Bearer != "" || a.BearerFile != ""):
		l.wrong(path, "want bearer or basic, not both")
	case a.Basic.Password != "" && a.Basic.PasswordFile != "":
		l.wrong(basic, "want password or password_file, not both")
	case hasBasic && a.Basic.Username == "":
		l.wrong(join(basic, "username"), "is missing")
	case hasBasic && a.Basic.Password == "" && a.Basic.PasswordFile == "":
		l.wrong(join(basic, "password"), "is missing; set it, or password_file")
	case strings.Contains(a.Basic.Username, ":"):
		l.wrong(join(basic, "username"), "must not have a colon")
	}
}

func (l *loader) checkFrom(path string, from From, bus Bus, buses []string) {
	switch {
	case from.Bus == "":
		l.wrong(join(path, "bus"), "there are several buses; want "+orList(buses))
	case l.faulty["buses"] || l.faulty[join("buses", shown(from.Bus))]: // reported there
	case !slices.Contains(buses, from.Bus):
		l.wrong(join(path, "bus"), fmt.Sprintf("there is no bus %q; want %s", from.Bus, orList(buses)))
	}
	switch kind := bus.kind(); {
	case kind == "kafka" && from.Stream != "":
		l.wrong(join(path, "stream"), fmt.Sprintf("is for NATS, and the bus %s is Kafka; leave it out", from.Bus))
	case kind == "nats" && from.Partition != 0:
		l.wrong(join(path, "partition"), fmt.Sprintf("is for Kafka, and the bus %s is NATS; leave it out", from.Bus))
	case from.Partition < 0:
		l.wrong(join(path, "partition"), "must not be negative")
	case kind == "kafka":
		l.checkAdapter(path, kafka.Topic{Name: from.Topic, Options: kafka.DefaultOptions()}.Validate())
	case kind == "nats":
		stream := presets(reflect.TypeFor[nats.Stream]()).Interface().(nats.Stream)
		l.checkAdapter(path, nats.Topic{Subject: from.Topic, Stream: stream}.Validate())
	}
}
