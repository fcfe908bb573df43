package serve

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// documents are the subscription document and the archives.
func (s *served) documents(t tester) (docs []got) {
	t.Helper()
	for at := latest; at != ""; {
		g := s.get(t, at).want(t, 200)
		docs = append(docs, g)
		at = linksIn(t, at, parsed(t, g.body))["prev-archive"]
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

func linksIn(t tester, at string, doc *node) map[string]string { return linksOf(t, at, channel(doc)) }

// idsIn are the IDs of a document's entries, in its order.
func idsIn(t tester, doc string) []string {
	t.Helper()
	ids := []string{}
	for _, e := range channel(parsed(t, doc)).children {
		switch e.name.Local {
		case "entry":
			ids = append(ids, e.says(entry.AtomSpace, "id"))
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
	for at := latest; at != ""; {
		g := s.get(t, at).want(t, 200)
		docs = append([]got{g}, docs...)
		links := linksIn(t, at, parsed(t, g.body))
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
				c.page, c.entry = linksIn(t, latest, parsed(t, g.body))["self"], id
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
		parallel.Run(t, "case 137: a client of archives reads "+string(format), func(t *testing.T) {
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
