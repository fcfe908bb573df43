package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
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
	cfg.URL = s.URL + "/feeds/orders/latest"
	cfg.Limits.Rate = 1e6
	client, err := source.NewClient(cfg.Config, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	f.cursor = batch.Cursor
	for _, e := range batch.Entities {
		e.Body = bytes.Clone(e.Body)
		f.got = append(f.got, e)
	}
	f.ids.Commit(batch.Entities)
	for _, v := range batch.Violations {
		// Archives have older versions of an entry.
		switch v.Kind {
		case syndication.StaleDropped, syndication.ArchiveTooNew:
		default:
			t.Errorf("the reader sees %v", v)
		}
	}
	return batch.More
}

func TestSyndicationRoundTrip(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{Atom, RSS} {
		t.Run("case 138: from feed to feed by "+string(format), func(t *testing.T) {
			t.Parallel()
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
		{Atom, head + "<title>1</title></entry>", head + `<title>1</title><id>cid:a%20&amp;%20b</id><updated>2026-03-01T12:00:00Z</updated><content></content></entry>`},
		{Atom, "<a:entry xmlns:a='http://www.w3.org/2005/Atom'/>", `<a:entry xmlns:a="http://www.w3.org/2005/Atom"><a:id>cid:a%20&amp;%20b</a:id><a:title>a &amp; b</a:title><a:updated>2026-03-01T12:00:00Z</a:updated><a:content></a:content></a:entry>`},
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
