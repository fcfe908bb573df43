package config

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseList(t *testing.T) {
	t.Parallel()
	want := []Entry{{URL: "https://a.example.com/feed?a=1&b=2", Line: 2}, {Name: "b", URL: "https://b.example.com/feed", Line: 3}}
	for _, text := range []string{
		"# feeds\n- https://a.example.com/feed?a=1&b=2\n- {name: b, url: https://b.example.com/feed, auth: {bearer: file:/etc/passwd}}\n",
		"\ufeff<?xml version=\"1.0\" encoding=\"UTF-8\"?><opml version=\"2.0\"><body><outline text=\"A&nbsp;B\">\n<outline xmlUrl=\"https://a.example.com/feed?a=1&amp;b=2\"/>\n" +
			"<outline xmlurl=\" https://b.example.com/feed\" name=\"b\"/></outline></body></opml>",
	} {
		got, err := ParseList([]byte(text))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	deep := func(n int) string {
		return "<opml><body>" + strings.Repeat("<outline xmlUrl='http://a/'>", n) + strings.Repeat("</outline>", n) + "</body></opml>"
	}
	if got, err := ParseList([]byte(deep(1_000))); err != nil || len(got) != 1_000 {
		t.Errorf("1,000 outlines deep: %d entries, %v", len(got), err)
	}
	if got, err := ParseList([]byte("[]")); err != nil || len(got) != 0 {
		t.Errorf("an empty list: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"": "the list is empty", "# none\n": "the list is empty", "<!-- -->": "not OPML",
		"<!DOCTYPE html><html><br></html>": "this is an HTML page, not a list", "<HTML>": "this is an HTML page, not a list",
		"<rss version='2.0'/>": "this is a feed, not a list of feeds",
		"<sitemap/>":           `an XML document with the root element "sitemap"; want OPML`,
		"<opml><body><outline xmlUrl='http://a/'/>":                            "line 1: not OPML",
		"<opml><body><outline xmlUrl='http://a/?b=1&c=2'/></body></opml>":      "line 1: not OPML: invalid character entity &c (no semicolon): write & as &amp;, also in URLs",
		"<opml><body><outline text='a & b' xmlUrl='http://a/'/></body></opml>": "write & as &amp;, also in URLs",
		"<!DOCTYPE opml [<!ENTITY a 'b'>]><opml>&a;":                           "not OPML",
		"a: b":                                   `want a list, such as "- https://shop.example.com/feed", or OPML`,
		"{\"error\":":                            "not YAML",
		deep(1_001):                              "nested more than 1000 deep",
		strings.Repeat(" ", MaxList) + "<opml/>": "more than 16777216 bytes",
		strings.Repeat("- http://a/\n", maxYAMLMarks+1):                                      "more than 100000 lines, commas and brackets of YAML",
		"<opml>" + strings.Repeat("<outline xmlUrl='http://a/'/>", maxEntries+1) + "</opml>": "more than 100000 feeds",
	} {
		if got, err := ParseList([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: got %d entries and %v, want %s", text, len(got), err, want)
		}
	}
}

func TestFormatOPML(t *testing.T) {
	t.Parallel()
	want := []Entry{{Name: "a", URL: "https://a.example.com/?a=1&b=<\"2'>", Title: "A & \"B\" ></outline>"}, {Name: "b", URL: "https://b.example.com/", Title: "b"}}
	text, err := FormatOPML(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseList(text)
	for i := range got {
		got[i].Line = 0
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%s: %v\n%s", text, err, diff)
	}
	if got, err := FormatOPML(nil); err != nil || !strings.Contains(string(got), "<body></body>") {
		t.Errorf("without feeds: %s, %v", got, err)
	}
}

func TestWithLists(t *testing.T) {
	t.Parallel()
	base, err := Load(Options{File: "testdata/feeds_from.good.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	own := base.Feeds["own"].Source.URL
	long := "https://a.example.com/" + strings.Repeat("x", 300)
	got, refused := base.WithLists(map[string][]Entry{
		"blogs": {
			{URL: "https://a.example.com/Feed.xml", Line: 1},
			{URL: "https://v.example.com/?id=1", Line: 2},
			{URL: "https://v.example.com/?id=2", Line: 3},
			{URL: "https://a.example.com/Feed.xml", Line: 4},
			{URL: "ftp://a", Line: 5},
			{Name: "Bad Name", URL: "https://c.example.com/", Line: 6},
			{Name: "own", URL: "https://e.example.com/", Line: 7},
			{URL: "https://d.example.com/a-b", Line: 8},
			{URL: "https://d.example.com/a/b", Line: 9},
			{URL: long, Line: 10},
		},
		"shops":   {{Name: "x", URL: "https://x.example.com/1", Line: 1}, {Name: "y", URL: "https://x.example.com/2", Line: 2}, {Name: "z", URL: "https://z.example.com/", Line: 3}, {Name: "w", URL: "https://own.example.com/", Line: 4}, {Name: "v", URL: own, Line: 5}},
		"unknown": {{Name: "n", URL: "https://n.example.com/", Line: 1}},
	}, nil)
	// A daemon is found by its file.
	if got.File() == "" || got.File() != base.File() || !got.IsSet("feeds_from.blogs.url") {
		t.Errorf("the file is %q with lists, and %q without", got.File(), base.File())
	}
	topics := map[string]string{}
	for name, f := range got.Feeds {
		topics[name] = f.To.Topic + " " + f.Every.String()
	}
	want := map[string]string{
		"own": "own_example_com 7s", "a-example-com-feed-xml": "blogs.a-example-com-feed-xml 15m0s",
		"v-example-com-" + ListedName("https://v.example.com/?id=1")[14:]: "blogs." + ListedName("https://v.example.com/?id=1") + " 15m0s",
		"v-example-com-" + ListedName("https://v.example.com/?id=2")[14:]: "blogs." + ListedName("https://v.example.com/?id=2") + " 15m0s",
		ListedName(long): "blogs." + ListedName(long) + " 15m0s", "z": "z_example_com 7s",
	}
	if diff := cmp.Diff(want, topics); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(ListedName(long)) > maxListedName {
		t.Errorf("a name has %d characters", len(ListedName(long)))
	}
	texts := refused.Error()
	for _, part := range []string{
		"feeds_from.blogs:5: url: ", `feeds_from.blogs:6: "Bad Name": a name has only`, "feeds_from.blogs:7: the name own belongs to a feed of the configuration",
		"feeds_from.blogs:8: 2 entries with different URLs have the name d-example-com-a-b", "feeds_from.blogs:9: 2 entries with different URLs have the name d-example-com-a-b",
		"feeds_from.blogs:4: another entry, of this list or another one, has this URL too",
		"feeds.x.to.topic: x_example_com on bus embedded belongs to the feed y", "feeds.y.to.topic: x_example_com on bus embedded belongs to the feed x",
		"feeds_from.shops:5: the feed own of the configuration has this URL too; remove one of the two",
		"feeds.w.to.topic: own_example_com on bus embedded belongs to the feed own already",
	} {
		if !strings.Contains(texts, part) {
			t.Errorf("no error has %s:\n%s", part, texts)
		}
	}
	if len(refused) != 10 {
		t.Errorf("%d errors, want 10:\n%s", len(refused), texts)
	}
	// The lists are not added to those before.
	if again, refused := got.WithLists(nil, nil); len(again.Feeds) != 1 || refused != nil || len(base.Feeds) != 1 {
		t.Errorf("%d feeds without lists, %v", len(again.Feeds), refused)
	}
}

// Feeds of lists that run keep their names, topics and lists, whatever entries come besides, in any order.
func TestIncumbentsOfLists(t *testing.T) {
	t.Parallel()
	base, err := Load(Options{File: "testdata/feeds_from.good.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	name := ListedName("https://d.example.com/a-b")
	before := map[string][]Entry{
		"blogs": {{URL: "https://d.example.com/a-b"}},
		"shops": {{Name: "x", URL: "https://x.example.com/1"}, {Name: "m", URL: "https://m.example.com/"}},
	}
	running, refused := base.WithLists(before, nil)
	if len(running.Feeds) != 4 || refused != nil {
		t.Fatalf("%d feeds, %v", len(running.Feeds), refused)
	}
	for _, test := range []struct {
		what, list string
		entry      Entry
		want       string
	}{
		{"a derived name", "blogs", Entry{URL: "https://d.example.com/a/b"}, "feeds_from.blogs:9: the name " + name + " belongs to a feed of the list blogs, which had it before; give"},
		{"a name", "blogs", Entry{Name: "x", URL: "https://y.example.com/"}, "feeds_from.blogs:9: the name x belongs to a feed of the list shops, which had it before; give"},
		{"a URL", "blogs", Entry{Name: "w", URL: "https://m.example.com/"}, "feeds_from.blogs:9: another entry, of this list or another one, has this URL too; the entry that was used before stays, or"},
		{"a name and a URL", "blogs", Entry{Name: "m", URL: "https://m.example.com/"}, "feeds_from.blogs:9: another entry"},
		{"a topic", "shops", Entry{Name: "a", URL: "https://x.example.com/2"}, "feeds.a.to.topic: x_example_com on bus embedded belongs to the feed x already"},
		{"a topic, with a later name", "shops", Entry{Name: "z", URL: "https://x.example.com/2"}, "feeds.z.to.topic: x_example_com on bus embedded belongs to the feed x already"},
	} {
		now := maps.Clone(before)
		test.entry.Line = 9
		now[test.list] = append([]Entry{test.entry}, before[test.list]...)
		got, refused := base.WithLists(now, running)
		if !maps.Equal(got.ListOf, running.ListOf) || got.Feeds[name].Source.URL != "https://d.example.com/a-b" || got.Feeds["x"].Source.URL != "https://x.example.com/1" {
			t.Errorf("%s: the feeds are %v", test.what, got.ListOf)
		}
		if len(refused) != 1 || !strings.Contains(refused.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.what, refused, test.want)
		}
	}
	// The name is free once its list does not have the entry any more.
	now := maps.Clone(before)
	now["blogs"], now["shops"] = []Entry{{Name: "x", URL: "https://x.example.com/2"}}, before["shops"][1:]
	if got, refused := base.WithLists(now, running); got.ListOf["x"] != "blogs" || refused != nil {
		t.Errorf("the feeds are %v, %v", got.ListOf, refused)
	}
}

func TestManyListedFeeds(t *testing.T) {
	t.Parallel()
	base, err := Load(Options{File: "testdata/feeds_from.good.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for i := range 10_000 {
		entries = append(entries, Entry{URL: fmt.Sprintf("https://blog-%d.example.com/feed", i), Line: i + 1})
	}
	if got, refused := base.WithLists(map[string][]Entry{"blogs": entries}, nil); len(got.Feeds) != 10_001 || refused != nil {
		t.Errorf("%d feeds, %.500v", len(got.Feeds), refused)
	}
}
