package config

import (
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// viper folds keys to lower case and divides them at dots.
func TestKeysStayAsViperKeepsThem(t *testing.T) {
	t.Parallel()
	schemaRoot.forEachSetting(func(s *spec) {
		if s.path != strings.ToLower(s.path) || strings.Contains(s.name, ".") {
			t.Errorf("viper changes the key %s", s.path)
		}
	})
	for _, name := range []string{"A", "a.b", "A1", "Orders", "1st"} {
		if nameForm.MatchString(name) {
			t.Errorf("viper would change the name %s", name)
		}
		if key := layerKey(name); nameForm.MatchString(key) || key != strings.ToLower(key) || strings.Contains(key, ".") {
			t.Errorf("the key of %s is %s", name, key)
		}
	}
}

// A source changes only the keys that it sets, not their siblings, the defaults or other feeds.
func TestLayersChangeOnlyWhatTheySet(t *testing.T) {
	t.Parallel()
	cfg, err := Load(Options{
		Data: []byte(`
feed_defaults:
  headers: ["X-A: 1", "X-B: 2", "X-C: 3"]
  auth: {basic: {username: me, password: a}}
  limits: {rate: 7}
  to: {bus: main, stream: {create: false, max_age: 1h}, kafka: {partitions: 3}}
buses: {main: {embedded: {}}, lake: {kafka: {brokers: ["h:9092"]}}}
feeds:
  k: {url: http://h/k, to: {bus: lake, kafka: {replication: 2}}}
  l: {url: http://h/l, to: {bus: lake}}
  a: {url: http://h/a, headers: ["X-D: 4"], to: {stream: {max_age: 2h}}}
  b: {url: http://h/b, auth: {bearer: b}}
  c: {url: http://h/c, headers: [], limits: {entity: 9999999}}
`),
		Environ: []string{"FEEDBRIDGE_FEEDS_B_HEADERS=X-E: 5", "FEEDBRIDGE_FEEDS_A_TO_STREAM_NAME=s", "FEEDBRIDGE_FEEDS_D_URL=http://h/d"},
		Set:     []string{"feeds.c.to.stream.create=true", "feeds.a.every=3s"},
	})
	must.Succeed(t, err)
	a, b, c, d := cfg.Feeds["a"], cfg.Feeds["b"], cfg.Feeds["c"], cfg.Feeds["d"]
	must.Match(t, "headers of a", []credential.Secret{"X-D: 4"}, a.Source.Headers)
	must.Match(t, "headers of b", []credential.Secret{"X-E: 5"}, b.Source.Headers)
	must.Match(t, "headers of c", []credential.Secret{}, c.Source.Headers)
	must.Match(t, "headers of d", []credential.Secret{"X-A: 1", "X-B: 2", "X-C: 3"}, d.Source.Headers)
	if s := a.To.Stream; s.Create || s.MaxAge != 2*time.Hour || s.Name != "s" || a.Every != 3*time.Second {
		t.Errorf("the stream of a is %+v, and every is %v", s, a.Every)
	}
	if s := c.To.Stream; !s.Create || s.MaxAge != time.Hour || c.Source.Limits.Rate != 7 || c.Source.Limits.Entity != 9999999 {
		t.Errorf("the stream of c is %+v, and its limits are %+v", s, c.Source.Limits)
	}
	if s := d.To.Stream; s.Create || s.MaxAge != time.Hour || d.Every != 10*time.Second {
		t.Errorf("the stream of d is %+v, and every is %v", s, d.Every)
	}
	if k, l := cfg.Feeds["k"].To.Kafka, cfg.Feeds["l"].To.Kafka; k.Partitions != 3 || k.Replication != 2 || l.Partitions != 3 || l.Replication != 0 {
		t.Errorf("the topics of k and l are %+v and %+v", k, l)
	}
	if b.Source.Auth.Basic.Username != "" || b.Source.Auth.Bearer != "b" || d.Source.Auth.Basic.Username != "me" {
		t.Errorf("the credentials of b are %+v, and those of d %+v", b.Source.Auth, d.Source.Auth)
	}
}

// Variables as files, Secrets and env files leave them.
func TestValuesOfVariables(t *testing.T) {
	t.Parallel()
	cfg, err := Load(Options{
		Data: []byte("feeds: {a: {url: '${URL}', headers: ['X-Key: ${KEY}'], auth: {bearer: '${QUOTED}'}}}"),
		Environ: []string{
			"URL=https://h/feed \n", "KEY=k1\r\n", "FEEDBRIDGE_GRACE=7s\n", "FEEDBRIDGE_MEMORY=1.34217728e+08\t", "FEEDBRIDGE_ADMIN_LISTEN=off \n", `QUOTED="b"`,
			`FEEDBRIDGE_ADMIN_TOKEN="0123456789abcdef"`, // a secret may have any character
		},
	})
	must.Succeed(t, err)
	f := cfg.Feeds["a"]
	if f.Source.URL != "https://h/feed" || f.Source.Headers[0] != "X-Key: k1" || f.Source.Auth.Bearer != `"b"` {
		t.Errorf("the feed is %q with %q and %q", f.Source.URL, f.Source.Headers[0].Reveal(), f.Source.Auth.Bearer.Reveal())
	}
	if cfg.Grace != 7*time.Second || cfg.Memory != 128<<20 || cfg.Admin.Listen != "" || cfg.Admin.Token != `"0123456789abcdef"` {
		t.Errorf("got grace %v, memory %d, listen %q", cfg.Grace, cfg.Memory, cfg.Admin.Listen)
	}
	const want = "the value begins with a quote, which is a part of it; remove the quotes"
	for variable, path := range map[string]string{
		`FEEDBRIDGE_FEEDS_A_URL="https://h/feed"`: "feeds.a.url", `FEEDBRIDGE_GRACE='7s'`: "grace",
		`FEEDBRIDGE_FEEDS_A_ALLOW_HOSTS="a, b"`: "feeds.a.allow_hosts", `FEEDBRIDGE_FEEDS_A_ALLOW_HOSTS=a,'b'`: "feeds.a.allow_hosts",
	} {
		_, err := Load(Options{Data: []byte("feeds: {a: {url: http://h/}}"), Environ: []string{variable}})
		name, _, _ := strings.Cut(variable, "=")
		if wanted := name + ": " + path + ": " + want; err == nil || err.Error() != wanted {
			t.Errorf("%s: got %v, want %s", variable, err, wanted)
		}
	}
	cfg, err = Load(Options{Data: []byte("feeds: {a: {url: http://h/}}\nserve: {feeds: {a: {title: '\"A\"'}}}"), Set: []string{`serve.feeds.a.title="A" or "B"`}})
	if err != nil || cfg.Serve.Feeds["a"].Title != `"A" or "B"` {
		t.Errorf("a title with quotes: %v", err)
	}
}
