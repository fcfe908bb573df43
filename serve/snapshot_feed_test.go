package serve

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

// state returns the state that entities produce, by key: the bodies of the newest PUT and
// of the PATCHes after it.
func state(entities []feed.Entity) map[string]string {
	made := map[string]string{}
	for _, e := range entities {
		key, _ := byKey(nil, e.Body)
		switch e.Op {
		case feed.Put:
			made[key] = string(e.Body)
		case feed.Patch:
			if made[key] != "" {
				made[key] += " " + string(e.Body)
			}
		case feed.Delete:
			delete(made, key)
		}
	}
	return made
}

func equal(a, b feed.Entity) bool {
	return a.ID == b.ID && a.Op == b.Op && a.Modified.Equal(b.Modified) && bytes.Equal(a.Body, b.Body)
}

// TestSnapshotAndFeed draws a topic with a snapshot somewhere in between, whose
// messages may be late, come twice, and have IDs that others had. A client that loads the
// snapshot, and the feed from when it was created, has the same state as who reads all of
// the feed, and the same entities.
func TestSnapshotAndFeed(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	property := func(t *rapid.T) {
		topic := newTopic()
		late := rapid.SampledFrom([]int{0, 5, 1e8}).Draw(t, "seconds that a message may be late")
		ids := rapid.SampledFrom([]int{3, 1e6}).Draw(t, "IDs")
		at, made := 0, 0
		add := func(label string) {
			for range rapid.IntRange(0, 20).Draw(t, label) {
				at += rapid.IntRange(0, 2).Draw(t, "seconds")
				op := rapid.SampledFrom([]feed.Operation{feed.Put, feed.Put, feed.Patch, feed.Delete}).Draw(t, "op")
				body := fmt.Sprintf("%s:%d", rapid.StringMatching(`[a-h]`).Draw(t, "key"), made)
				r := messageOf(fmt.Sprintf("%d@x", made%ids), op, later(at-rapid.IntRange(0, late).Draw(t, "late")), body)
				if n := len(topic.records); n > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
					r = topic.records[rapid.IntRange(max(0, n-5), n-1).Draw(t, "which")]
				}
				r.Time = later(at)
				topic.add(r)
				made++
			}
		}
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) {
			c.Keys = rapid.IntRange(1, 9).Draw(t, "keys held")
			c.PageBytes = rapid.IntRange(1, 40).Draw(t, "bytes")
		}))
		site.feed.Store(s.Feed)
		add("before")
		topic.during = func() { add("while it is built") }
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		add("after")
		in := s.load(t)
		reader := site.crawl(t)
		defer reader.client.CloseIdle()
		reader.all(t)
		all := reader.got
		for i, e := range in.entities {
			if e.Op == feed.Delete || !e.Modified.Before(in.created) {
				t.Fatalf("the snapshot of %v has %v", in.created, e)
			}
			if key, _ := byKey(nil, e.Body); e.Op == feed.Patch && state(in.entities[:i])[key] == "" {
				t.Fatalf("the snapshot has %v, and nothing that it patches", e)
			}
			if !slices.ContainsFunc(all, func(o feed.Entity) bool { return equal(e, o) }) {
				t.Fatalf("the snapshot has %v, and the feed has not", e)
			}
		}
		puts := map[string]bool{}
		for _, e := range in.entities {
			if key, _ := byKey(nil, e.Body); e.Op == feed.Put {
				if puts[key] {
					t.Fatalf("the snapshot has %s twice", key)
				}
				puts[key] = true
			}
		}
		before := slices.DeleteFunc(slices.Clone(all), func(e feed.Entity) bool { return !e.Modified.Before(in.created) })
		if got, want := state(in.entities), state(before); !maps.Equal(got, want) {
			t.Fatalf("the snapshot has %v, want %v", got, want)
		}
		c := site.crawl(t)
		defer c.client.CloseIdle()
		c.cfg.Start = source.Start{At: in.created}
		c.restart()
		c.all(t)
		for _, e := range c.got {
			if slices.ContainsFunc(in.entities, func(o feed.Entity) bool { return equal(e, o) }) {
				t.Fatalf("%s comes twice", e.ID)
			}
		}
		if got, want := state(append(in.entities, c.got...)), state(all); !maps.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}

		// So does our own source, which starts the feed somewhat earlier.
		c = site.crawl(t)
		defer c.client.CloseIdle()
		var err error
		if c.cfg.Start, err = source.ParseStart("snapshot:" + site.URL + "/feeds/orders/snapshots/latest"); err != nil {
			t.Fatal(err)
		}
		c.restart()
		c.all(t)
		if got, want := state(c.got), state(all); !maps.Equal(got, want) {
			t.Fatalf("our source has %v, want %v", got, want)
		}
		// However young the topic is, nothing is missing behind its snapshot.
		if len(c.violations) > 0 {
			t.Fatalf("our source reports %v of the snapshot of %v", c.violations, in.created)
		}
	}
	parallel.Run(t, "case 140: the feed from the snapshot on, to the second", func(t *testing.T) {
		rapid.Check(t, property)
	})
	parallel.Run(t, "case 141: changes while the snapshot is built", func(t *testing.T) {
		topic := newTopic()
		topic.add(messageOf("0@x", feed.Put, noon, "a:0"))
		topic.add(messageOf("1@x", feed.Put, noon, "b:1"))
		topic.add(messageOf("2@x", feed.Put, later(1), "c:2"))
		s := serveTopic(t, topic, withSnapshots())
		topic.during = func() {
			topic.add(messageOf("3@x", feed.Put, later(1), "a:3"))
			topic.add(messageOf("4@x", feed.Delete, later(2), "b:4"))
		}
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		in := s.load(t)
		if fmt.Sprint(in.pages) != "[[a:0 b:1]]" || !in.created.Equal(later(2)) {
			t.Errorf("got %v", in)
		}
	})
}

