package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAddFeeds adds feeds to files of every form. Where that is refused, the lines in the error do it.
func TestAddFeeds(t *testing.T) {
	t.Parallel()
	one := map[string]NewFeed{"new": {URL: "https://new.example.com/feed"}}
	two := map[string]NewFeed{"null": {URL: "https://new.example.com/${x}"}, "new": {URL: "https://new.example.com/feed?a=1#b:", Headers: &[0]string{}, Auth: &struct{}{}}}
	const lines = "  new:\n    url: https://new.example.com/feed\n"
	for name, test := range map[string]struct {
		feeds      map[string]NewFeed
		file, want string
	}{
		"empty":                  {one, "", "feeds:\n" + lines},
		"only a comment":         {one, "# soon", "# soon\n\nfeeds:\n" + lines},
		"missing":                {one, "log: {level: warn}\n", "log: {level: warn}\n\nfeeds:\n" + lines},
		"missing, behind a text": {one, "log:\n  level: |+\n    warn\n\n", "log:\n  level: |+\n    warn\n\nfeeds:\n" + lines},
		"null":                   {one, "feeds: # none\n# b\nlog: {}\n", "feeds: # none\n" + lines + "# b\nlog: {}\n"},
		"null at the end":        {one, "feeds:", "feeds:\n" + lines},
		"no last line end":       {one, "feeds:\n  a:\n    url: https://a", "feeds:\n" + lines + "  a:\n    url: https://a"},
		"document marks":         {one, "---\nfeeds:\n  a:\n    url: https://a\n...\n", "---\nfeeds:\n" + lines + "  a:\n    url: https://a\n...\n"},
		"Windows":                {one, "feeds:\r\n  a:\r\n    url: https://a\r\n", "feeds:\r\n  new:\r\n    url: https://new.example.com/feed\r\n  a:\r\n    url: https://a\r\n"},
		"one step":               {one, "feeds:\n a: {url: https://a}\n", "feeds:\n new:\n   url: https://new.example.com/feed\n a: {url: https://a}\n"},
		"between keys, with comments": {
			two, "a: 1\nfeeds:\n    # x\n    x:\n      url: https://a # x\n      # y\n#      every: 1s\n\n# log\n#log: {}\n\nlog: {}\n",
			"a: 1\nfeeds:\n    new:\n      url: 'https://new.example.com/feed?a=1#b:'\n      headers: []\n      auth: {}\n    \"null\":\n      url: https://new.example.com/$${x}\n" +
				"    # x\n    x:\n      url: https://a # x\n      # y\n#      every: 1s\n\n# log\n#log: {}\n\nlog: {}\n",
		},
	} {
		got, err := AddFeeds([]byte(test.file), test.feeds)
		if diff := cmp.Diff(test.want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	for name, test := range map[string]struct{ file, want string }{
		"null sign":       {"log: {}\nfeeds: ~\n", "these lines:\nfeeds:\n" + lines},
		"empty braces":    {"feeds: {}\n", "these lines:\nfeeds:\n" + lines},
		"braces":          {"feeds: {\n  a: {url: https://a}\n}\n", "these lines:\nfeeds:\n" + lines},
		"an alias":        {"log: &a {}\nfeeds: *a\n", "these lines:\nfeeds:\n" + lines},
		"an anchor":       {"feeds: &f\n  a: {url: https://a}\nb: *f\n", "these lines:\n"},
		"a list":          {"feeds: [a]\n", "these lines:\n"},
		"two of a key":    {"feeds: {}\nfeeds: {}\n", "these lines:\n"},
		"two of a key, 2": {"feeds:\nfeeds:\n", "these lines:\n"},
		"JSON":            {`{"feeds": {"a": {"url": "https://a"}}}`, "these lines:\n"},
		"a later end":     {"log: {}\n...\n", "these lines:\n"},
		"no mapping":      {"- feeds\n", "the file is not a mapping of keys"},
		"no YAML":         {"feeds: {\n", "not YAML"},
	} {
		got, err := AddFeeds([]byte(test.file), one)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %q and %v", name, got, err)
			continue
		}
		if _, pasted, ok := strings.Cut(err.Error(), "these lines:\n"); ok {
			if cfg, err := Load(Options{File: "pasted.yaml", Data: []byte(pasted)}); err != nil || cfg.Feeds["new"].Source.URL != one["new"].URL {
				t.Errorf("%s: the lines cannot be pasted: %v\n%s", name, err, pasted)
			}
		}
	}
}

// TestAddFeedsKeepsTheExample adds a feed to the configuration with every key.
func TestAddFeedsKeepsTheExample(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../deploy/feedbridge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := AddFeeds(example, map[string]NewFeed{"new": {URL: "https://new.example.com/feed"}})
	const lines = "  new:\n    url: https://new.example.com/feed\n"
	before, after, found := strings.Cut(string(got), lines)
	if err != nil || !found || before+after != string(example) || !strings.HasSuffix(before, "\nfeeds:\n") {
		t.Errorf("%v\n%s", err, cmp.Diff(string(example), string(got)))
	}
}
