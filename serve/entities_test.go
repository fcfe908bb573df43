package serve

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Entities returns the same as a reader of the feed gets, for topics of any writer, with
// repeated IDs, gaps, and messages deleted by retention.
func TestEntitiesAreThoseThatReadersGet(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	rapid.Check(t, func(t *rapid.T) {
		topic := newTopic()
		for i := range rapid.IntRange(0, 30).Draw(t, "messages") {
			topic.skip(rapid.SampledFrom([]uint64{0, 0, 0, 1, 20}).Draw(t, "gap"))
			r := feed.Record{Time: later(i), Body: rapid.SampledFrom([][]byte{nil, []byte("1"), []byte("2")}).Draw(t, "body")}
			id := rapid.SampledFrom([]string{"a", "b", "c", fmt.Sprint("m", i)}).Draw(t, "id")
			switch rapid.SampledFrom([]string{"ours", "ours", "of Atom", "foreign", "tombstone"}).Draw(t, "kind") {
			case "ours":
				r = messageOf(id, feed.Put, later(i-rapid.IntRange(0, 5).Draw(t, "late")), string(r.Body), feed.Field{Name: "x-a", Value: "1"})
			case "of Atom":
				r = syndicated(id, feed.Put, later(i), string(r.Body), isAtom)
			case "foreign":
				r.Header = feed.Header{{Name: "Bad Name", Value: "1"}, {Name: "X-Empty", Value: ""}, {Name: "Operation-Type", Value: "STIR"}, {Name: "Nats-Stream", Value: "1"}}
			case "tombstone":
				r.Tombstone, r.Body = true, nil
			}
			topic.add(r)
		}
		topic.trim(rapid.Uint64Range(0, topic.span.End).Draw(t, "first"))
		s := serveTopic(t, topic, sized(rapid.IntRange(1, 8).Draw(t, "size")), func(c *Config) {
			c.Snapshot.Every = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "snapshots")
		})
		site.feed.Store(s.Feed)
		c := site.crawl(t)
		defer c.client.CloseIdle()
		c.all(t)
		for i := range c.got {
			c.got[i].Page = ""
		}
		out := 0
		entities, err := s.Entities(t.Context(), func() { out++ })
		must.Succeed(t, err)
		var got []feed.Entity
		for e, err := range entities {
			must.Succeed(t, err)
			got = append(got, e)
		}
		if diff := cmp.Diff(c.got, got, cmp.Transformer("empty", func(b []byte) string { return string(b) })); diff != "" {
			t.Fatalf("-read +said:\n%s", diff)
		}
		for _, r := range topic.records {
			if !s.onPage(t, r.Position) {
				out++
			}
		}
		if len(got)+out != len(topic.records) {
			t.Errorf("of %d messages %d are in the feed, and %d are not", len(topic.records), len(got), out)
		}
	})
}

// onPage reports whether the page of a position can be read.
func (s *served) onPage(t tester, position uint64) bool {
	size := uint64(s.cfg.PageSize)
	return s.get(t, "/pages/"+pageID{epoch: "e0", size: size, k: position / size}.String()).status == 200
}

func TestEntitiesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(5)
	_, err := serveTopic(t, topic, as(Atom)).Entities(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "serve the topic as datareplication") {
		t.Errorf("got %v", err)
	}
	s := serveTopic(t, topic)
	entities, err := s.Entities(t.Context(), nil)
	must.Succeed(t, err)
	topic.set(func() { topic.away = true })
	for e, err := range entities {
		if !errors.Is(err, errAway) {
			t.Errorf("got %v, %v", e, err)
		}
	}
	s.builder.spans.at = time.Time{}
	if _, err := s.Entities(t.Context(), nil); !errors.Is(err, errAway) {
		t.Errorf("got %v", err)
	}
}
