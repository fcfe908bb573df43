package serve

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// view is a feed as feedparser shows it to a reader.
type view struct {
	Bozo    string
	Entries []map[string]any // in the order of the document
}

func (v view) byID() map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, e := range v.Entries {
		all[e["id"].(string)] = e
	}
	return all
}

func (v view) ids() string {
	var ids []string
	for _, e := range v.Entries {
		ids = append(ids, strings.TrimPrefix(e["id"].(string), "cid:")) // an ID of Atom is an IRI
	}
	return strings.Join(ids, " ")
}

// viewProgram prints the view of each document. A document is its URL and its text.
const viewProgram = `
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
    entries = []
    for e in d.entries:
        people = e.get("authors") or [d.feed.get("author_detail") or {}]
        entries.append({
            "id": e.get("id") or e.get("link"),
            "title": clean(e.get("title_detail")),
            "summary": clean(e.get("summary_detail") or (e.get("content") or [None])[0]),
            "content": clean((e.get("content") or [None])[0]),
            "link": e.get("link"),
            "authors": sorted(p.get("name") or p.get("email") or "" for p in people),
            "emails": sorted(p["email"] for p in people if p.get("email")),
            "tags": sorted([t.get("term"), t.get("scheme") or ""] for t in e.get("tags", [])),
            "labels": sorted([t.get("term"), t.get("label") or ""] for t in e.get("tags", [])),
            "uris": sorted(p["href"] for p in e.get("authors", []) + e.get("contributors", []) if p.get("href")),
            "contributors": sorted([p.get("name") or "", p.get("email") or ""] for p in e.get("contributors", [])),
            "enclosures": sorted([l.get("href"), l.get("type"), l.get("length")] for l in e.get("enclosures", [])),
            "published": moment(e.get("published_parsed")),
            "updated": moment(e.get("updated_parsed")) if "updated" in e else None,
            "media": [t.get("url") for t in e.get("media_thumbnail", [])],
            "duration": e.get("itunes_duration"),
        })
    out.append({"Bozo": repr(d.bozo_exception) if d.bozo else "", "Entries": entries})
json.dump(out, sys.stdout)`

// document is a feed at a URL.
type document [2]string

func views(t *testing.T, docs ...document) (all []view) {
	t.Helper()
	pythonSays(t, "feedparser", viewProgram, docs, &all)
	return all
}

