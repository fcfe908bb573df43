package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/xmlcopy"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// follower reads a served feed with our own source for Atom and RSS.
type follower struct {
	ids    *sink.IDs
	src    *sink.Gate
	client *source.Client
	batch  feed.Limits
	cursor feed.Cursor
	got    []feed.Entity
}

func (s *site) follow(t tester) *follower {
	t.Helper()
	cfg := syndication.Defaults()
	cfg.URL, cfg.Body = s.URL+"/feeds/orders/latest", "xml"
	cfg.Limits.Rate = 1e6
	client, err := source.NewClient(cfg.Config, source.Options{})
	must.Succeed(t, err)
	f := &follower{ids: sink.NewIDs(0), client: client}
	log := slog.New(slog.DiscardHandler)
	f.src = &sink.Gate{Source: syndication.New(cfg, client, f.ids, log), IDs: f.ids, Log: log, Fits: func(e []feed.Entity) (int, error) { return len(e), nil }}
	return f
}

func (f *follower) all(t *testing.T) {
	t.Helper()
	for f.step(t) {
	}
}

// step reads a batch, and reports whether there are more.
func (f *follower) step(t *testing.T) bool {
	t.Helper()
	batch, err := f.src.Next(t.Context(), f.cursor, f.batch)
	must.Succeed(t, err)
	f.cursor = batch.Cursor
	for _, e := range batch.Entities {
		e.Body = bytes.Clone(e.Body)
		f.got = append(f.got, e)
	}
	f.ids.Commit(batch.Entities)
	for _, v := range batch.Violations {
		// Archives have older versions of an entry.
		switch v.Kind {
		case "stale_dropped", "archive_newer_than_feed":
		default:
			t.Errorf("the reader sees %v", v)
		}
	}
	return batch.More
}

func TestSyndicationRoundTrip(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{Atom, RSS} {
		parallel.Run(t, "case 138: from feed to feed by "+string(format), func(t *testing.T) {
			site, topic := newSite(t), newTopic()
			site.feed.Store(serveTopic(t, topic, as(format)).Feed)
			f := site.follow(t)
			defer f.client.CloseIdle()
			var want []string
			add := func(id string, op feed.Operation, body string) {
				i := int(topic.span.End)
				switch {
				case op == feed.Delete:
					topic.add(syndicated(id, op, later(i), ""))
				case format == Atom:
					body = entryOf(id, later(i), body)
					topic.add(syndicated(id, op, later(i), body, isAtom))
				default:
					body = itemOf(id, body)
					topic.add(syndicated(id, op, later(i), body, isRSS...))
				}
				want = append(want, fmt.Sprint(op, " ", id, " ", body))
			}
			for i := range 20 {
				id := fmt.Sprintf("urn:x:%d", i)
				add(id, feed.Put, fmt.Sprint("first ", i))
				if i%4 == 3 {
					f.all(t)
				}
				switch i % 5 {
				case 2:
					f.all(t) // a document may have both versions, and is read for the newer one
					add(id, feed.Put, fmt.Sprint("second ", i))
				case 4:
					f.all(t)
					add(id, feed.Delete, "")
				}
			}
			f.all(t)
			var got []string
			for _, e := range f.got {
				body := string(e.Body)
				if e.Op == feed.Delete {
					body = ""
				}
				got = append(got, fmt.Sprint(e.Op, " ", e.ID, " ", body))
			}
			if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
			for _, e := range f.got {
				if e.Op == feed.Put && format == Atom && !strings.HasPrefix(string(e.Body), "<entry xmlns=") {
					t.Errorf("got %s", e.Body)
				}
			}
		})
	}
}

