package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// defaults returns the configuration of a feed that has only a name and a URL.
func defaults(name, url string) Feed {
	src := source.Defaults()
	src.URL = url
	return Feed{
		Source: src, Format: "auto", Every: 10 * time.Second, Gap: "halt", Oversize: "stop",
		Syndication:  syndication.Defaults().Settings,
		DedupeWindow: 100_000, Freshness: 5 * time.Minute,
		To: To{Bus: "embedded", Topic: name, Stream: &nats.Stream{Create: true, Replicas: 1}},
	}
}

// minimal returns the configuration of a file that has only the feed orders.
func minimal() *Config {
	return &Config{
		DataDir: "./feedbridge-data",
		Log:     Log{Level: "info", Format: "auto"},
		Grace:   30 * time.Second,
		Memory:  64 << 20,
		Buses:   map[string]Bus{"embedded": {Embedded: &Embedded{Listen: "127.0.0.1:4222"}}},
		Feeds:   map[string]Feed{"orders": defaults("orders", "https://shop.example.com/feed")},
		Admin:   Admin{Listen: "127.0.0.1:9321"},
	}
}

// with returns the minimal configuration after change.
func with(change func(c *Config, orders *Feed)) *Config {
	c := minimal()
	orders := c.Feeds["orders"]
	change(c, &orders)
	if _, ok := c.Feeds["orders"]; ok {
		c.Feeds["orders"] = orders
	}
	return c
}

// goodEnv has the variables that the good files need.
var goodEnv = []string{"ORDERS_EVERY=7s", "API_KEY=a, [b]: ${ORDERS_EVERY} #c"}

