package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The names of others reach the lines of the bus's protocol, whose length the server limits. An entry that would
// exceed it is refused, and no other.
func TestLongNamesOfListsAreRefused(t *testing.T) {
	t.Parallel()
	base, err := Load(Options{Environ: []string{"FEEDBRIDGE_FEEDS_FROM_BLOGS_FILE=/lists/blogs.opml", "FEEDBRIDGE_FEED_DEFAULTS_TO_TOPIC=news.{host}.{feed}"}})
	must.Succeed(t, err)
	name := strings.Repeat("n", 100)
	got, refused := base.WithLists(map[string][]Entry{"blogs": {
		{Line: 1, Name: name, URL: "https://a.example.com/"},
		{Line: 2, Name: name + "n", URL: "https://b.example.com/"},
		{Line: 3, Name: "short", URL: "https://" + strings.Repeat("h", 244) + "/"},
		{Line: 4, Name: "shorty", URL: "https://" + strings.Repeat("h", 244) + "/2"},
		{Line: 5, Name: "longest", URL: "https://h" + strings.Repeat(".h", 3000) + "/"},
	}}, nil)
	if names := slices.Sorted(maps.Keys(got.Feeds)); !slices.Equal(names, []string{name, "short"}) {
		t.Errorf("the feeds are %q", names)
	}
	text := refused.Error()
	for _, part := range []string{"feeds_from.blogs:2: ", "a name has at most 100 characters", "feeds.shorty.to.topic: has 256 bytes; NATS takes 255 at most", "feeds.longest.to.topic: has"} {
		if !strings.Contains(text, part) {
			t.Errorf("no error has %s:\n%s", part, text)
		}
	}
}

// A URL on the command line has a valid name, however long it is.
func TestNameOfALongURL(t *testing.T) {
	t.Parallel()
	long := "https://shop.example.com/" + strings.Repeat("orders/", 100)
	cfg, err := Load(Options{URL: long})
	must.Succeed(t, err)
	for name := range cfg.Feeds {
		must.Succeed(t, CheckName(name))
	}
}
