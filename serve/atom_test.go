package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mmcdole/gofeed"
	theirAtom "github.com/mmcdole/gofeed/atom"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

func as(format Format) func(*Config) { return func(c *Config) { c.Format = format } }

// entryOf is the body of an entry of Atom, as our source reads it.
func entryOf(id string, updated time.Time, content string) string {
	return fmt.Sprintf(`<entry xmlns="http://www.w3.org/2005/Atom"><id>%s</id><title>at: fh:%s</title><updated>%s</updated><content>%s</content></entry>`,
		id, id, updated.Format(time.RFC3339), content)
}

func itemOf(id, content string) string {
	return fmt.Sprintf(`<item><guid isPermaLink="false">%s</guid><title>atom: %s</title><link>http://x.example/%s</link><description>%s</description></item>`, id, id, id, content)
}

// syndicated returns a message with a body as our source for Atom and RSS writes them.
func syndicated(id string, op feed.Operation, taken time.Time, body string, fields ...feed.Field) feed.Record {
	e := feed.Entity{ID: id, Op: op, Modified: taken.Add(-time.Hour), Mark: "1;p;;;00;00", Body: []byte(body), Header: fields}
	return feed.Record{Time: taken, Body: e.Body, Header: message.Header("news", e)}
}

var isAtom = feed.Field{Name: "Content-Type", Value: "application/atom+xml;type=entry"}

var isRSS = []feed.Field{{Name: "Content-Type", Value: "application/xml"}, {Name: "Feed-Format", Value: "rss2"}}

// news appends n entries of Atom. Every third one is a new version of an older entry.
func (t *memoryTopic) news(n int) {
	for range n {
		i := int(t.span.End)
		id := fmt.Sprintf("tag:x.example,2026:%d", i-i%3/2)
		t.add(syndicated(id, feed.Put, later(i), entryOf(id, later(i), fmt.Sprintf("text %d", i)), isAtom))
	}
}

// archived reads a document and those that prev-archive leads to, as a client of
// RFC 5005 does, the oldest last.
func (s *served) archived(t tester) (docs []got, feeds []*theirAtom.Feed) {
	t.Helper()
	newer := ""
	for at := "/latest"; at != ""; {
		g := s.get(t, at).want(t, 200)
		doc, err := (&theirAtom.Parser{}).Parse(strings.NewReader(g.body))
		if err != nil {
			t.Fatalf("%s: %v in %s", at, err, g.body)
		}
		l := map[string]string{}
		for _, link := range doc.Links {
			if l[link.Rel] != "" {
				t.Errorf("there are two links %s", link.Rel)
			}
			l[link.Rel] = link.Href
		}
		if at != "/latest" && (l["self"] != at || l["next-archive"] != newer) || l["current"] != "http://feed.example/feeds/orders/latest" {
			t.Errorf("%s has the links %v", at, l)
		}
		if archive := strings.Contains(g.body, "<fh:archive"); archive != (at != "/latest") {
			t.Errorf("%s says that it is an archive: %v", at, archive)
		}
		docs, feeds = append(docs, g), append(feeds, doc)
		if at = l["prev-archive"]; len(docs) > 1 {
			newer = l["self"]
		} else {
			newer = ""
		}
	}
	return docs, feeds
}

// walk of documents: the last parts of the IDs, oldest document first, oldest
// entry first.
func idsOf(feeds []*theirAtom.Feed) string {
	var docs []string
	for _, doc := range feeds {
		var ids []string
		for _, e := range doc.Entries {
			ids = append([]string{e.ID[strings.LastIndex(e.ID, ":")+1:]}, ids...)
		}
		docs = append([]string{strings.Join(ids, " ")}, docs...)
	}
	return strings.Join(docs, " | ")
}