// pythonSays runs a program of Python that reads JSON and prints it.
func pythonSays(t *testing.T, modules, program string, in, out any) {
	t.Helper()
	b, err := json.Marshal(in)
	must.Succeed(t, err)
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
func bridged(t *testing.T, url string, body syndication.BodyFormat) *memoryTopic {
	t.Helper()
	cfg := syndication.Defaults()
	cfg.URL, cfg.Body = url, body
	cfg.Limits.Rate = 1e6
	client, err := source.NewClient(cfg.Config, source.Options{})
	must.Succeed(t, err)
	defer client.CloseIdle()
	ids := sink.NewIDs(0)
	src := syndication.New(cfg, client, ids, slog.New(slog.DiscardHandler))
	topic := newTopic()
	var cursor feed.Cursor
	for more := true; more; {
		batch, err := src.Next(t.Context(), cursor, feed.Limits{})
		must.Succeed(t, err)
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
		must.Succeed(t, err)
		docs[filepath.Base(file)] = document{site.URL + "/feeds/" + filepath.Base(file), string(text)}
	}
	return docs
}

// Every corpus feed is bridged, served in each format, bridged from there and
// served in each format again. Readers of Atom and RSS see the entries of the
// original, field by field and in the order of the topic; readers of datareplication
// get every message of the topic with its operation, date and body.
func TestReadersSeeTheSameInEveryFormat(t *testing.T) {
	t.Parallel()
	python(t, "feedparser")
	for name, original := range corpus(t) {
		for _, body := range []syndication.BodyFormat{"json", "xml"} {
			parallel.Run(t, name+" with "+string(body), func(t *testing.T) {
				topic := bridged(t, original[0], body)
				docs, names := []document{original}, []string{name}
				for _, first := range []Format{DataReplication, Atom, RSS} {
					copied, served := through(t, topic, first, body)
					if first != DataReplication {
						docs, names = append(docs, served), append(names, string(first))
					}
					for _, second := range []Format{DataReplication, Atom, RSS} {
						name := string(first) + " and then " + string(second)
						last, served := through(t, copied, second, body)
						compareTopics(t, name, topic, last, asEntries)
						switch {
						case first == DataReplication && second == DataReplication:
							compareTopics(t, name, copied, last, asTheyAre)
						case second == DataReplication:
							compareTopics(t, name, copied, last, undated) // entries have the dates of the bus
						}
						if second != DataReplication {
							docs, names = append(docs, served), append(names, name)
						}
					}
				}
				all := views(t, docs...)
				want := all[0].byID()
				for i, got := range all[1:] {
					if got.Bozo != "" {
						t.Errorf("%s: %s", names[i+1], got.Bozo)
					}
					// The topic has the oldest entry first, and documents the newest.
					if order, want := got.ids(), topic.ids(); order != want {
						t.Errorf("%s: the entries are %s, want %s", names[i+1], order, want)
					}
					for id, entry := range want {
						compareViews(t, names[i+1], id, entry, got.byID(), docs[i+1][1])
					}
				}
			})
		}
	}
}

// Readers see the same fields of an entry, whether the topic has it in JSON or in XML.
func TestReadersSeeTheSameOfBothBodies(t *testing.T) {
	t.Parallel()
	python(t, "feedparser")
	var docs []document
	var names []string
	for name, original := range corpus(t) {
		inJSON, inXML := bridged(t, original[0], "json"), bridged(t, original[0], "xml")
		if body := inJSON.records[0].Body; !json.Valid(body) {
			t.Fatalf("%s is no JSON", body)
		}
		for _, format := range []Format{Atom, RSS} {
			docs = append(docs, servedAt(t, inJSON, format), servedAt(t, inXML, format))
			names = append(names, name+" as "+string(format))
		}
	}
	for all := views(t, docs...); len(all) > 0; all, names = all[2:], names[1:] {
		if diff := cmp.Diff(all[1], all[0]); diff != "" {
			t.Errorf("%s (-XML +JSON):\n%s", names[0], diff)
		}
	}
}

// A datareplication feed is served in each format, bridged from there and served as
// datareplication again: the IDs, their order and the operations stay, and so do the
// bodies of entries and the dates where a format can hold them.
func TestDataReplicationThroughEveryFormat(t *testing.T) {
	t.Parallel()
	entities := []feed.Entity{
		{ID: "urn:x:1", Op: feed.Put, Body: []byte(entryOf("urn:x:1", noon, "<b>one</b>")), Header: feed.Header{{Name: "Content-Type", Value: "application/atom+xml"}}},
		{ID: "<2@shop.example>", Op: feed.Put, Body: []byte("plain & <text>"), Header: feed.Header{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, {Name: "X-Shop", Value: "7"}}},
		{ID: "<3@shop.example>", Op: feed.Put, Body: []byte(`{"id": 3}`), Header: feed.Header{{Name: "Content-Type", Value: "application/json"}}},
		{ID: "<4@shop.example>", Op: feed.Patch, Body: []byte("<p>changed</p>"), Header: feed.Header{{Name: "Content-Type", Value: "text/html"}}},
		{ID: "<5@shop.example>", Op: feed.Put, Body: []byte{0, 1, 2, 0xff}, Header: feed.Header{{Name: "Content-Type", Value: "image/png"}}},
		{ID: "<3@shop.example>", Op: feed.Delete},
	}
	upstream := samplefeed.New(samplefeed.Options{PageSize: 2, Entity: func(i int) feed.Entity {
		e := entities[i]
		e.Modified = noon.Add(time.Duration(i-60) * time.Minute)
		e.Header = append(feed.Header{{Name: "Content-ID", Value: e.ID}, {Name: "Last-Modified", Value: message.FormatDate(e.Modified)}, {Name: "Operation-Type", Value: message.FormatOperation(e.Op)}}, e.Header...)
		return e
	}})
	upstream.SetLen(len(entities))
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	topic := replicated(t, server.URL+"/feed/latest")
	if got := topic.span.End; got != uint64(len(entities)) {
		t.Fatalf("got %d messages", got)
	}
	for _, first := range []Format{DataReplication, Atom, RSS} {
		copied, _ := through(t, topic, first, "xml")
		again, _ := through(t, copied, DataReplication, "xml")
		compareTopics(t, string(first), topic, again, map[Format]func([]said) []said{DataReplication: asTheyAre, Atom: asEntries, RSS: asEntries}[first])
		if first == DataReplication {
			continue
		}
		for _, second := range []Format{Atom, RSS} {
			last, _ := through(t, copied, second, "json")
			compareTopics(t, string(first)+" and then "+string(second), topic, last, asEntries)
		}
	}
}

// through serves a topic in a format. It returns the topic of a bridge that reads the
// served feed, and the newest document of the feed.
func through(t *testing.T, topic *memoryTopic, format Format, body syndication.BodyFormat) (*memoryTopic, document) {
	t.Helper()
	served := servedAt(t, topic, format)
	if format == DataReplication {
		return replicated(t, served[0]), served
	}
	return bridged(t, served[0], body), served
}

// replicated reads the datareplication feed at a URL and returns a topic of its
// entities.
func replicated(t *testing.T, url string) *memoryTopic {
	t.Helper()
	c := crawlAt(t, url)
	c.all(t)
	if len(c.violations) > 0 {
		t.Errorf("the feed violates its format: %v", c.violations)
	}
	topic := newTopic()
	for _, e := range c.got {
		topic.add(feed.Record{Time: later(int(topic.span.End)), Header: message.Header("news", e), Body: e.Body})
	}
	return topic
}

// said holds the properties of an entity that a message carries.
type said struct {
	ID       string
	Op       feed.Operation
	Modified time.Time
	Body     string
}

// state returns, in the order of the topic, the last message of each entity. Feeds of
// Atom and RSS have no other.
func (t *memoryTopic) state(tt *testing.T) (all []said) {
	tt.Helper()
	for _, r := range t.records {
		e, err := message.Entity(r.Header, r.Body)
		must.Succeed(tt, err)
		id, _, _ := strings.Cut(e.ID, "#") // versions of an entry
		id, err = url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(id, "cid:"), "<"), ">"))
		must.Succeed(tt, err)
		all = slices.DeleteFunc(all, func(s said) bool { return s.ID == id })
		all = append(all, said{id, e.Op, e.Modified, string(r.Body)})
	}
	return all
}