// A snapshot has the entities of the feed's pages, from wherever it is read. There the
// handling of times that run back and of repeated IDs depends on the entities before them,
// also on the page before.
func TestSnapshotsAreMadeOfTheFeed(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		topic := newTopic()
		for n := range rapid.IntRange(1, 25).Draw(t, "messages") {
			if rapid.IntRange(0, 9).Draw(t, "a hole") == 0 {
				topic.skip(rapid.Uint64Range(1, 12).Draw(t, "positions"))
			}
			r := messageOf(rapid.StringMatching(`[a-c]@x`).Draw(t, "ID"), feed.Put, noon, rapid.StringMatching(`[a-b]`).Draw(t, "body"))
			r.Time = later(10 + n - rapid.IntRange(0, size).Draw(t, "late"))
			topic.add(r)
		}
		s := serveTopic(t, topic, sized(size), withSnapshots())
		site.feed.Store(s.Feed)
		c := site.crawl(t)
		defer c.client.CloseIdle()
		c.all(t)
		read := func(from uint64) (all []feed.Entity, positions []uint64) {
			for e, err := range s.builder.snapshotEntities(t.Context(), topic.span, from, topic.span.End) {
				must.Succeed(t, err)
				_, part, _ := strings.Cut(string(e.AppendPart(nil, "b")), "Content-ID: ")
				id, _, _ := strings.Cut(part, "\r\n")
				all = append(all, feed.Entity{ID: id, Op: e.Op, Modified: e.Modified, Body: e.Body})
				positions = append(positions, e.Position)
			}
			return all, positions
		}
		all, positions := read(0)
		if !slices.EqualFunc(all, c.got, equal) {
			t.Fatalf("there are %v, and on the feed %v", all, c.got)
		}
		for from := range topic.span.End {
			i, _ := slices.BinarySearch(positions, from)
			if got, _ := read(from); !slices.EqualFunc(got, all[i:], equal) {
				t.Fatalf("from %d on there are %v, and all are %v", from, got, all)
			}
		}
	})
}
