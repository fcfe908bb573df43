package serve

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mmcdole/gofeed"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// bodies are messages of all kinds.
var bodies = []feed.Record{
	{Time: noon, Body: []byte("no headers")},
	messageOf("<1@x>", feed.Put, noon, "a < b & c"),
	messageOf("2@x", feed.Patch, noon, `{"a":1}`, feed.Field{Name: "Content-Type", Value: "application/json"}),
	messageOf("3@x", feed.Put, noon, "<p>html", feed.Field{Name: "Content-Type", Value: "text/html; charset=utf-8"}),
	messageOf("urn:4", feed.Put, noon, "<?xml version='1.0'?><a xmlns:b='urn:b'><b:c/></a>", feed.Field{Name: "Content-Type", Value: "application/xml"}),
	messageOf("5 é@x", feed.Put, noon, "<a><b></a>", feed.Field{Name: "Content-Type", Value: "text/xml"}),
	messageOf("6@x", feed.Put, noon, "zero\x00byte", feed.Field{Name: "Content-Type", Value: "text/plain"}),
	messageOf("7@x", feed.Put, noon, "", feed.Field{Name: "Content-Type", Value: "nonsense"}),
	messageOf("8@x", feed.Put, noon, "<x:a/>", feed.Field{Name: "Content-Type", Value: "a/b+xml"}),
	messageOf("9@x", feed.Put, noon, "<a b='1' b='2'/>", feed.Field{Name: "Content-Type", Value: "a/b+xml"}),
	messageOf("10@x", feed.Put, noon, "<!DOCTYPE a><a/>", feed.Field{Name: "Content-Type", Value: "a/b+xml"}),
	messageOf("11@x", feed.Put, noon, "<a/><b/>", feed.Field{Name: "Content-Type", Value: "a/b+xml"}),
	messageOf("12@x", feed.Put, noon, "</feed>", feed.Field{Name: "Content-Type", Value: "application/atom+xml"}),
	syndicated("urn:x:13", feed.Put, noon, entryOf("urn:x:13", noon, "13"), isAtom),
	syndicated("14", feed.Put, noon, itemOf("14", "&lt;b>14"), isRSS...),
}

func TestDocumentsAreReadByOtherParsers(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for _, r := range bodies {
		topic.add(r)
	}
	for _, format := range []Format{Atom, RSS} {
		parallel.Run(t, "case 137: gofeed reads "+string(format), func(t *testing.T) {
			for _, g := range serveTopic(t, topic, as(format)).documents(t) {
				doc, err := gofeed.NewParser().ParseString(g.body)
				if err != nil || doc.Title != "orders" {
					t.Fatalf("got %v, %v", doc, err)
				}
				var ids []string
				for _, it := range doc.Items {
					ids = append(ids, it.GUID)
					if it.Title == "" || it.UpdatedParsed == nil && it.PublishedParsed == nil && it.GUID != "14" {
						t.Errorf("got %v", it)
					}
				}
				if want := idsIn(t, g.body); !slices.Equal(ids, want) {
					t.Errorf("got %q, want %q", ids, want)
				}
			}
		})
		parallel.Run(t, "case 137: feedparser reads "+string(format), func(t *testing.T) {
			python(t, "feedparser")
			for _, g := range serveTopic(t, topic, as(format), sized(8)).documents(t) {
				cmd := exec.CommandContext(t.Context(), "python3", "-c",
					"import feedparser,json,sys; d=feedparser.parse(sys.stdin.buffer.read()); print(json.dumps({'Bozo': bool(d.bozo), 'IDs': [e.id for e in d.entries]}))")
				cmd.Stdin = strings.NewReader(g.body)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				var says struct {
					Bozo bool
					IDs  []string
				}
				if err := json.Unmarshal(out, &says); err != nil || says.Bozo || !slices.Equal(says.IDs, idsIn(t, g.body)) {
					t.Errorf("got %s, %v, want %q", out, err, idsIn(t, g.body))
				}
			}
		})
	}
	parallel.Run(t, "content", func(t *testing.T) {
		g := serveTopic(t, topic, as(Atom), sized(100)).get(t, "/latest")
		for _, want := range []string{
			`<content type="text">a &lt; b &amp; c</content>`,
			`<category scheme="https://github.com/feedbridge/feedbridge/operation" term="PATCH"/><content type="text">{&quot;a&quot;:1}</content>`,
			`<content type="text">no headers</content>`,
			`<content type="html">&lt;p&gt;html</content>`,
			`<content type="application/xml"><a xmlns:b="urn:b" xmlns=""><b:c/></a></content>`,
			`extra:id="5 é@x">cid:5%20%C3%A9@x</id>`,
			"\n" + entryOf("urn:x:13", noon, "13") + "\n",
			`<title type="text">atom: 14</title>`, `<link rel="alternate" href="http://x.example/14"/>`,
		} {
			if !strings.Contains(g.body, want) {
				t.Errorf("there is no %s in %s", want, g.body)
			}
		}
	})
}

func wellFormed(t tester, doc string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
	}
}
