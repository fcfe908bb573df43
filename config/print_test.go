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
	if twice, err := again.YAML(); err != nil || !bytes.Equal(twice, printed) {
		t.Fatalf("printed twice (error %v):\n%s\nand once:\n%s", err, twice, printed)
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
	for _, want := range []string{`headers: ["X-Api-Key: ***"]`, "username: me\n", `password: "***"`, `url: "nats://***@10.0.0.1:4222"`} {
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
