package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file that is reviewed like code.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		must.Succeed(t, os.WriteFile(file, got, 0o644))
	}
	if diff := cmp.Diff(string(read(t, file)), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update writes it:\n%s", file, diff)
	}
}

func TestPrintedForm(t *testing.T) {
	t.Parallel()
	cfg, err := Load(Options{File: "testdata/full.good.yaml"})
	must.Succeed(t, err)
	got, err := cfg.YAML()
	must.Succeed(t, err)
	golden(t, "testdata/full.golden", got)
}

// The printed form can be loaded again, and is the same apart from secrets.
func TestPrintedFormLoads(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/*.good.yaml")
	for _, file := range append(files, "../deploy/feedbridge.yaml") {
		cfg, err := Load(Options{File: file, Environ: goodEnv})
		must.Succeed(t, err)
		checkRoundTrip(t, cfg)
	}
}

func checkRoundTrip(t *testing.T, cfg *Config) {
	t.Helper()
	printed, err := cfg.YAML()
	must.Succeed(t, err)
	l := newLoader(nil)
	// The mask is shorter than a token of the admin server must be.
	l.readYAML("printed.yaml", bytes.ReplaceAll(printed, []byte(`token: "***"`), []byte(`token: "****************"`)))
	again, err := l.loadConfig(Options{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, printed)
	}
	masked := cmp.Comparer(func(a, b credential.Secret) bool { return (a == "") == (b == "") })
	urls := cmp.FilterPath(func(p cmp.Path) bool { return strings.HasSuffix(p.Last().String(), "URL") },
		cmp.Comparer(func(a, b string) bool { return maskURLs(a) == maskURLs(b) }))
	if diff := cmp.Diff(cfg, again, masked, urls, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Fatalf("-first +again:\n%s\n%s", diff, printed)
	}
	bare := *cfg // without comments, since values come from other lines now
	bare.set, again.set = diagnostics{}, diagnostics{}
	once, err := bare.YAML()
	must.Succeed(t, err)
	if twice, err := again.YAML(); err != nil || !bytes.Equal(twice, once) {
		t.Fatalf("printed twice (error %v):\n%s\nand once:\n%s", err, twice, once)
	}
}

// Each value that is set has its origin beside it: that of the source that takes precedence.
func TestOrigins(t *testing.T) {
	t.Parallel()
	opts := Options{
		File: "f.yaml",
		Data: []byte("feed_defaults:\n  every: 30s\n  auth: {bearer: s3cret}\n" +
			"feeds_from:\n  vendors:\n    file: v.opml\n    defaults: {gap: restart}\n" +
			"admin:\n  listen: 127.0.0.1:1\nfeeds:\n  a: {url: http://h/a, every: 10s}\n  b:\n    url: http://h/b\n    headers: [\"X-A: b\"]\n"),
		Environ: []string{"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:2", "FEEDBRIDGE_FEEDS_A_FORMAT=rss", "FEEDBRIDGE_FEEDS_A_EVERY=11s"},
		Set:     []string{"grace=7s", "feeds.a.every=12s"},
	}
	cfg, err := Load(opts)
	must.Succeed(t, err)
	must.Match(t, "keys of the file that variables override", []string{"admin.listen by FEEDBRIDGE_ADMIN_LISTEN"}, cfg.Overridden())
	want := map[string]string{
		"feed_defaults.every": "f.yaml:2", "feed_defaults.auth.bearer": "f.yaml:3",
		"feeds_from.vendors.file": "f.yaml:6", "feeds_from.vendors.defaults.gap": "f.yaml:7",
		"admin.listen": "FEEDBRIDGE_ADMIN_LISTEN", "grace": "--set",
		"feeds.a.url": "f.yaml:11", "feeds.a.every": "--set", "feeds.a.auth.bearer": "f.yaml:3", "feeds.a.format": "FEEDBRIDGE_FEEDS_A_FORMAT",
		"feeds.b.url": "f.yaml:13", "feeds.b.every": "f.yaml:2", "feeds.b.auth.bearer": "f.yaml:3", "feeds.b.headers": "f.yaml:14",
	}
	must.Match(t, "origins", want, cfg.Origins())
	printed, err := cfg.YAML()
	must.Succeed(t, err)
	for _, line := range []string{"    every: 30s # f.yaml:2\n", "  listen: 127.0.0.1:2 # FEEDBRIDGE_ADMIN_LISTEN\n", `    headers: ["X-A: ***"] # f.yaml:14` + "\n", "grace: 7s # --set\n"} {
		if !bytes.Contains(printed, []byte(line)) {
			t.Errorf("%q is missing in\n%s", line, printed)
		}
	}
	listed, _ := cfg.WithLists(map[string][]Entry{"vendors": {{Name: "c", URL: "http://h/c", Line: 9}}}, nil)
	for path, origin := range map[string]string{"url": "list vendors, line 9", "gap": "f.yaml:7", "every": "f.yaml:2", "auth.bearer": "f.yaml:3"} {
		want["feeds.c."+path] = origin
	}
	must.Match(t, "origins with the list", want, listed.Origins())
	if keys := listed.Overridden(); len(keys) != 1 {
		t.Errorf("with the list, variables override %q", keys)
	}
}

// A value has one line, however long it is, and an error in a list is where the list is set.
func TestOriginsOfLists(t *testing.T) {
	t.Parallel()
	opts := Options{File: "f.yaml", Data: []byte("buses: {k: {kafka: {brokers: ['a:1']}}}\nfeeds: {a: {url: http://h/a}}\n")}
	opts.Environ = []string{"FEEDBRIDGE_BUSES_K_KAFKA_BROKERS=" + strings.Repeat("broker.example.com:9092,", 20)}
	cfg, err := Load(opts)
	must.Succeed(t, err)
	printed, err := cfg.YAML()
	must.Succeed(t, err)
	if want := strings.Repeat(`"broker.example.com:9092", `, 19) + `"broker.example.com:9092"] # FEEDBRIDGE_BUSES_K_KAFKA_BROKERS` + "\n"; !bytes.Contains(printed, []byte(want)) {
		t.Errorf("%s is missing in\n%s", want, printed)
	}
	opts.Environ = []string{"FEEDBRIDGE_BUSES_K_KAFKA_BROKERS=x"}
	if _, err = Load(opts); err == nil || !strings.HasPrefix(err.Error(), "FEEDBRIDGE_BUSES_K_KAFKA_BROKERS: buses.k.kafka.brokers[0]: ") {
		t.Errorf("got %v, want an error in the variable", err)
	}
}

func TestPrintingMasksSecrets(t *testing.T) {
	t.Parallel()
	cfg, err := Load(Options{Environ: []string{
		"FEEDBRIDGE_FEEDS_A_URL=" + shop,
		"FEEDBRIDGE_FEEDS_A_HEADERS=X-Api-Key: s3cret: s3cret",
		"FEEDBRIDGE_FEEDS_A_AUTH_BASIC_USERNAME=me",
		"FEEDBRIDGE_FEEDS_A_AUTH_BASIC_PASSWORD=s3cret",
		"FEEDBRIDGE_FEEDS_A_START=id:$${x}${@2026-01-01T00:00:00Z",
		"FEEDBRIDGE_BUSES_M_NATS_URL=nats://s3cret@10.0.0.1:4222",
	}})
	must.Succeed(t, err)
	checkRoundTrip(t, cfg)
	got, err := cfg.YAML()
	must.Succeed(t, err)
	if bytes.Contains(got, []byte("s3cret")) {
		t.Errorf("a secret shows in\n%s", got)
	}
	for _, want := range []string{`headers: ["X-Api-Key: ***"]`, "username: me #", `password: "***"`, `url: "nats://***@10.0.0.1:4222"`} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
}

func TestPrintingMasksSecretParameters(t *testing.T) {
	t.Parallel()
	cfg, err := Load(Options{Environ: []string{
		"FEEDBRIDGE_SECRET_PARAMETERS=ticket",
		"FEEDBRIDGE_FEEDS_A_URL=https://shop.example.com/feed?page=1&ticket=s3cret",
	}})
	must.Succeed(t, err)
	got, err := cfg.YAML()
	must.Succeed(t, err)
	if want := `url: "https://shop.example.com/feed?page=1&ticket=***"`; !bytes.Contains(got, []byte(want)) {
		t.Errorf("%s is missing in\n%s", want, got)
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://shop.example.com/@me/feed?to=a@b":    "https://shop.example.com/@me/feed?to=a@b",
		"nats://a:b@h:4222":                           "nats://***@h:4222",
		"nats://a:b@c@h:4222":                         "nats://***@h:4222",
		"nats://h1:4222, nats://t@h2:4222,tls://t@h3": "nats://h1:4222, nats://***@h2:4222,tls://***@h3",
		"a:b@h1:4222,t@h2":                            "***@h1:4222,***@h2",
		"https://a@h/feed?page=1&token=b":             "https://***@h/feed?page=1&token=***",
	} {
		if got := maskURLs(url); got != want {
			t.Errorf("%s is masked as %s, want %s", url, got, want)
		}
	}
}
