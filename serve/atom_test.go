package serve

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mmcdole/gofeed"
	theirAtom "github.com/mmcdole/gofeed/atom"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// archived reads a document and those that prev-archive leads to, as a client of
// RFC 5005 does, the oldest last.
func (s *served) archived(t tester) (docs []got, feeds []*theirAtom.Feed) {
	t.Helper()
	newer := ""
	for at := latest; at != ""; {
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
			l[link.Rel] = entry.ResolveURL(at, link.Href)
		}
		if l["self"] != at || at != latest && l["next-archive"] != newer || l["current"] != latest {
			t.Errorf("%s has the links %v", at, l)
		}
		if archive := strings.Contains(g.body, "<fh:archive"); archive != (at != latest) {
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
	parallel.Run(t, "case 131: an archive does not change", func(t *testing.T) {
		topic := newTopic()
		topic.news(7)
		s := serveTopic(t, topic, as(Atom))
		docs, _ := s.archived(t)
		topic.news(1000)
		for i, path := range []string{"/pages/e0-3-1", "/pages/e0-3-0"} {
			was, now := docs[i+1], s.get(t, path)
			next := "<link rel=\"next-archive\" href=\"../pages/e0-3-2\"/>\n"
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
	parallel.Run(t, "case 132: an archive that is not full is not linked", func(t *testing.T) {
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
	parallel.Run(t, "case 131: the newest entries are there, however many positions have none", func(t *testing.T) {
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
	parallel.Run(t, "case 133: what is published again is newer", func(t *testing.T) {
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
	parallel.Run(t, "case 133: an entry that says that it is no newer goes out as it is, in a newer document", func(t *testing.T) {
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
	parallel.Run(t, "case 133: of several versions a document has the newest", func(t *testing.T) {
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
	parallel.Run(t, "case 134: deletes", func(t *testing.T) {
		for _, format := range []Format{Atom, RSS} {
			topic := newTopic()
			topic.news(1)
			topic.add(syndicated("tag:x.example,2026:0", feed.Delete, later(1), ""))
			theirs := `<x:deleted-entry xmlns:x="http://purl.org/atompub/tombstones/1.0" ref="urn:1" when="2026-03-01T12:00:02Z"/>`
			topic.add(syndicated("urn:1", feed.Delete, later(2), theirs))
			s := serveTopic(t, topic, as(format))
			for _, path := range []string{"/latest", "/pages/e0-3-0"} {
				g := s.get(t, path).want(t, 200)
				want := `<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" ref="tag:x.example,2026:0" when="2026-03-01T12:00:01.000000001Z"></at:deleted-entry>`
				if !strings.Contains(g.body, want) || !strings.Contains(g.body, theirs) {
					t.Errorf("got %s", g.body)
				}
			}
		}
	})
	parallel.Run(t, "case 134: a delete is no older than what it deletes", func(t *testing.T) {
		topic := newTopic()
		topic.add(messageOf("a@x", feed.Put, noon, "1"))
		topic.add(messageOf("a@x", feed.Delete, noon, "")) // at the same time
		s := serveTopic(t, topic, as(Atom), sized(1))
		put, del := parsed(t, s.get(t, "/pages/e0-1-0").body), parsed(t, s.get(t, "/pages/e0-1-1").body)
		id := put.all(entry.AtomSpace, "entry")[0].says(entry.AtomSpace, "id")
		updated := put.all(entry.AtomSpace, "entry")[0].says(entry.AtomSpace, "updated")
		tombstone := del.all(entry.TombstoneSpace, "deleted-entry")[0].attrs
		at, _ := time.Parse(time.RFC3339, updated)
		deleted, _ := time.Parse(time.RFC3339, tombstone["when"])
		if tombstone["ref"] != id || at.IsZero() || !deleted.After(at) {
			t.Errorf("got %v of %s, which is of %s", tombstone, id, updated)
		}
	})
	parallel.Run(t, "case 135: retention", func(t *testing.T) {
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
		if was := docs[1]; oldest.body != strings.Replace(was.body, "<link rel=\"prev-archive\" href=\"../pages/e0-3-2\"/>\n", "", 1) && oldest.body != was.body {
			t.Errorf("got %s, was %s", oldest.body, was.body)
		}
		topic.trim(13)
		if _, feeds := s.archived(t); len(feeds) != 1 || len(feeds[0].Entries) != 0 {
			t.Errorf("got %v", feeds)
		}
	})
	parallel.Run(t, "an empty topic", func(t *testing.T) {
		for _, format := range []Format{Atom, RSS} {
			s := serveTopic(t, newTopic(), as(format))
			g := s.get(t, "/latest").want(t, 200)
			if doc, err := gofeed.NewParser().ParseString(g.body); err != nil || len(doc.Items) != 0 {
				t.Errorf("got %s, %v", g.body, err)
			}
		}
	})
	parallel.Run(t, "a document when there is no memory for it", func(t *testing.T) {
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
	parallel.Run(t, "a document that is too large", func(t *testing.T) {
		topic := newTopic()
		topic.news(3)
		s := serveTopic(t, topic, as(Atom), func(c *Config) { c.Memory = tiny() })
		if g := s.get(t, "/latest").want(t, 500); !strings.Contains(s.log.String(), "smaller page_size") {
			t.Errorf("got %v, and logged %s", g, s.log)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }
