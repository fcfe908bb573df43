package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

const shop = "https://shop.example.com/feed"

func TestEnvironmentAlone(t *testing.T) {
	t.Parallel()
	got, err := Load(Options{Environ: []string{
		"FEEDBRIDGE_DATA_DIR=/var/lib/feedbridge",
		"FEEDBRIDGE_BUSES_MAIN_NATS_URL=nats://10.0.0.1:4222",
		"FEEDBRIDGE_BUSES_MAIN_NATS_TLS_FIRST=true",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_URL=" + shop,
		"FEEDBRIDGE_FEEDS_MY_ORDERS_EVERY=5s",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_START=now",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_AUTH_BASIC_USERNAME=me",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_AUTH_BASIC_PASSWORD=${NOT_REPLACED} #: *",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_LIMITS_RATE=0.5",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_TO_STREAM_MAX_BYTES=1000",
		"FEEDBRIDGE_ADMIN_LISTEN=",
		"NOT_FEEDBRIDGE_GRACE=x",
	}})
	must.Succeed(t, err)
	want := minimal()
	want.DataDir = "/var/lib/feedbridge"
	want.Admin.Listen = ""
	want.Buses = map[string]Bus{"main": {NATS: &nats.Config{
		URL: "nats://10.0.0.1:4222", Timeout: 10 * time.Second, TLS: nats.TLS{First: true},
	}}}
	f := defaults("my-orders", shop)
	f.Every, f.Start.Now, f.Source.Limits.Rate = 5*time.Second, true, 0.5
	f.Source.Auth.Basic.Username, f.Source.Auth.Basic.Password = "me", "${NOT_REPLACED} #: *"
	f.To.Bus, f.To.Stream.MaxBytes = "main", 1000
	want.Feeds = map[string]Feed{"my-orders": f}
	must.Match(t, "", want, got, reveal)
}

func TestEnvironmentGoesBeforeFile(t *testing.T) {
	t.Parallel()
	got, err := Load(Options{File: "testdata/full.good.yaml", Environ: []string{
		"FEEDBRIDGE_FEEDS_MY_ORDERS_HEADERS=X-A: b",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_ALLOW_HOSTS=",
		"FEEDBRIDGE_FEEDS_MY_ORDERS_DEDUPE_WINDOW=7",
		"FEEDBRIDGE_FEEDS_NEWS_URL=" + shop,
		"FEEDBRIDGE_FEEDS_NEWS_TO_BUS=here",
	}})
	must.Succeed(t, err)
	want := full()
	orders := want.Feeds["my-orders"]
	orders.Source.Headers, orders.DedupeWindow = []credential.Secret{"X-A: b"}, 7
	orders.Source.AllowHosts = []string{}
	want.Feeds["my-orders"] = orders
	news := defaults("news", shop)
	news.To.Bus = "here"
	want.Feeds["news"] = news
	must.Match(t, "", want, got, reveal)
}

func TestListsInTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, value string
		want       []string
	}{
		{"ALLOW_HOSTS", "a.example.com, b.example.com:8443", []string{"a.example.com", "b.example.com:8443"}},
		{"ALLOW_HOSTS", "\na.example.com\nb.example.com\n", []string{"a.example.com", "b.example.com"}},
		{"ALLOW_HOSTS", "[a.example.com, 'b.example.com']", []string{"a.example.com", "b.example.com"}},
		{"ALLOW_HOSTS", "", nil},
		{"HEADERS", "X-A: b, c", []string{"X-A: b, c"}},
		{"HEADERS", "X-A: b, c\n  X-D: [e]\n", []string{"X-A: b, c", "X-D: [e]"}},
		{"HEADERS", `["X-A: b, c", "X-D: e"]`, []string{"X-A: b, c", "X-D: e"}},
	} {
		cfg, err := Load(Options{Environ: []string{"FEEDBRIDGE_FEEDS_A_URL=" + shop, "FEEDBRIDGE_FEEDS_A_" + c.key + "=" + c.value}})
		if err != nil {
			t.Errorf("%s=%q: %v", c.key, c.value, err)
			continue
		}
		got := append([]string(nil), cfg.Feeds["a"].Source.AllowHosts...)
		for _, h := range cfg.Feeds["a"].Source.Headers {
			got = append(got, h.Reveal())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s=%q (-want +got):\n%s", c.key, c.value, diff)
		}
	}
}

// A name may end in what looks like the start of a key. The file decides, else
// the longest key.
func TestAmbiguousVariables(t *testing.T) {
	t.Parallel()
	const (
		variable = "FEEDBRIDGE_FEEDS_A_AUTH_OAUTH2_TOKEN_URL"
		token    = "https://login.example.com/"
	)
	for _, c := range []struct {
		situation, file string
		path            string // the path that is set
	}{
		{"no file", "", "feeds.a.auth.oauth2.token_url"},
		{"the file has the short name", "feeds: {a: {}}", "feeds.a.auth.oauth2.token_url"},
		{"the file has the long name", "feeds: {a-auth-oauth2-token: {}}", "feeds.a-auth-oauth2-token.url"},
		{"the file has another name", "feeds: {b: {}}", "feeds.a.auth.oauth2.token_url"},
	} {
		l := newLoader([]string{variable + "=" + token})
		if c.file != "" {
			l.readYAML("f.yaml", []byte(c.file))
		}
		l.readVariables()
		if got := l.layers.GetString(c.path); got != token || len(l.errs) > 0 {
			t.Errorf("%s: got %v, %v; want %s", c.situation, l.layers.AllSettings(), l.errs, c.path)
		}
	}
	l := newLoader([]string{variable + "=" + token})
	l.readYAML("f.yaml", []byte("feeds: {a: {}, a-auth-oauth2-token: {}}"))
	l.readVariables()
	const want = variable + ": feeds.a-auth-oauth2-token.url: the variable can mean this key and feeds.a.auth.oauth2.token_url; set it in the file instead"
	if l.errs.Error() != want {
		t.Errorf("the file has both names:\n got %v\nwant %s", l.errs, want)
	}
}

func TestWrongVariables(t *testing.T) {
	t.Parallel()
	const noKey = "no key of the configuration has this variable; want FEEDBRIDGE_ and the key in capitals, with _ in place of . and -"
	for variable, want := range map[string]string{
		"FEEDBRIDGE_GRACE=30":                          "grace: want a duration with a unit, such as 30s",
		"FEEDBRIDGE_GRACE=":                            "grace: want a duration with a unit, such as 30s",
		"FEEDBRIDGE_GRCE=30s":                          noKey,
		"FEEDBRIDGE_FEEDS_ORDERS_EVRY=1s":              noKey,
		"FEEDBRIDGE_FEEDS_orders_URL=" + shop:          noKey,
		"FEEDBRIDGE_FEEDS_ORDERS_AUTH=x":               noKey,
		"FEEDBRIDGE_FEEDS_URL=" + shop:                 noKey,
		"FEEDBRIDGE_WHATEVER=1":                        noKey,
		"FEEDBRIDGE_SERVE_FEEDS_ORDERS_AUTH_BEARER=":   "serve.feeds.orders.auth: no credential is set, or it is empty, so everyone could read the feed; remove auth if that is intended",
		"FEEDBRIDGE_SERVE_LISTEN=127.0.0.1:8080":       "serve.feeds: there are no feeds to serve; add one, or leave serve out",
		"FEEDBRIDGE_BUSES_LAKE_KAFKA_BROKERS=a":        "buses.lake.kafka.brokers[0]: ...",
		"FEEDBRIDGE_FEEDS_ORDERS_KEY=id":               `feeds.orders.key: "id": want a JSON pointer such as /id, or header:<name>`,
		"FEEDBRIDGE_FEEDS_ORDERS_FORMAT=json":          "feeds.orders.format: want auto, datareplication, atom, rss, jsonfeed or http-feeds",
		"FEEDBRIDGE_FEEDS_ORDERS_HEADERS=[s3cret: x]":  "feeds.orders.headers: not a YAML list of text",
		"FEEDBRIDGE_FEEDS_ORDERS_HEADERS=s3cret":       "feeds.orders.headers[0]: ...",
		"FEEDBRIDGE_FEEDS_ORDERS_AUTH_BEARER=s3\ncret": "feeds.orders.auth.bearer: ...",
		"FEEDBRIDGE_FEEDS_ORDERS_TO_TOPIC=\xff":        "feeds.orders.to.topic: the value is not UTF-8",
	} {
		name, _, _ := strings.Cut(variable, "=")
		_, err := Load(Options{File: "testdata/minimal.good.yaml", Environ: []string{variable}})
		if !matchesError(err, name+": "+want) {
			t.Errorf("%q:\n got %v\nwant %s: %s", variable, err, name, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// A Kubernetes service called feedbridge, or feedbridge-admin, puts these into
// the environment of every pod.
func TestServiceLinksAreLeftAlone(t *testing.T) {
	t.Parallel()
	_, err := Load(Options{File: "testdata/minimal.good.yaml", Environ: []string{
		"FEEDBRIDGE_SERVICE_HOST=10.0.0.7",
		"FEEDBRIDGE_SERVICE_PORT=9321",
		"FEEDBRIDGE_SERVICE_PORT_ADMIN=9321",
		"FEEDBRIDGE_PORT=tcp://10.0.0.7:9321",
		"FEEDBRIDGE_PORT_9321_TCP=tcp://10.0.0.7:9321",
		"FEEDBRIDGE_PORT_9321_TCP_PROTO=tcp",
		"FEEDBRIDGE_PORT_9321_TCP_PORT=9321",
		"FEEDBRIDGE_PORT_9321_TCP_ADDR=10.0.0.7",
		"FEEDBRIDGE_ADMIN_SERVICE_HOST=10.0.0.7",
		"FEEDBRIDGE_ADMIN_PORT=tcp://10.0.0.7:9321",
	}})
	if err != nil {
		t.Error(err)
	}
	schemaRoot.forEachSetting(func(s *spec) {
		if serviceLink.MatchString(envPrefix + spellPath(s.path)) {
			t.Errorf("the variable of %s looks like a service link", s.path)
		}
	})
}

func TestVariableThatIsNotText(t *testing.T) {
	t.Parallel()
	_, err := Load(Options{File: "testdata/variables.good.yaml", Environ: []string{"ORDERS_EVERY=5s", "API_KEY=s3cret\xff"}})
	const want = "testdata/variables.good.yaml:8: feeds.orders.headers[0]: the value of the variable API_KEY is not UTF-8"
	if !matchesError(err, want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