func TestAtom(t *testing.T) {
	t.Parallel()
	t.Run("case 131: an archive does not change", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.news(7)
		s := serveTopic(t, topic, as(Atom))
		docs, _ := s.archived(t)
		topic.news(1000)
		for i, path := range []string{"/pages/e0-3-1", "/pages/e0-3-0"} {
			was, now := docs[i+1], s.get(t, path)
			next := "<link rel=\"next-archive\" href=\"http://feed.example/feeds/orders/pages/e0-3-2\"/>\n"
			if i == 0 {
				was.body = strings.Replace(was.body, "<fh:archive", next+"<fh:archive", 1)
			}
			if now.body != was.body {
				t.Errorf("got %s\nwas %s", now.body, was.body)
			}
			if now.header.Get("Cache-Control") != "public, max-age=31536000" {
				t.Errorf("got %v", now.header)
			}
			s.get(t, path, "If-None-Match", now.header.Get("ETag")).want(t, 304)
		}
	})
	t.Run("case 132: an archive that is not full is not linked", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		s := serveTopic(t, topic, as(Atom))
		for n := range 12 {
			_, feeds := s.archived(t)
			if len(feeds) != n/3+1 {
				t.Errorf("%d messages are in %d documents", n, len(feeds))
			}
			s.get(t, fmt.Sprintf("/pages/e0-3-%d", n/3)).want(t, 404)
			topic.news(1)
		}
		if got, want := idsOf(second(s.archived(t))), "0 1 | 3 4 | 6 7 | 9 10 | 9 10"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("case 131: the newest entries are there, however many positions have none", func(t *testing.T) {
		t.Parallel()
		for _, format := range []Format{Atom, RSS} {
			topic := newTopic()
			s := serveTopic(t, topic, as(format)) // of 3 positions each
			var want []string
			for i := range 40 {
				id := fmt.Sprintf("urn:x:%d", i)
				want = append(want, id)
				topic.add(messageOf(id, feed.Put, noon.Add(time.Duration(i)*time.Second), id))
				topic.skip([]uint64{0, 1, 200, 7, 0}[i%5]) // checkpoints
				body := s.get(t, "/latest").want(t, 200).body
				ids := idsIn(t, body)
				if len(ids) < min(3, i+1) || ids[0] != id || strings.Contains(body, "1970") {
					t.Fatalf("after message %d there are %q in %s", i, ids, body)
				}
			}
			// With its archives it has all, each once but for those of the newest archive.
			var got []string
			for _, g := range s.documents(t) {
				for _, id := range idsIn(t, g.body) {
					if !slices.Contains(got, id) {
						got = append(got, id)
					}
				}
			}
			slices.Reverse(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q", format, got)
			}
		}
	})
	t.Run("case 133: what is published again is newer", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		for i := range 20 {
			topic.add(messageOf("<same@x>", feed.Put, noon, fmt.Sprint(i)))
		}
		// The document that has the newer one is newer, too.
		last, lastDoc := time.Time{}, time.Time{}
		_, feeds := serveTopic(t, topic, as(Atom), sized(1)).archived(t)
		for _, doc := range slices.Backward(feeds[1:]) {
			e := doc.Entries[0]
			if e.ID != "cid:same@x" || !e.UpdatedParsed.After(last) || !doc.UpdatedParsed.After(lastDoc) {
				t.Errorf("entry %s is of %v, after one of %v, in a document of %v, after one of %v", e.ID, e.UpdatedParsed, last, doc.UpdatedParsed, lastDoc)
			}
			last, lastDoc = *e.UpdatedParsed, *doc.UpdatedParsed
		}
	})
	t.Run("case 133: an entry that says that it is no newer goes out as it is, in a newer document", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		for i := range 6 {
			topic.add(syndicated("urn:x:1", feed.Put, later(i), entryOf("urn:x:1", noon, fmt.Sprint(i)), isAtom))
		}
		_, feeds := serveTopic(t, topic, as(Atom), sized(2)).archived(t)
		for k, doc := range slices.Backward(feeds[1:]) {
			if want := fmt.Sprint(2*(2-k) + 1); len(doc.Entries) != 1 || doc.Entries[0].Content.Value != want || !doc.Entries[0].UpdatedParsed.Equal(noon) {
				t.Errorf("archive %d has %v, want version %s alone", 2-k, doc.Entries, want)
			}
			if k > 0 && !feeds[k].UpdatedParsed.After(*doc.UpdatedParsed) {
				t.Errorf("archive %d is of %v, and the one behind it of %v", 2-k, doc.UpdatedParsed, feeds[k].UpdatedParsed)
			}
		}
		// By RFC 5005 the order of the documents counts then, so a late reader has the
		// newest version in the end.
		site := newSite(t)
		site.feed.Store(serveTopic(t, topic, as(Atom), sized(2)).Feed)
		f := site.follow(t)
		defer f.client.CloseIdle()
		f.all(t)
		if last := f.got[len(f.got)-1]; string(last.Body) != entryOf("urn:x:1", noon, "5") {
			t.Errorf("the last that is read is %s", last.Body)
		}
	})
	t.Run("case 133: of several versions a document has the newest", func(t *testing.T) {
		t.Parallel()
		for _, format := range []Format{Atom, RSS} {
			topic := newTopic()
			for i, op := range []feed.Operation{feed.Put, feed.Delete, feed.Put, feed.Patch, feed.Patch, feed.Put, feed.Delete} {
				topic.add(messageOf("urn:x:1", op, noon, fmt.Sprint("version ", i)))
				topic.add(messageOf("urn:x:other", feed.Patch, noon, "x"))
			}
			s := serveTopic(t, topic, as(format), sized(100))
			for n, want := range map[uint64]string{2: "0", 4: "tombstone", 6: "2", 8: "3 2", 10: "4 3 2", 12: "5", 14: "tombstone"} {
				topic.set(func() { topic.span.End = n })
				var got []string
				g := s.get(t, "/latest").want(t, 200)
				for _, m := range regexp.MustCompile(`version (\d)|deleted-entry `).FindAllStringSubmatch(g.body, -1) {
					got = append(got, cmp.Or(m[1], "tombstone"))
				}
				if strings.Join(got, " ") != want || strings.Count(g.body, "urn:x:other</") < int(n/2) || g.header.Get("Content-Length") != fmt.Sprint(len(g.body)) {
					t.Errorf("%d messages in %s: got %q, want %s, in %s", n, format, got, want, g.body)
				}
			}
		}
	})
	t.Run("case 134: deletes", func(t *testing.T) {
		t.Parallel()
		for _, format := range []Format{Atom, RSS} {
			topic := newTopic()
			topic.news(1)
			topic.add(syndicated("tag:x.example,2026:0", feed.Delete, later(1), ""))
			theirs := `<x:deleted-entry xmlns:x="http://purl.org/atompub/tombstones/1.0" ref="urn:1" when="2026-03-01T12:00:02Z"/>`
			topic.add(syndicated("urn:1", feed.Delete, later(2), theirs))
			s := serveTopic(t, topic, as(format))
			for _, path := range []string{"/latest", "/pages/e0-3-0"} {
				g := s.get(t, path).want(t, 200)
				want := `<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" ref="tag:x.example,2026:0" when="2026-03-01T12:00:01.000000001Z"/>`
				if !strings.Contains(g.body, want) || !strings.Contains(g.body, theirs) {
					t.Errorf("got %s", g.body)
				}
			}
		}
	})
	t.Run("case 134: a delete is no older than what it deletes", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.add(messageOf("a@x", feed.Put, noon, "1"))
		topic.add(messageOf("a@x", feed.Delete, noon, "")) // at the same time
		s := serveTopic(t, topic, as(Atom), sized(1))
		put, del := parsed(t, s.get(t, "/pages/e0-1-0").body), parsed(t, s.get(t, "/pages/e0-1-1").body)
		id := put.all(atomSpace, "entry")[0].says(atomSpace, "id")
		updated := put.all(atomSpace, "entry")[0].says(atomSpace, "updated")
		tombstone := del.all(tombstoneSpace, "deleted-entry")[0].attrs
		var w wrongs
		if tombstone["ref"] != id || !w.date("when", tombstone["when"]).After(w.date("updated", updated)) || len(w) > 0 {
			t.Errorf("got %v of %s, which is of %s: %v", tombstone, id, updated, w)
		}
	})
	t.Run("case 135: retention", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.news(13)
		s := serveTopic(t, topic, as(Atom))
		docs, _ := s.archived(t)
		topic.trim(4)
		_, feeds := s.archived(t)
		if len(feeds) != 2 {
			t.Errorf("there are %d documents", len(feeds))
		}
		s.get(t, "/pages/e0-3-0").want(t, 410)
		s.get(t, "/pages/e0-3-1").want(t, 410)
		oldest := s.get(t, "/pages/e0-3-3").want(t, 200)
		if was := docs[1]; oldest.body != strings.Replace(was.body, "<link rel=\"prev-archive\" href=\"http://feed.example/feeds/orders/pages/e0-3-2\"/>\n", "", 1) && oldest.body != was.body {
			t.Errorf("got %s, was %s", oldest.body, was.body)
		}
		topic.trim(13)
		if _, feeds := s.archived(t); len(feeds) != 1 || len(feeds[0].Entries) != 0 {
			t.Errorf("got %v", feeds)
		}
	})
	t.Run("an empty topic", func(t *testing.T) {
		t.Parallel()
		for _, format := range []Format{Atom, RSS} {
			s := serveTopic(t, newTopic(), as(format))
			g := s.get(t, "/latest").want(t, 200)
			if doc, err := gofeed.NewParser().ParseString(g.body); err != nil || len(doc.Items) != 0 {
				t.Errorf("got %s, %v", g.body, err)
			}
		}
	})
	t.Run("a document when there is no memory for it", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.news(3)
		s := serveTopic(t, topic, as(Atom), func(c *Config) { c.Memory = NewPageCache(1 << 16) })
		other := &page{body: make([]byte, 64_000)}
		s.builder.memory.storePage(other)
		s.builder.memory.retainPage(other) // it is being sent
		if g := s.get(t, "/latest").want(t, 503); g.header.Get("Retry-After") == "" {
			t.Errorf("got %v", g)
		}
		s.builder.memory.releasePage(other)
		s.get(t, "/latest").want(t, 200)
	})
	t.Run("a document that is too large", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.news(3)
		s := serveTopic(t, topic, as(Atom), func(c *Config) { c.Memory = tiny() })
		if g := s.get(t, "/latest").want(t, 500); !strings.Contains(s.log.String(), "smaller page_size") {
			t.Errorf("got %v, and logged %s", g, s.log)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }

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
		t.Run("case 137: gofeed reads "+string(format), func(t *testing.T) {
			t.Parallel()
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
		t.Run("case 137: feedparser reads "+string(format), func(t *testing.T) {
			t.Parallel()
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
	t.Run("content", func(t *testing.T) {
		t.Parallel()
		g := serveTopic(t, topic, as(Atom), sized(100)).get(t, "/latest")
		for _, want := range []string{
			`<content type="text">a &lt; b &amp; c</content>`,
			`<category scheme="https://github.com/feedbridge/feedbridge/operation" term="PATCH"/><content type="text">{&quot;a&quot;:1}</content>`,
			`<content type="text">no headers</content>`,
			`<content type="html">&lt;p&gt;html</content>`,
			`<content type="application/xml"><a xmlns:b="urn:b" xmlns=""><b:c/></a></content>`,
			"<id>cid:5%20%C3%A9@x</id>",
			"\n" + entryOf("urn:x:13", noon, "13") + "\n",
			`<title type="text">atom: 14</title>`, `<link rel="alternate" href="http://x.example/14"/>`,
		} {
			if !strings.Contains(g.body, want) {
				t.Errorf("there is no %s in %s", want, g.body)
			}
		}
	})
}

// documents are the subscription document and the archives.
func (s *served) documents(t tester) (docs []got) {
	t.Helper()
	for at := "/latest"; at != ""; {
		g := s.get(t, at).want(t, 200)
		docs = append(docs, g)
		at = linksIn(parsed(t, g.body))["prev-archive"]
	}
	return docs
}

// channel holds the entries and links of a document.
func channel(doc *node) *node {
	if inner := doc.all("", "channel"); len(inner) > 0 {
		return inner[0]
	}
	return doc
}

func linksIn(doc *node) map[string]string { return new(wrongs).links(channel(doc)) }

// idsIn are the IDs of a document's entries, in its order.
func idsIn(t tester, doc string) []string {
	t.Helper()
	ids := []string{}
	for _, e := range channel(parsed(t, doc)).children {
		switch e.name.Local {
		case "entry":
			ids = append(ids, e.says(atomSpace, "id"))
		case "item":
			ids = append(ids, e.says("", "guid"))
		}
	}
	return ids
}

// walker is a client of archives as those of ICT4H are: it remembers the document
// and the entry that it has read last, and finds its way back to them by
// prev-archive.
type walker struct {
	page, entry string
	got         []string
}

func (c *walker) poll(t tester, s *served) {
	t.Helper()
	var docs []got // the oldest first
	for at := "/latest"; at != ""; {
		g := s.get(t, at).want(t, 200)
		docs = append([]got{g}, docs...)
		links := linksIn(parsed(t, g.body))
		if links["self"] == c.page && slices.Contains(idsIn(t, g.body), c.entry) {
			break
		}
		at = links["prev-archive"]
	}
	// Where the document that it remembers is not on the way, the entry is: the
	// subscription document becomes archives.
	known := map[string]bool{}
	begun := c.entry == "" || !slices.ContainsFunc(docs, func(g got) bool { return slices.Contains(idsIn(t, g.body), c.entry) })
	if begun && c.entry != "" {
		t.Fatalf("entry %s of %s is not there any more", c.entry, c.page)
	}
	for _, g := range docs {
		ids := idsIn(t, g.body)
		slices.Reverse(ids)
		for _, id := range ids {
			switch {
			case known[id]:
			case begun:
				c.got = append(c.got, id)
				c.page, c.entry = linksIn(parsed(t, g.body))["self"], id
			default:
				begun = id == c.entry
			}
			known[id] = true
		}
	}
}

func TestArchivesAreWalked(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{Atom, RSS} {
		t.Run("case 137: a client of archives reads "+string(format), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				topic := newTopic()
				s := serveTopic(t, topic, as(format), sized(rapid.IntRange(1, 4).Draw(t, "size")))
				var c walker
				var want []string
				for range rapid.IntRange(1, 6).Draw(t, "polls") {
					topic.skip(rapid.SampledFrom([]uint64{0, 0, 1, 9}).Draw(t, "gap"))
					for range rapid.IntRange(0, 9).Draw(t, "messages") {
						i := int(topic.span.End)
						id := fmt.Sprintf("urn:x:%d", i)
						switch {
						case rapid.Bool().Draw(t, "made"):
							topic.add(messageOf(id, feed.Put, noon, fmt.Sprint(i)))
						case format == Atom:
							topic.add(syndicated(id, feed.Put, later(i), entryOf(id, later(i), "x"), isAtom))
						default:
							topic.add(syndicated(id, feed.Put, later(i), itemOf(id, "x"), isRSS...))
						}
						want = append(want, id)
					}
					c.poll(t, s)
				}
				if !slices.Equal(c.got, want) {
					t.Fatalf("read %q, want %q", c.got, want)
				}
			})
		})
	}
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

// follower reads a served feed with our own source for Atom and RSS.
type follower struct {
	ids    *sink.IDs
	src    *sink.Gate
	client *source.Client
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
	f.src = &sink.Gate{Source: syndication.New(cfg, client, f.ids, log), IDs: f.ids, Log: log, Fits: func(feed.Entity) error { return nil }}
	return f
}

func (f *follower) all(t *testing.T) {
	t.Helper()
	for more := true; more; {
		batch, err := f.src.Next(t.Context(), f.cursor)
		if err != nil {
			t.Fatal(err)
		}
		f.cursor, more = batch.Cursor, batch.More
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
	}
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

func TestStandaloneXML(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"<a/>": `<a xmlns=""/>`, "\ufeff<?xml version='1.0'?>\n<!-- x --><a b='1'>x</a>\n": `<a xmlns="" b="1">x</a>`,
		"<a xmlns='urn:a'><b/></a>": `<a xmlns="urn:a"><b/></a>`, "<a:b xmlns:a='urn:a'></a:b>": `<a:b xmlns:a="urn:a"></a:b>`,
		"<a:b xmlns:a='urn:a'><c/></a:b>": `<a:b xmlns:a="urn:a" xmlns=""><c/></a:b>`, `<a xml:lang="en"/>`: `<a xmlns="" xml:lang="en"/>`,
		"": "", "text": "", "<a/>text": "", "<a/><b/>": "", "<a>": "", "<a></b>": "", "<a><!X></a>": "", "<a:b/>": "", "<a b:c=''/>": "", "</a>": "", "<a></a></a>": "",
		"<a b='' b=''/>": "", "<a xmlns:b='urn:b' xmlns:c='urn:b' b:d='' c:d=''/>": "", "<?xml version='1.0' encoding='latin1'?><a/>": "", "<a>\xff</a>": "", "<a>\x01</a>": "", "<a>&#1;</a>": "",
		// Everything except elements and text is left out.
		"<!DOCTYPE a><a/>": `<a xmlns=""/>`, "<?x y?><a/>": `<a xmlns=""/>`, "<a><?p&x?>1<!-- 2 --></a>": `<a xmlns="">1</a>`, "<a>&nbsp;<![CDATA[<b>]]></a>": "<a xmlns=\"\">\u00a0&lt;b&gt;</a>",
		// Others than encoding/xml do not take these as they are.
		"<a b='1'c='\n>'/>": `<a xmlns="" b="1" c=" &gt;"/>`, "<a xmlns:b=' urn:b c '><b:d/></a>": `<a xmlns:b="urn:b%20c" xmlns=""><b:d/></a>`, "<a><:b/></a>": "", "<a :b=''/>": "",
		"<a xmlns:b='urn:b'><b:/></a>": "", "<a xmlns:b='urn:b'><b:1/></a>": "", "<a xmlns:b='urn:b'><b:c:d/></a>": "", "<a xmlns:=''/>": "",
		"<a>&#xD800;</a>": "<a xmlns=\"\">\ufffd</a>", "<a b='&#57343;'/>": "<a xmlns=\"\" b=\"\ufffd\"/>",
		"<a xmlns:b=''/>": "", "<a xmlns:xmlns='urn:b'/>": "", "<a xmlns:xml='urn:b'/>": "", "<a><xmlns:b/></a>": "",
		"<a xmlns:b='http://www.w3.org/XML/1998/namespace'/>": "", "<a xmlns='http://www.w3.org/2000/xmlns/'/>": "",
		strings.Repeat("<a>", 201) + strings.Repeat("</a>", 201):         "",
		"<a xmlns='' xmlns:xml='http://www.w3.org/XML/1998/namespace'/>": `<a xmlns=""/>`,
	} {
		el, _, ok := standaloneXML([]byte(doc))
		if string(el) != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", doc, el, ok, want)
		}
	}
}
