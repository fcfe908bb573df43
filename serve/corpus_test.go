package serve

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// view is a feed as feedparser shows it to a reader: what it says of each entry, by
// the entry's ID.
type view struct {
	Bozo    string
	Entries map[string]map[string]any
}

// viewer prints the view of each document. A document is its URL and its text.
const viewer = `
import calendar, feedparser, html, json, re, sys
def clean(detail):
    # What a reader shows: text is escaped where HTML is shown.
    value = (detail or {}).get("value") or ""
    if detail and detail.get("type") == "text/plain":
        value = html.escape(value, quote=False)
    return re.sub(r"\s+", " ", value).strip()
def moment(t):
    return calendar.timegm(t) if t else None
out = []
for url, doc in json.load(sys.stdin):
    d = feedparser.parse(doc.encode("utf-8"), response_headers={"content-location": url, "content-type": "application/xml; charset=utf-8"})
    entries = {}
    for e in d.entries:
        people = e.get("authors") or [d.feed.get("author_detail") or {}]
        entries[e.get("id") or e.get("link")] = {
            "title": clean(e.get("title_detail")),
            "summary": clean(e.get("summary_detail") or (e.get("content") or [None])[0]),
            "content": clean((e.get("content") or [None])[0]),
            "link": e.get("link"),
            "authors": sorted(p.get("name") or p.get("email") or "" for p in people),
            "emails": sorted(p["email"] for p in people if p.get("email")),
            "tags": sorted([t.get("term"), t.get("scheme") or ""] for t in e.get("tags", [])),
            "enclosures": sorted([l.get("href"), l.get("type"), l.get("length")] for l in e.get("enclosures", [])),
            "published": moment(e.get("published_parsed")),
            "updated": moment(e.get("updated_parsed")) if "updated" in e else None,
            "media": [t.get("url") for t in e.get("media_thumbnail", [])],
            "duration": e.get("itunes_duration"),
        }
    out.append({"Bozo": repr(d.bozo_exception) if d.bozo else "", "Entries": entries})
json.dump(out, sys.stdout)`

// document is a feed at a URL.
type document [2]string

func views(t *testing.T, docs ...document) (all []view) {
	t.Helper()
	pythonSays(t, "feedparser", viewer, docs, &all)
	return all
}

// pythonSays runs a program of Python that reads JSON and prints it.
func pythonSays(t *testing.T, modules, program string, in, out any) {
	t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(t, modules), "-c", program)
	cmd.Stdin = bytes.NewReader(b)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err = cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
}

// bridged reads the feed at a URL and returns a topic of its entries.
func bridged(t *testing.T, url string) *memoryTopic {
	t.Helper()
	cfg := syndication.Defaults()
	cfg.URL = url
	cfg.Limits.Rate = 1e6
	client, err := source.NewClient(cfg.Config, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	ids := sink.NewIDs(0)
	src := syndication.New(cfg, client, ids, slog.New(slog.DiscardHandler))
	topic := newTopic()
	var cursor feed.Cursor
	for more := true; more; {
		batch, err := src.Next(t.Context(), cursor)
		if err != nil {
			t.Fatal(err)
		}
		cursor, more = batch.Cursor, batch.More
		for _, e := range batch.Entities {
			topic.add(feed.Record{Time: later(int(topic.span.End)), Header: message.Header("news", e), Body: bytes.Clone(e.Body)})
			ids.Add(e.ID)
		}
		ids.Commit(batch.Entities)
	}
	return topic
}

// servedAt serves a topic, and returns the URL of its newest document and that
// document.
func servedAt(t *testing.T, topic *memoryTopic, format Format) document {
	t.Helper()
	site := newSite(t)
	s := serveTopic(t, topic, as(format), sized(100), func(c *Config) { c.PublicURL = "" })
	site.feed.Store(s.Feed)
	url := site.URL + "/feeds/orders/latest"
	status, body := get(t, url)
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	return document{url, body}
}

// corpus serves the feeds of testdata/corpus.
func corpus(t *testing.T) (docs map[string]document) {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no corpus: %v", err)
	}
	site := httptest.NewServer(http.StripPrefix("/feeds", http.FileServer(http.Dir("testdata/corpus"))))
	t.Cleanup(site.Close)
	docs = map[string]document{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs[filepath.Base(file)] = document{site.URL + "/feeds/" + filepath.Base(file), string(text)}
	}
	return docs
}

