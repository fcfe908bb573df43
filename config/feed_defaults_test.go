package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVariablesGoBeforeFeedDefaults(t *testing.T) {
	t.Parallel()
	got, err := Load(Options{File: "testdata/feed_defaults.good.yaml", Environ: []string{
		"FEEDBRIDGE_FEED_DEFAULTS_EVERY=6m", "FEEDBRIDGE_FEED_DEFAULTS_LIMITS_RATE=2", "FEEDBRIDGE_FEEDS_C_EVERY=7m",
	}, Set: []string{"feed_defaults.freshness=33m"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{"a": 6 * time.Minute, "b": 7 * time.Second, "c": 7 * time.Minute} {
		if f := got.Feeds[name]; f.Every != want || f.Source.Limits.Rate != 2 || f.Freshness != 33*time.Minute {
			t.Errorf("%s has every: %v, limits.rate: %v, freshness: %v", name, f.Every, f.Source.Limits.Rate, f.Freshness)
		}
	}
	_, err = Load(Options{File: "testdata/feed_defaults.good.yaml", Environ: []string{"FEEDBRIDGE_FEED_DEFAULTS_EVRY=6m"}})
	if want := "FEEDBRIDGE_FEED_DEFAULTS_EVRY: no key of the configuration has this variable"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// An error in feed_defaults is reported once, whichever number of feeds has it.
func TestFeedDefaultsOfManyFeeds(t *testing.T) {
	t.Parallel()
	text := strings.Builder{}
	text.WriteString("feed_defaults: {oversize: dead-letter, to: {bus: mian}}\nfeeds:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "  feed-%d: {url: \"https://example.com/%d\"}\n", i, i)
	}
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Options{File: file})
	if want := file + `:1: feed_defaults.to.bus: there is no bus "mian"; want embedded`; err == nil || err.Error() != want {
		t.Errorf("got %.300v, want %s", err, want)
	}
	cfg, err := Load(Options{File: file, Environ: []string{"FEEDBRIDGE_FEED_DEFAULTS_TO_BUS=embedded"}})
	if err != nil || len(cfg.Feeds) != 10_000 || cfg.Feeds["feed-17"].To.Bus != "embedded" {
		t.Errorf("%d feeds, %v", len(cfg.Feeds), err)
	}
}
