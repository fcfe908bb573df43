package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAddFeeds adds feeds to files of every form.
func TestAddFeeds(t *testing.T) {
	t.Parallel()
	one := []Entry{{Name: "new", URL: "https://new.example.com/feed"}}
	two := []Entry{{Name: "new", URL: "https://new.example.com/feed?a=1#b"}, {Name: "null", URL: "https://new.example.com/${x}"}}
	for name, test := range map[string]struct {
		feeds      []Entry
		file, want string
	}{
		"empty":          {one, "", "feeds:\n  new:\n    url: https://new.example.com/feed\n"},
		"only a comment": {one, "# soon", "# soon\n\nfeeds:\n  new:\n    url: https://new.example.com/feed\n"},
		"missing":        {one, "log: {level: warn}\n", "log: {level: warn}\n\nfeeds:\n  new:\n    url: https://new.example.com/feed\n"},
		"missing, with a text of several lines": {
			one, "log:\n  level: |+\n    warn\n\n", "log:\n  level: |+\n    warn\n\nfeeds:\n  new:\n    url: https://new.example.com/feed\n",
		},
		"null":              {one, "feeds: # none\n# b\nlog: {}\n", "feeds: # none\n  new:\n    url: https://new.example.com/feed\n# b\nlog: {}\n"},
		"null at the end":   {one, "feeds:", "feeds:\n  new:\n    url: https://new.example.com/feed\n"},
		"empty braces":      {one, "feeds: {}\nlog: {}\n", "feeds:\n  new:\n    url: https://new.example.com/feed\nlog: {}\n"},
		"braces, a comment": {one, "feeds: { } # none", "feeds: # none\n  new:\n    url: https://new.example.com/feed\n"},
		"braces, two lines": {one, "feeds: {\n}\n", "feeds: {new: {url: https://new.example.com/feed}\n}\n"},
		"no last line end":  {one, "feeds:\n  a:\n    url: https://a", "feeds:\n  a:\n    url: https://a\n  new:\n    url: https://new.example.com/feed\n"},
		"document marks":    {one, "---\nfeeds:\n  a:\n    url: https://a\n...\n", "---\nfeeds:\n  a:\n    url: https://a\n  new:\n    url: https://new.example.com/feed\n...\n"},
		"Windows":           {one, "feeds:\r\n  a:\r\n    url: https://a\r\n", "feeds:\r\n  a:\r\n    url: https://a\r\n  new:\r\n    url: https://new.example.com/feed\r\n"},
		"between keys, with comments": {
			two, "a: 1\nfeeds:\n    x:\n      url: https://a # x\n\n      # y\n#      every: 1s\n\n# log\n#log: {}\n\nlog: {}\n",
			"a: 1\nfeeds:\n    x:\n      url: https://a # x\n\n      # y\n#      every: 1s\n    new:\n      url: \"https://new.example.com/feed?a=1#b\"\n" +
				"    \"null\":\n      url: \"https://new.example.com/$${x}\"\n\n# log\n#log: {}\n\nlog: {}\n",
		},
		"each in braces": {one, "feeds:\n  a: {url: https://a}\nb: 1\n", "feeds:\n  a: {url: https://a}\n  new: {url: https://new.example.com/feed}\nb: 1\n"},
		"a text that looks like a comment": {
			one, "feeds:\n  a:\n    url: |\n      https://a\n\n      # no comment\n\nb: 1\n",
			"feeds:\n  a:\n    url: |\n      https://a\n\n      # no comment\n  new:\n    url: https://new.example.com/feed\n\nb: 1\n",
		},
		"all in braces": {one, "feeds: {a: {url: \"h}\\\"\", x: it's}, b: ['}', #}\n]} # c\nb: {}\n", "feeds: {a: {url: \"h}\\\"\", x: it's}, b: ['}', #}\n], new: {url: https://new.example.com/feed}} # c\nb: {}\n"},
		"braces, lines": {two, "é: {ü: 1}\nfeeds: &f {\n    a: {url: https://a}, # x\n}\n", "é: {ü: 1}\nfeeds: &f {\n    a: {url: https://a},\n    new: {url: \"https://new.example.com/feed?a=1#b\"},\n    \"null\": {url: \"https://new.example.com/$${x}\"} # x\n}\n"},
		"JSON":          {one, "{\"feeds\": {\"a\": {\"url\": \"https://a\"}}}", `{"feeds": {"a": {"url": "https://a"}, "new": {"url": "https://new.example.com/feed"}}}`},
		"JSON, missing": {one, "\ufeff{\n  \"log\": {}\n}\n", "\ufeff{\n  \"log\": {},\n  \"feeds\": {\"new\": {\"url\": \"https://new.example.com/feed\"}}\n}\n"},
		"JSON, empty":   {one, `{"feeds": {}}`, `{"feeds": {"new": {"url": "https://new.example.com/feed"}}}`},
	} {
		got, err := AddFeeds([]byte(test.file), test.feeds)
		if diff := cmp.Diff(test.want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	for name, test := range map[string]struct{ file, want string }{
		"an alias":     {"log: &a {}\nfeeds: *a\n", "write them into the file:\n  new:\n    url: https://new.example.com/feed"},
		"a list":       {"feeds: [a]\n", "write them into the file"},
		"no mapping":   {"- feeds\n", "the file is not a mapping of keys"},
		"no YAML":      {"feeds: {\n", "not YAML"},
		"a null sign":  {"feeds: ~\n", "write them into the file"},
		"two of a key": {"feeds: {}\nfeeds: {}\n", "write them into the file"},
	} {
		if got, err := AddFeeds([]byte(test.file), one); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %q and %v", name, got, err)
		}
	}
}

// TestAddFeedsKeepsTheExample adds a feed to the configuration with every key. The keys of the feed before it that are
// switched off stay with that feed.
func TestAddFeedsKeepsTheExample(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../deploy/feedbridge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := AddFeeds(example, []Entry{{Name: "new", URL: "https://new.example.com/feed"}})
	const lines = "  new:\n    url: https://new.example.com/feed\n"
	before, after, found := strings.Cut(string(got), lines)
	if err != nil || !found || before+after != string(example) || !strings.HasSuffix(before, "#        missing_key: stop\n") {
		t.Errorf("%v\n%s", err, cmp.Diff(string(example), string(got)))
	}
}

// FuzzAddFeeds checks that whatever a file has, feeds are added to exactly its content, or not at all.
func FuzzAddFeeds(f *testing.F) {
	for _, seed := range []string{
		"feeds:\n  a: {url: b}\n", "feeds: {a: {url: 'b'}, c: {url: \"d\", headers: [e's]}} # e\n", "data_dir: |+\n  # y\n\n", "{\"feeds\": {}, \"log\": {}}", "feeds: # a\r\n",
		"feeds:\n    a:\n      headers:\n      - b: c # d\n# e\n\nmemory: 524288\n",
	} {
		f.Add([]byte(seed))
	}
	feeds := []Entry{{Name: "new-feed", URL: "https://new.example.com/feed?a"}, {Name: "no", URL: "https://new.example.com/"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		changed, err := AddFeeds(data, feeds)
		if err != nil {
			return
		}
		old := newLoader(nil)
		old.feedless = true
		if old.readYAML("a", data); len(old.errs) > 0 {
			return // it cannot be used, before and after
		}
		now := newLoader(nil)
		now.readYAML("a", changed)
		for _, e := range feeds {
			path := joinPath("feeds", e.Name) + ".url"
			if v := now.values[path]; !v.IsValid() || v.String() != e.URL {
				t.Fatalf("%q became %q, which lacks %s", data, changed, e.Name)
			}
			delete(now.values, path)
		}
		if len(old.values) != len(now.values) {
			t.Fatalf("%q became %q", data, changed)
		}
		for path, v := range old.values {
			if !now.values[path].IsValid() || !cmp.Equal(v.Interface(), now.values[path].Interface()) {
				t.Fatalf("%q became %q, which changes %s", data, changed, path)
			}
		}
	})
}
