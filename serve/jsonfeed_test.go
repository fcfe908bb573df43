package serve

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mmcdole/gofeed"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// jsonDocument is a document of a JSON Feed, as a reader sees it.
type jsonDocument struct {
	Version, Title string
	FeedURL        string `json:"feed_url"`
	NextURL        string `json:"next_url"`
	Items          []map[string]any
}

// jsonDocuments returns the documents of a served JSON Feed, the newest first, and the answers.
func (s *served) jsonDocuments(t *testing.T) (docs []jsonDocument, answers []got) {
	t.Helper()
	for at := "/latest"; at != ""; {
		g := s.get(t, at).want(t, 200)
		var d jsonDocument
		must.Succeed(t, json.Unmarshal([]byte(g.body), &d))
		docs, answers = append(docs, d), append(answers, g)
		_, at, _ = strings.Cut(d.NextURL, "/feeds/orders")
		if d.NextURL != "" && at == "" {
			at = "/" + strings.TrimLeft(d.NextURL, "./")
		}
	}
	return docs, answers
}

func jsonEntry(id, body string, fields ...feed.Field) feed.Record {
	return syndicated(id, feed.Put, noon, body, append(fields, feed.Field{Name: "Content-Type", Value: "application/json"})...)
}

// Readers of JSON Feed get every entry, the newest first, from documents of which the full ones never change.
func TestJSONFeed(t *testing.T) {
	t.Parallel()
	t.Run("case 31: pages", func(t *testing.T) {
		topic := newTopic()
		for _, id := range strings.Fields("a b c d e f g") {
			topic.add(jsonEntry(id, `{"id":"`+id+`","title":"T`+id+`","content_html":"<p>","feed":{"title":"F"}}`))
		}
		topic.add(syndicated("f", feed.Delete, noon, `{"id":"f"}`, feed.Field{Name: "Content-Type", Value: "application/json"}))
		s := serveTopic(t, topic, as(JSONFeed), func(c *Config) { c.PublicURL = "https://x.example/feeds/orders" })
		docs, answers := s.jsonDocuments(t)
		var ids []string
		for i, d := range docs {
			theirs, err := gofeed.NewParser().ParseString(answers[i].body)
			if err != nil || theirs.Title != "orders" || len(theirs.Items) != len(d.Items) {
				t.Errorf("gofeed reads %v, %v", theirs, err)
			}
			var page []string
			for _, it := range d.Items {
				page = append(page, it["id"].(string))
			}
			ids = append(ids, strings.Join(page, " "))
			if d.FeedURL != "https://x.example/feeds/orders/latest" || d.Version != "https://jsonfeed.org/version/1.1" || answers[i].header.Get("Content-Type") != "application/feed+json" {
				t.Errorf("document %d: %v", i, d)
			}
			if cache := answers[i].header.Get("Cache-Control"); i > 1 && !strings.Contains(cache, "max-age=31536000") {
				t.Errorf("document %d: Cache-Control %s", i, cache)
			}
		}
		if got := strings.Join(ids, " | "); got != "g e d | f e d | c b a" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("an empty topic", func(t *testing.T) {
		docs, _ := serveTopic(t, newTopic(), as(JSONFeed)).jsonDocuments(t)
		if len(docs) != 1 || docs[0].Items == nil || len(docs[0].Items) != 0 {
			t.Errorf("got %v", docs)
		}
	})
	t.Run("every kind of message", func(t *testing.T) {
		topic := newTopic()
		for _, r := range bodies {
			topic.add(r)
		}
		docs, answers := serveTopic(t, topic, as(JSONFeed), sized(100)).jsonDocuments(t)
		if len(docs) != 1 || len(docs[0].Items) < 10 {
			t.Fatalf("got %v", docs)
		}
		for _, it := range docs[0].Items {
			if it["content_text"] == nil && it["content_html"] == nil {
				t.Errorf("item %v has no content", it["id"])
			}
		}
		for _, want := range []string{`"content_text":"a \u003c b \u0026 c"`, `"operation":"PATCH"`, `"body_base64":`, `"content_html":"\u003cp\u003ehtml"`} {
			if !strings.Contains(answers[0].body, want) {
				t.Errorf("there is no %s in %s", want, answers[0].body)
			}
		}
	})
}

// What is served as JSON Feed and read again has the same fields, whichever format the entry came from.
func TestJSONFeedComesBack(t *testing.T) {
	t.Parallel()
	const atomBody = `<entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="urn:m"><id>a</id><title type="html">&lt;b>T</title><updated>2026-01-01T00:00:00Z</updated>` +
		`<link href="http://x.example/1"/><link rel="replies" href="http://x.example/2"/><category term="c" scheme="s" label="l"/><rights>r</rights><content>x</content><m:e a="1">y</m:e></entry>`
	source := `{"id":"a","url":"http://x.example/1","external_url":"http://y.example/","title":"T","content_html":"<p>","content_text":"x","_own":{"n":[1]},"_n":1e309,"tags":["t"],` +
		`"attachments":[{"url":"http://x.example/m.mp3","mime_type":"audio/mpeg","duration_in_seconds":1.5}],"authors":[{"name":"A","avatar":"http://x.example/a.png"}]}`
	asJSON := func(doc []byte, ok bool) string {
		if !ok {
			t.Fatal("it is not read")
		}
		return string(doc)
	}
	a, ok := entry.Read([]byte(atomBody), "")
	for name, r := range map[string]feed.Record{
		"Atom as JSON":       jsonEntry("a", asJSON(a.Encode("a"), ok)),
		"Atom as XML":        syndicated("a", feed.Put, noon, atomBody, isAtom),
		"RSS as XML":         syndicated("a", feed.Put, noon, itemOf("a", "x"), isRSS...),
		"JSON Feed as JSON":  jsonEntry("a", string(entry.ReadItem([]byte(source), "").Marshal()), feed.Field{Name: "Feed-Format", Value: "jsonfeed"}),
		"JSON Feed as items": jsonEntry("a", source, feed.Field{Name: "Feed-Format", Value: "jsonfeed"}),
	} {
		t.Run("case 31: "+name, func(t *testing.T) {
			site, topic := newSite(t), newTopic()
			topic.add(r)
			site.feed.Store(serveTopic(t, topic, as(JSONFeed)).Feed)
			e := (&decoder{name: "orders"}).decodeRecord("e0", r, nil)
			d, ok := e.document()
			if !ok {
				t.Fatal("the message has no entry")
			}
			got := readJSONFeed(t, site.URL+"/feeds/orders/latest")
			got.Feed = nil
			got.Source, d.Source, d.Feed = nil, nil, nil
			want, ok := entry.Parse(d.Marshal())
			if diff := cmp.Diff(want, got); diff != "" || !ok {
				t.Error(diff)
			}
		})
	}
}

// readJSONFeed reads a feed with our own source, and returns its only entry.
func readJSONFeed(t *testing.T, url string) *entry.Document {
	t.Helper()
	cfg := syndication.Defaults()
	cfg.URL, cfg.Body = url, "json"
	client, err := source.NewClient(cfg.Config, source.Options{})
	must.Succeed(t, err)
	defer client.CloseIdle()
	batch, err := syndication.New(cfg, client, sink.NewIDs(0), slog.New(slog.DiscardHandler)).Next(t.Context(), nil, feed.LargestBatch)
	must.Succeed(t, err)
	if len(batch.Entities) != 1 {
		t.Fatalf("%d entities, %v", len(batch.Entities), batch.Violations)
	}
	d, ok := entry.Parse(batch.Entities[0].Body)
	if !ok {
		t.Fatalf("the body is %s", batch.Entities[0].Body)
	}
	return d
}