// Readers see the same entries in the original feed, in what is served of it in each
// format, and in what is served in each format of a feed that was served in each.
func TestReadersSeeTheSameInEveryFormat(t *testing.T) {
	t.Parallel()
	python(t, "feedparser")
	for name, original := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			docs, names := []document{original}, []string{name}
			topic := bridged(t, original[0])
			for _, first := range []Format{Atom, RSS} {
				served := servedAt(t, topic, first)
				docs, names = append(docs, served), append(names, string(first))
				again := bridged(t, served[0])
				for _, second := range []Format{Atom, RSS} {
					docs, names = append(docs, servedAt(t, again, second)), append(names, string(first)+" and then "+string(second))
				}
			}
			all := views(t, docs...)
			want := all[0].Entries
			for i, got := range all[1:] {
				if got.Bozo != "" {
					t.Errorf("%s: %s", names[i+1], got.Bozo)
				}
				if len(got.Entries) != len(want) {
					t.Errorf("%s: %d entries, want %d", names[i+1], len(got.Entries), len(want))
				}
				for id, entry := range want {
					compareViews(t, names[i+1], id, entry, got.Entries, docs[i+1][1])
				}
			}
		})
	}
}

// compareViews compares what a reader sees of an entry. What the original does not
// say may be there besides.
func compareViews(t *testing.T, name, id string, want map[string]any, got map[string]map[string]any, doc string) {
	t.Helper()
	entry, ok := got[id]
	if !ok {
		entry, ok = got["cid:"+id] // an ID of Atom is an IRI
	}
	if !ok {
		t.Errorf("%s: there is no entry %s in %.2000s", name, id, doc)
		return
	}
	for field, value := range want {
		w, _ := json.Marshal(value)
		g, _ := json.Marshal(entry[field])
		switch string(w) {
		case `null`, `""`, `[]`, `[""]`, string(g):
		default:
			t.Errorf("%s: %s of %s:\ngot  %s\nwant %s", name, field, id, g, w)
		}
	}
}

// The documents of Atom that are served satisfy the schema of RFC 4287.
func TestServedAtomSatisfiesTheSchema(t *testing.T) {
	t.Parallel()
	python(t, "lxml.etree")
	var docs []string
	for _, original := range corpus(t) {
		topic := bridged(t, original[0])
		docs = append(docs, servedAt(t, topic, Atom)[1], servedAt(t, bridged(t, servedAt(t, topic, RSS)[0]), Atom)[1])
	}
	topic := newTopic()
	for _, r := range bodies {
		topic.add(r)
	}
	docs = append(docs, servedAt(t, topic, Atom)[1])
	const program = `
import json, sys, lxml.etree as etree
schema = etree.RelaxNG(etree.parse("testdata/atom.rng"))
def check(doc):
    return "" if schema.validate(etree.fromstring(doc.encode("utf-8"))) else str(schema.error_log)
json.dump([check(d) for d in json.load(sys.stdin)], sys.stdout)`
	var wrong []string
	pythonSays(t, "lxml.etree", program, append(docs, strings.Replace(docs[0], "<updated>", "<updated>x", 1)), &wrong)
	for i, sentence := range wrong {
		switch {
		case i == len(docs) && sentence == "":
			t.Error("the schema takes a feed with a date that is none")
		case i < len(docs) && sentence != "":
			t.Errorf("%s in %s", sentence, docs[i])
		}
	}
}