func TestGoodFiles(t *testing.T) {
	t.Parallel()
	want := map[string]*Config{
		"minimal": minimal(),
		"embedded": with(func(c *Config, orders *Feed) {
			c.DataDir = "/var/lib/feedbridge"
			c.Buses = map[string]Bus{"here": {Embedded: &Embedded{Listen: "127.0.0.1:4222"}}}
			c.Admin.Listen = ""
			orders.Source.URL = "http://127.0.0.1:8080/feed"
			orders.To.Bus = "here"
		}),
		"variables": with(func(_ *Config, orders *Feed) {
			orders.Every = 7 * time.Second
			orders.DedupeWindow = 5
			orders.Source.Headers = []credential.Secret{
				"X-Api-Key: a, [b]: ${ORDERS_EVERY} #c", // neither parsed nor replaced again
				"X-Price: $5, ${API_KEY}",
			}
			orders.To.Stream.Create = false
		}),
		"anchors": with(func(c *Config, orders *Feed) {
			auth := source.Auth{Basic: source.Basic{Username: "me", Password: "0123"}}
			orders.Source.URL = "https://shop.example.com/orders"
			orders.Source.Auth = auth
			returns := defaults("returns", "https://shop.example.com/returns")
			returns.Source.Auth = auth
			c.Feeds["returns"] = returns
		}),
		"full":          full(),
		"feed_defaults": withDefaults(),
		"feeds_from": with(func(c *Config, _ *Feed) {
			c.FeedDefaults = Defaults{"every": 7 * time.Second, "to.topic": "{host}"}
			own := defaults("own_example_com", "https://own.example.com/feed")
			own.Every = 7 * time.Second
			c.Feeds = map[string]Feed{"own": own}
			c.FeedsFrom = map[string]List{
				"blogs": {
					URL: "https://reader.example.com/opml", Every: 10 * time.Minute, Auth: source.Auth{Bearer: "secret"},
					Defaults: Defaults{"every": 15 * time.Minute, "to.topic": "blogs.{feed}"},
				},
				"shops": {File: "/etc/feedbridge/shops.yaml", Every: 5 * time.Minute},
			}
		}),
		"syndication": with(func(c *Config, orders *Feed) {
			*orders = defaults("orders", "https://shop.example.com/feed")
			orders.Format, orders.Every, orders.Freshness = "atom", 5*time.Minute, 15*time.Minute
			orders.Start = source.Start{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			orders.Syndication = syndication.Settings{
				Dialect: "atomhopper", EntryOrder: "oldest_first", Mode: "tail", IgnoreChangesIn: []string{"comments", "{urn:x}count"},
				MaxDeleteRatio: 0, FullEvery: time.Hour, Hints: "ignore", Identity: "link", Body: "xml", Lenient: "true",
			}
			blog := defaults("blog", "https://blog.example.com/feed")
			blog.Format = "rss"
			c.Feeds["blog"] = blog
			// The format of a feed may be detected later.
			any := defaults("any", "https://any.example.com/feed")
			any.Gap, any.DedupeWindow, any.Syndication.Dialect = "restart", 7, "window"
			c.Feeds["any"] = any
		}),
		"kafka": onKafka(),
		"serve": serving(),
	}
	files, _ := filepath.Glob("testdata/*.good.yaml")
	if len(files) != len(want) {
		t.Errorf("%d good files and %d expectations", len(files), len(want))
	}
	for _, file := range files {
		got, err := Load(Options{File: file, Environ: goodEnv})
		if err != nil {
			t.Errorf("%v", err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".good.yaml")
		must.Match(t, file, want[name], got, reveal)
	}
}

// reveal makes cmp compare the values of secrets.
var reveal = cmp.Options{cmp.Transformer("reveal", credential.Secret.Reveal), cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreFields(Admin{}, "DefaultSockets")}

// withDefaults is testdata/feed_defaults.good.yaml.
func withDefaults() *Config {
	return with(func(c *Config, _ *Feed) {
		lake := setting.Defaults[kafka.Config]()
		lake.Brokers = []string{"127.0.0.1:9092"}
		c.Buses["lake"] = Bus{Kafka: &lake}
		c.FeedDefaults = Defaults{
			"every": 5 * time.Minute, "gap": datareplication.Gap("restart"), "headers": []credential.Secret{"X-Api-Key: secret"},
			"auth.bearer": credential.Secret("common"), "key": kafka.Key("/id"), "to.bus": "embedded", "to.topic": "news.{host}.{feed}",
			"to.stream.name": "news", "to.stream.max_age": 24 * time.Hour, "to.kafka.partitions": 6,
		}
		common := func(name, url string) Feed {
			f := defaults(name, url)
			f.Every, f.Freshness, f.Gap = 5*time.Minute, 15*time.Minute, "restart"
			f.Source.Headers, f.Source.Auth.Bearer, f.Source.AllowHosts = []credential.Secret{"X-Api-Key: secret"}, "common", []string{}
			f.To.Stream.Name, f.To.Stream.MaxAge, f.To.Stream.Subjects = "news", 24*time.Hour, []string{"news.>"}
			return f
		}
		a := common("news.a_example_com_8443.a", "https://A.example.com:8443/feed")
		b := common("blogs.b", "https://b.example.com/feed")
		b.Format, b.Every, b.Freshness = "atom", 7*time.Second, 5*time.Minute
		b.Source.Headers, b.Source.Auth = []credential.Secret{}, source.Auth{Basic: source.Basic{Username: "me", Password: "own"}}
		b.To.Stream.Name, b.To.Stream.Subjects, b.To.Stream.MaxAge = "own-b", []string{"blogs.>"}, time.Hour
		onLake := common("c", "https://c.example.com/feed")
		onLake.Key, onLake.To = "/id", To{Bus: "lake", Topic: "c", Kafka: new(kafka.DefaultOptions())}
		onLake.To.Kafka.Partitions = 6
		c.Feeds = map[string]Feed{"a": a, "b": b, "c": onLake}
	})
}

// onKafka is testdata/kafka.good.yaml.
func onKafka() *Config {
	orders := defaults("orders", "https://shop.example.com/feed")
	orders.Key = "/id"
	orders.To = To{Bus: "lake", Topic: "orders", Kafka: &kafka.Options{
		Create: false, Partitions: 6, Replication: 3, Config: []string{"cleanup.policy=compact,delete", "retention.ms=-1"},
		Shared: true, Partition: 2, Delete: kafka.DeleteTombstone, MissingKey: kafka.KeyStop,
	}}
	returns := defaults("returns", "https://shop.example.com/returns")
	returns.To = To{Bus: "small", Topic: "returns", Kafka: new(kafka.DefaultOptions())}
	changes := defaults("changes", "https://shop.example.com/changes")
	changes.Key = "header:Content-ID"
	changes.To = orders.To
	changes.To.Kafka = new(*orders.To.Kafka)
	changes.To.Kafka.Delete, changes.To.Kafka.Create, changes.To.Kafka.Partitions = kafka.DeleteMessage, true, 3
	changes.To.Kafka.Replication, changes.To.Kafka.Config, changes.To.Kafka.MissingKey = 0, nil, kafka.KeyNull
	small := setting.Defaults[kafka.Config]()
	small.Brokers = []string{"127.0.0.1:9092"}
	c := minimal()
	c.Buses = map[string]Bus{
		"lake": {Kafka: &kafka.Config{
			Brokers: []string{"a.example.com:9093", "b.example.com:9093"}, ClientID: "shop",
			TLS:     kafka.TLS{Enabled: true, ClientFiles: credential.ClientFiles{CertFile: "/tls/cert.pem", KeyFile: "/tls/key.pem", CAFile: "/tls/ca.pem"}, ServerName: "kafka"},
			SASL:    kafka.SASL{Mechanism: kafka.ScramSHA512, Username: "fb", Password: "s3cret"},
			Timeout: 5 * time.Second, Compression: kafka.Zstd,
			Checkpoints: "shop.checkpoints",
		}},
		"small": {Kafka: &small},
	}
	c.Feeds = map[string]Feed{"orders": orders, "returns": returns, "changes": changes}
	return c
}

// serving is testdata/serve.good.yaml, which has no feeds to copy.
func serving() *Config {
	lake := setting.Defaults[kafka.Config]()
	lake.Brokers = []string{"127.0.0.1:9092"}
	c := minimal()
	c.Buses = map[string]Bus{
		"main": {NATS: &nats.Config{URL: "nats://127.0.0.1:4222", Timeout: 10 * time.Second}},
		"lake": {Kafka: &lake},
	}
	c.Feeds = nil
	c.Serve = &Serve{
		Listen: "0.0.0.0:8443", TLS: Certificate{CertFile: "/tls/cert.pem", KeyFile: "/tls/key.pem"},
		Feeds: map[string]Served{
			"orders": {
				From: From{Bus: "main", Topic: "shop.orders", Stream: "SHOP"}, Format: serve.DataReplication, PageSize: 100,
				PublicURL: "https://feeds.example.com/orders",
				Auth:      ServedAuth{Basic: source.Basic{Username: "partner", Password: "file:/run/secrets/partner"}},
				Snapshot:  Snapshot{Every: time.Hour, Key: "/id"},
			},
			"changes": {
				From: From{Bus: "lake", Topic: "changes", Partition: 2}, Format: serve.Atom, PageSize: 100, Title: "What changed",
				Auth: ServedAuth{Bearer: "file:/run/secrets/token"},
			},
		},
	}
	return c
}

// full is testdata/full.good.yaml, in which every kind of key is set.
func full() *Config {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	orders := Feed{
		Source: source.Config{
			URL:     "https://shop.example.com/feed/latest",
			Headers: []credential.Secret{"X-Api-Key: K3y, With: Case", "Accept-Encoding: identity"},
			Auth: source.Auth{
				OAuth2: credential.OAuth2{
					TokenURL: "https://login.example.com/token", ClientID: "feedbridge",
					ClientSecret: "s3cret", Scopes: []string{"read", "feed"},
				},
				TLS: credential.ClientFiles{CertFile: "/tls/cert.pem", KeyFile: "/tls/key.pem", CAFile: "/tls/ca.pem"},
			},
			AllowHosts: []string{"cdn.example.com", "cdn.example.com:8443"},
			Timeout:    2 * time.Second,
			Limits:     source.Limits{Entity: 100_000, Rate: 0.5},
		},
		Format: "datareplication", Every: 500 * time.Millisecond, Start: source.Start{At: at},
		Gap: "resume-at-timestamp", Oversize: "skip", DedupeWindow: 1, Freshness: time.Hour,
		Syndication: syndication.Defaults().Settings,
		To: To{Bus: "main", Topic: "shop.orders", Stream: &nats.Stream{
			Name: "SHOP", Create: false, Replicas: 3, MaxAge: 168 * time.Hour, MaxBytes: 1 << 30,
		}},
	}
	returns := defaults("returns", "https://shop.example.com/returns")
	returns.Start = source.Start{ID: "<42@shop.example.com>", At: at}
	returns.Source.Auth.Bearer = "file:/run/secrets/token"
	returns.To.Bus = "here"
	return &Config{
		DataDir: "/var/lib/feedbridge",
		Log:     Log{Level: "debug", Format: "json"},
		Grace:   90 * time.Second,
		Memory:  32 << 20,

		SecretParameters: []string{"ticket", "x-shop-id"},

		Buses: map[string]Bus{
			"main": {NATS: &nats.Config{
				URL:             "nats://a.example.com:4222,nats://b.example.com:4222",
				CredentialsFile: "/run/secrets/nats.creds",
				InboxPrefix:     "_INBOX_feedbridge",
				APIPrefix:       "$JS.hub.API",
				Timeout:         5 * time.Second,
				TLS:             nats.TLS{ClientFiles: credential.ClientFiles{CertFile: "/tls/cert.pem", KeyFile: "/tls/key.pem", CAFile: "/tls/ca.pem"}, First: true},
			}},
			"here": {Embedded: &Embedded{Listen: "127.0.0.1:4333"}},
		},
		Feeds: map[string]Feed{"my-orders": orders, "returns": returns},
		Admin: Admin{Listen: "[::1]:9321"},
		Fleet: &Fleet{Name: "shop-feeds", Bus: "main"},
	}
}

// Files and lists as people and editors write them.
func TestFormsOfYAML(t *testing.T) {
	t.Parallel()
	const url = "http://h/feed?format=atom,&x=1"
	for _, text := range []string{
		"%YAML 1.2\n---\nfeeds: {a: {url: 'URL'}}\n",
		"\ufeff%YAML 1.2\r\n---\r\nfeeds:\r\n  a:\r\n    url: URL\r\n",
		"feeds:\n  a: {url: http://h/feed?format=atom, every: 5s}\n",
	} {
		cfg, err := Load(Options{Data: []byte(strings.Replace(text, "URL", url, 1))})
		if err != nil || !strings.HasPrefix(cfg.Feeds["a"].Source.URL, "http://h/feed?format=atom") {
			t.Errorf("%q: %v", text, err)
		}
	}
	entries, err := ParseList([]byte("- {url: http://h/feed?format=atom, name: a}\n- http://h/?b\n"))
	must.Succeed(t, err)
	must.Match(t, "list", []Entry{{Name: "a", URL: "http://h/feed?format=atom", Line: 1}, {URL: "http://h/?b", Line: 2}}, entries)
}

func TestFreshnessFollowsEvery(t *testing.T) {
	t.Parallel()
	got, err := Load(Options{URL: "https://shop.example.com/", Environ: []string{"FEEDBRIDGE_FEEDS_SHOP_EXAMPLE_COM_EVERY=10m"}})
	must.Succeed(t, err)
	if f := got.Feeds["shop-example-com"]; f.Freshness != 30*time.Minute {
		t.Errorf("freshness is %v with every 10m, want 30m", f.Freshness)
	}
}

func TestFeedURL(t *testing.T) {
	t.Parallel()
	for url, name := range map[string]string{
		"https://Shop.Example.com/feed/Latest/?page=1": "shop-example-com-feed-latest",
		"http://127.0.0.1:8080/feed":                   "feed-127-0-0-1-8080-feed",
		"https://[::1]/":                               "feed-1",
	} {
		got, err := Load(Options{URL: url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if f, ok := got.Feeds[name]; !ok || f.Source.URL != url || f.To.Topic != name {
			t.Errorf("%s makes the feeds %v, want the name %s", url, got.Feeds, name)
		}
	}
	for _, url := range []string{"http://", "%zz", "shop.example.com"} {
		_, err := Load(Options{URL: url})
		if err == nil || !strings.HasPrefix(err.Error(), "URL: feeds.") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one about the URL", url, err)
		}
	}
}

func TestNothingConfigured(t *testing.T) {
	t.Parallel()
	_, err := Load(Options{Environ: []string{"HOME=/root", "FEEDBRIDGE_CONFIG=/elsewhere"}})
	const want = "feeds: there are no feeds; add one here or set FEEDBRIDGE_FEEDS_<NAME>_URL"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestErrorsArePermanent(t *testing.T) {
	t.Parallel()
	_, err := Load(Options{})
	if !errors.Is(err, feed.ErrPermanent) {
		t.Errorf("%v does not match ErrPermanent", err)
	}
}

// TestSample checks the sample that operators copy: it loads, it mentions every key, and
// the settings in comments are the defaults.
func TestSample(t *testing.T) {
	t.Parallel()
	const file = "../deploy/feedbridge.yaml"
	got, err := Load(Options{File: file})
	must.Succeed(t, err)
	if f := got.Feeds["orders"]; f.To.Bus != "main" || f.To.Topic != "orders" {
		t.Errorf("the sample's feed is %+v", f)
	}

	l := newLoader([]string{
		"API_KEY=x", "ADMIN_TOKEN=0123456789abcdef", "NATS_PASSWORD=x", "NATS_TOKEN=x", "KAFKA_PASSWORD=x", "KAFKA_CLIENT_SECRET=x", "ORDERS_TOKEN=x", "ORDERS_PASSWORD=x", "ORDERS_CLIENT_SECRET=x",
	})
	l.readYAML(file, switchOn(t, file))
	for _, err := range l.errs {
		t.Errorf("with everything switched on: %v", err)
	}
	schemaRoot.forEachSetting(func(s *spec) {
		path := strings.NewReplacer("feeds.*", "feeds.orders", "feeds_from.*", "feeds_from.blogs", "buses.*.nats", "buses.main.nats", "buses.*.kafka", "buses.lake.kafka", "buses.*", "buses.local").Replace(s.path)
		if _, ok := l.locations[path]; !ok && s.documentedPath() == s.path {
			t.Errorf("the sample does not mention %s", s.path)
		}
		if text, ok := l.layers.Get(path).(string); ok && s.preset != "" && s.name != "url" && s.documentedPath() == s.path {
			if value, err := setting.Decode(s.typ, text); err != nil || setting.Encode(value) != s.preset {
				t.Errorf("the sample has %s: %v, the default is %s", path, text, s.preset)
			}
		}
	})
}

// switchOn returns the file with the settings that are in comments.
func switchOn(t *testing.T, file string) []byte {
	t.Helper()
	lines := bytes.Split(read(t, file), []byte("\n"))
	for i, line := range lines {
		if setting, ok := bytes.CutPrefix(line, []byte("#")); ok && isSetting.Match(setting) {
			lines[i] = setting
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

var isSetting = regexp.MustCompile(`^ *(- |[a-z0-9_]+:)`)

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must.Succeed(t, err)
	return data
}

func TestDefaultSockets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		situation string
		environ   []string
		file      string
		want      []string
	}{
		{"the data directory", []string{"FEEDBRIDGE_DATA_DIR=/data"}, "", []string{"/data/admin.sock"}},
		{"another port", []string{"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:9322"}, "", []string{"feedbridge-data/admin-9322.sock"}},
		{"any port", []string{"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0"}, "", []string{"feedbridge-data/admin.sock"}},
		{"no port", []string{"FEEDBRIDGE_ADMIN_LISTEN=off"}, "", []string{"feedbridge-data/admin.sock"}},
		{"a port that is none", []string{"FEEDBRIDGE_ADMIN_LISTEN=x:../../y"}, "", []string{"feedbridge-data/admin-y.sock"}},
		{"a service", []string{"RUNTIME_DIRECTORY=/run/a:/run/b"}, "/etc/feedbridge/feedbridge.yaml", []string{"/run/a/admin.sock"}},
		{"a client of a service", []string{"FEEDBRIDGE_DATA_DIR=/data"}, "/etc/orders/x.yaml", []string{"/data/admin.sock", "/run/orders/admin.sock"}},
		{"a file beside the services'", []string{"FEEDBRIDGE_DATA_DIR=/data"}, "/etc/x.yaml", []string{"/data/admin.sock"}},
		{"a socket", []string{"FEEDBRIDGE_ADMIN_SOCKET=s"}, "", nil},
		{"off", []string{"FEEDBRIDGE_ADMIN_SOCKET=off"}, "", nil},
	} {
		l := newLoader(test.environ)
		l.file = test.file
		l.readVariables()
		cfg := l.decode()
		completeAdmin(cfg, l.environ, l.file)
		if !slices.Equal(cfg.Admin.DefaultSockets, test.want) || cfg.Admin.Socket == "off" {
			t.Errorf("%s: got %q and %q, want %q", test.situation, cfg.Admin.Socket, cfg.Admin.DefaultSockets, test.want)
		}
	}
}