// Readers cannot distinguish items without an ID, and make up IDs that differ from ours.
func TestEntriesWithoutAnID(t *testing.T) {
	t.Parallel()
	const head, guid = `<entry xmlns="http://www.w3.org/2005/Atom">`, `<guid isPermaLink="false">a &amp; b</guid>`
	const extra = ` xmlns:extra="https://github.com/feedbridge/feedbridge/extra" extra:id="a &amp; b"`
	for _, test := range []struct {
		format     Format
		body, want string
	}{
		{RSS, "<item><title>1</title></item>", "<item><title>1</title>" + guid + "</item>"},
		{RSS, "<item/>", "<item>" + guid + "<title>a &amp; b</title></item>"},
		{RSS, "<item xml:lang='en' />", `<item xml:lang="en">` + guid + "<title>a &amp; b</title></item>"},
		{RSS, "<item><title>1</title><guid> </guid><link>http://x.example</link></item>", "<item><title>1</title><link>http://x.example</link>" + guid + "</item>"},
		{RSS, "<item><description>1</description><guid/></item>", "<item><description>1</description>" + guid + "</item>"},
		{RSS, "<item><x:guid xmlns:x='urn:x'>1</x:guid><title><guid>2</guid></title></item>", `<item><x:guid xmlns:x="urn:x">1</x:guid><title><guid>2</guid></title>` + guid + "</item>"},
		// One that has one keeps it, and has it once.
		{RSS, "<item><title>1</title><guid/><guid><![CDATA[1]]></guid><guid>2</guid></item>", "<item><title>1</title><guid>1</guid></item>"},
		{RSS, `<item xmlns=''><guid>1</guid><title><![CDATA[<a xmlns="">]]></title></item>`, `<item xmlns=""><guid>1</guid><title>&lt;a xmlns=""&gt;</title></item>`},
		{Atom, head + "<title>1</title></entry>", head + `<title>1</title><id` + extra + `>cid:a%20&amp;%20b</id><updated>2026-03-01T12:00:00Z</updated><content></content></entry>`},
		{Atom, "<a:entry xmlns:a='http://www.w3.org/2005/Atom'/>", `<a:entry xmlns:a="http://www.w3.org/2005/Atom"><a:id` + extra + `>cid:a%20&amp;%20b</a:id><a:title>a &amp; b</a:title><a:updated>2026-03-01T12:00:00Z</a:updated><a:content></a:content></a:entry>`},
		{Atom, head + "<title>1</title><id>1</id><updated>2026-01-01T00:00:00Z</updated><link href='/x'/></entry>", head + `<title>1</title><id>1</id><updated>2026-01-01T00:00:00Z</updated><link href="/x"/></entry>`},
	} {
		topic := newTopic()
		fields := isRSS
		if test.format == Atom {
			fields = []feed.Field{isAtom}
		}
		topic.add(syndicated("a & b", feed.Put, noon, test.body, fields...))
		g := serveTopic(t, topic, as(test.format)).get(t, "/latest").want(t, 200)
		wellFormed(t, g.body)
		if !strings.Contains(g.body, "\n"+test.want+"\n") {
			t.Errorf("got %s, want %s in it", g.body, test.want)
		}
	}
	// So a reader knows them by the IDs that they have on the bus.
	site, topic := newSite(t), newTopic()
	ids := []string{"0123abcd", "http://x.example/1", "urn:uuid:1"}
	for i, id := range ids {
		topic.add(syndicated(id, feed.Put, later(i), "<item><title>atom: one</title></item>", isRSS...))
	}
	site.feed.Store(serveTopic(t, topic, as(RSS)).Feed)
	f := site.follow(t)
	defer f.client.CloseIdle()
	f.all(t)
	var got []string
	for _, e := range f.got {
		got = append(got, e.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("read %q, want %q", got, ids)
	}
}

// TestIDsComeBack reads the IDs of a served topic back. Those that are no IRI have another form in Atom.
func TestIDsComeBack(t *testing.T) {
	t.Parallel()
	ids := []string{"2", "<4711@shop>", "4711@shop", `a & "b" é`, "cid:7", "http://x.example/1", "%41"}
	for _, format := range []Format{Atom, RSS} {
		for name, put := range map[string]func(id string) feed.Record{
			"items": func(id string) feed.Record {
				return syndicated(id, feed.Put, noon, itemOf(xmlcopy.Escape(id), "1"), isRSS...)
			},
			"entries": func(id string) feed.Record {
				return syndicated(id, feed.Put, noon, entryOf(xmlcopy.Escape(id), noon, "1"), isAtom)
			},
			"entities": func(id string) feed.Record { return entityMessage(noon, "text", id, noon) },
		} {
			parallel.Run(t, name+" as "+string(format), func(t *testing.T) {
				site, topic := newSite(t), newTopic()
				var want, got []string
				for _, id := range ids {
					topic.add(put(id))
					want = append(want, "PUT "+id)
				}
				site.feed.Store(serveTopic(t, topic, as(format)).Feed)
				f := site.follow(t)
				defer f.client.CloseIdle()
				f.all(t)
				for _, id := range ids {
					topic.add(syndicated(id, feed.Delete, later(1), ""))
					want = append(want, "DELETE "+id)
				}
				f.all(t)
				for _, e := range f.got {
					got = append(got, string(e.Op)+" "+e.ID)
				}
				must.Match(t, "", want, got)
			})
		}
	}
}

// TestEntitiesAreDated checks that an entity is published at its own time, and updated when the bus took it.
func TestEntitiesAreDated(t *testing.T) {
	t.Parallel()
	own := noon.Add(-48 * time.Hour)
	for _, tt := range []struct {
		format   Format
		body     string
		modified time.Time
		want     []string
	}{
		{Atom, "text", own, []string{"<updated>2026-03-01T12:00:00Z</updated><published>2026-02-27T12:00:00Z</published>"}},
		{Atom, itemOf("a", "1"), own, []string{"<updated>2026-03-01T12:00:00Z</updated><published>2026-02-27T12:00:00Z</published>"}},
		{Atom, "text", time.Time{}, []string{"<updated>2026-03-01T12:00:00Z</updated><content"}},
		{Atom, "text", noon.Add(time.Hour), []string{"<updated>2026-03-01T12:00:00Z</updated><content"}},
		{RSS, "text", own, []string{"<pubDate>Fri, 27 Feb 2026 12:00:00 GMT</pubDate>", ">2026-03-01T12:00:00Z</atom:updated>"}},
		{RSS, "text", time.Time{}, []string{"<pubDate>Sun, 01 Mar 2026 12:00:00 GMT</pubDate>", ">2026-03-01T12:00:00Z</atom:updated>"}},
		{RSS, "text", noon.Add(time.Hour), []string{"<pubDate>Sun, 01 Mar 2026 12:00:00 GMT</pubDate>"}},
		{Atom, "", own, []string{"<updated>2026-03-01T12:00:00Z</updated><link"}}, // an item of RSS without a date
	} {
		topic := newTopic()
		if tt.body == "" {
			topic.add(syndicated("a", feed.Put, noon, itemOf("a", "1"), isRSS...))
		} else {
			topic.add(entityMessage(noon, tt.body, "a", tt.modified))
		}
		g := serveTopic(t, topic, as(tt.format)).get(t, "/latest").want(t, 200)
		for _, want := range tt.want {
			if !strings.Contains(g.body, want) {
				t.Errorf("%s of %v: got %s, want %s in it", tt.format, tt.modified, g.body, want)
			}
		}
	}
}

// entityMessage returns the message of an entity of a datareplication feed.
func entityMessage(taken time.Time, body, id string, modified time.Time) feed.Record {
	e := feed.Entity{ID: id, Op: feed.Put, Modified: modified, Body: []byte(body), Header: feed.Header{{Name: "Content-Type", Value: "text/plain"}}}
	return feed.Record{Time: taken, Body: e.Body, Header: message.Header("shop", e)}
}