func (t *memoryTopic) ids() string {
	var ids []string
	for _, r := range slices.Backward(t.records) {
		id, _ := r.Header.Get("Content-ID")
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

// operationTerm marks a PATCH in an entry of Atom or an item of RSS.
var operationTerm = regexp.MustCompile(`term="PATCH" scheme="` + operationScheme + `"|scheme="` + operationScheme + `" term="PATCH"|domain="` + operationScheme + `">PATCH|"term":"PATCH","scheme":"` + operationScheme)

// asEntries returns entities with only the properties that feeds of Atom and RSS can carry:
// there is no deleted one for a reader that has not seen it before, and a PATCH is an entry
// with a category that says so.
func asEntries(all []said) (entries []said) {
	for _, s := range all {
		switch {
		case s.Op == feed.Delete:
			continue
		case operationTerm.MatchString(s.Body):
			s.Op = feed.Patch
		}
		s.Modified, s.Body = time.Time{}, ""
		entries = append(entries, s)
	}
	return entries
}

func asTheyAre(all []said) []said { return all }

func undated(all []said) []said {
	for i := range all {
		all[i].Modified = time.Time{}
	}
	return all
}

// compareTopics compares what two topics say of their entities, in order, as far as
// part returns it.
func compareTopics(t *testing.T, name string, original, copied *memoryTopic, part func([]said) []said) {
	t.Helper()
	if diff := cmp.Diff(part(original.state(t)), part(copied.state(t))); diff != "" {
		t.Errorf("%s: the topic differs: %s", name, diff)
	}
}

// compareViews compares an entry as readers see it. Properties that the original lacks are
// allowed.
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
		if strings.HasSuffix(name, string(RSS)) && slices.Contains([]string{"labels", "uris", "contributors", "emails"}, field) {
			continue // readers of RSS see none, or no more than one; the next format has them
		}
		w, _ := json.Marshal(value)
		g, _ := json.Marshal(entry[field])
		switch string(w) {
		case `null`, `""`, `[]`, `[""]`, string(g):
		case `"` + id + `"`: // the entry was found by it
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
		for _, body := range []syndication.BodyFormat{"json", "xml"} {
			topic := bridged(t, original[0], body)
			docs = append(docs, servedAt(t, topic, Atom)[1], servedAt(t, bridged(t, servedAt(t, topic, RSS)[0], body), Atom)[1])
		}
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

// What readers do not see of an entry in JSON is served, too.
func TestRareFieldsOfJSONAreServed(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:f</id><title>F</title><updated>2026-03-01T12:00:00Z</updated>
<entry><id>urn:1</id><title>T</title><updated>2026-03-01T12:00:00Z</updated><link href="http://x.example/1" rel="related" hreflang="fr" t:n="7" xmlns:t="urn:t"/>
<author><name>A</name><g:image xmlns:g="urn:g" src="i"/></author><source><id>urn:s</id><title type="html">S&lt;br></title><rights>mine</rights></source></entry></feed>`))
	}))
	defer upstream.Close()
	topic := bridged(t, upstream.URL, "json")
	for format, want := range map[Format][]string{Atom: {`hreflang="fr"`, ":n=\"7\"", ">mine</rights>", `src="i"`, "S&lt;br&gt;"}, RSS: {`hreflang="fr"`, ":n=\"7\""}} {
		doc := servedAt(t, topic, format)[1]
		for _, text := range want {
			if !strings.Contains(doc, text) {
				t.Errorf("%s lacks %s:\n%s", format, text, doc)
			}
		}
	}
}
