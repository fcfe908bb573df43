package datareplication

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestSnapshotIsReplaced(t *testing.T) {
	t.Parallel()
	// begin reads the old snapshot until n of its entities are there, and puts
	// another in its place.
	begin := func(t *testing.T, s *site, n int, edits ...func(*options)) feed.Cursor {
		t.Helper()
		src := s.source(t, append(edits, fromSnapshot(t), batchesOf(1))...)
		var cursor feed.Cursor
		for read := 0; read < n || cursor == nil; {
			b, err := src.Next(t.Context(), cursor, feed.Limits{})
			must.Succeed(t, err)
			cursor = b.Cursor
			read += len(b.Entities)
		}
		s.publish("h@500")
		s.offer("s2", startAt(500), "c@200", "e@250 g@400")
		return cursor
	}
	parallel.Run(t, "before anything of it was published", func(t *testing.T) {
		s := newStill()
		cursor := begin(t, s, 0)
		// The feed goes on from the first one's creation, so a is not read: it
		// was deleted, and a consumer that has it gets the delete.
		readOn(t, s.source(t, fromSnapshot(t)), cursor).want(t, "c e f g h")
	})
	parallel.Run(t, "one that goes on under its own URL", func(t *testing.T) {
		s := newStill()
		s.named = true
		cursor := begin(t, s, 1)
		readOn(t, s.source(t, fromSnapshot(t)), cursor).want(t, "c e f g h")
	})
	parallel.Run(t, "a URL of its own that holds for a while", func(t *testing.T) {
		s := newStill()
		s.named = true
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
		s.edit(func() {
			s.stills["s1-anew"] = s.stills["s1"]
			delete(s.stills, "s1")
			s.still = "s1-anew"
		})
		s.Add("GET", "/snapshot/s1", httpfault.Status(403))
		s.Add("GET", "/snapshot/s1-anew", httpfault.Edit(func(_ http.Header, body []byte) []byte {
			return bytes.Replace(body, []byte(`"id": "s1-anew"`), []byte(`"id": "s1"`), 1)
		}))
		readOn(t, s.source(t, fromSnapshot(t)), r.cursors[2]).want(t, "c e f g")
	})
	parallel.Run(t, "it is read to its end by who has its index", func(t *testing.T) {
		s := newStill()
		src := s.source(t, fromSnapshot(t), batchesOf(1))
		b, err := src.Next(t.Context(), nil, feed.Limits{})
		must.Succeed(t, err)
		s.offer("s2", startAt(500), "c@200")
		readOn(t, src, b.Cursor).want(t, "a c e f g")
	})
	parallel.Run(t, "case 149: halt", func(t *testing.T) {
		s := newStill()
		cursor := begin(t, s, 1)
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, cursor)
		r.wantIDs(t, "")
		r.wantError(t, true, kindSnapshotReplaced, "is s2 of 2023-10-05T03:08:20Z", "was s1", "gap is set to")
		s.edit(func() { s.still = "s1" })
		readOn(t, src, cursor).want(t, "c e f g h")
	})
	for name, n := range map[string]int{"while it is read": 1, "when nothing of it was published": 0} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s := newStill()
			s.named = true
			src := s.source(t, fromSnapshot(t), batchesOf(1))
			var cursor feed.Cursor
			for range 1 + n { // its index with the place in the feed, and a
				b, err := src.Next(t.Context(), cursor, feed.Limits{})
				must.Succeed(t, err)
				cursor = b.Cursor
			}
			s.offer("s2", startAt(290), "c@200", "e@250")
			s.edit(func() { delete(s.stills, "s1") })
			r := readSure(t, src, cursor)
			if n == 0 {
				r.want(t, "c e f g")
				return
			}
			r.wantIDs(t, "")
			// At once, and not when the page is asked for again.
			r.wantError(t, true, kindSnapshotReplaced, "is s2", "was s1", "gap is set to", "another topic")
		})
	}
	parallel.Run(t, "a page that has changed", func(t *testing.T) {
		s := newStill()
		s.offer("s1", startAt(290), "a@0 c@200 e@250")
		cursor := begin(t, s, 2)
		s.offer("s1", startAt(290), "a@0 x@200 e@250")
		r := readOn(t, s.source(t, fromSnapshot(t)), cursor)
		r.wantIDs(t, "")
		r.wantError(t, true, kindSnapshotReplaced, "the first 2 entities of page 1 of 1 of the snapshot s1")
	})
	for name, named := range map[string]bool{"at the same URL": false, "gone from its own URL": true} {
		parallel.RunVirtual(t, "going on with the new one, "+name, func(t *testing.T) {
			s := newStill()
			s.named = named
			cursor := begin(t, s, 2)
			s.edit(func() { delete(s.stills, "s1") })
			g := gated(s.source(t, fromSnapshot(t), onGap(GapResume)))
			g.IDs.Load("a")
			g.IDs.Load("c")
			r := readOn(t, g, cursor)
			r.wantError(t, false, kindSnapshotReplaced, "1m0s")
			time.Sleep(gapPatience)
			r = readOn(t, g, cursor)
			// c is left out because the topic has it, e and g because the feed
			// brings them.
			r.want(t, "e f g h")
		})
	}
}
