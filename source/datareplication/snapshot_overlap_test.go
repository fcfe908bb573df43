package datareplication

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestSnapshotAndFeedOverlap(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "case 140: the second of the creation", func(t *testing.T) {
		// The snapshot has the time 290.7 s. It has b of that second, and not c.
		s := newSite("a@0", "b@290 c@290 d@291")
		s.offer("s1", second(290).Add(700*time.Millisecond).Format(time.RFC3339Nano), "a@0 b@290")
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a b c d")
	})
	parallel.Run(t, "case 140: entities that bear a time from before the creation", func(t *testing.T) {
		s := newSite("a@0", "b@280 c@280 d@291")
		s.offer("s1", startAt(290), "a@0 b@280")
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a b c d")
	})
	parallel.Run(t, "case 141: entities that change while the snapshot is made", func(t *testing.T) {
		// b, c and d are versions of one thing. The snapshot has the last of
		// them, which must not be followed by the others.
		s := newSite("a@0", "b@300 c@310 d@320", "e@330")
		s.offer("s1", startAt(290), "d@320", "a@0")
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a b c d e")
	})
	parallel.Run(t, "more of them than anyone remembers", func(t *testing.T) {
		s := newSite("a@0")
		var ids, entities []string
		for i := range 1000 {
			ids = append(ids, fmt.Sprintf("e%d", i))
			entities = append(entities, fmt.Sprintf("e%d@%d", i, 300+i))
		}
		s.publish(strings.Join(entities, " "))
		s.offer("s1", startAt(290), "a@0 "+strings.Join(entities, " "))
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(100)), nil)
		r.want(t, "a "+strings.Join(ids, " "))
		for _, cursor := range r.cursors {
			if len(cursor) > 1<<10 {
				t.Fatalf("a cursor has %d bytes", len(cursor))
			}
		}
	})
	parallel.Run(t, "a clock that is ahead", func(t *testing.T) {
		s := newSite("a@0", "b@200 c@300 d@400")
		s.offer("s1", startAt(7200), "a@0 c@300")
		dated := httpfault.Edit(func(h http.Header, body []byte) []byte {
			h.Set("Date", second(300).Format(http.TimeFormat))
			return body
		})
		s.Add("GET", "/snapshot", dated)
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a c d")
	})
	parallel.Run(t, "a feed that starts with the snapshot", func(t *testing.T) {
		s := newSite()
		s.offer("s1", startAt(290), "a@0")
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, nil)
		r.want(t, "a")
		s.publish("b@300")
		r = readOn(t, src, r.cursor)
		r.want(t, "b")
		r.wantViolations(t, kindNotOldEnough)
	})
	parallel.Run(t, "a feed that is younger than the clocks may differ", func(t *testing.T) {
		s := newSite("a@250 b@289", "c@300")
		s.offer("s1", startAt(290), "a@250")
		r := readOn(t, s.source(t, fromSnapshot(t)), nil)
		r.want(t, "a b c")
		r.wantViolations(t)
		s = newSite("b@290", "c@300")
		s.offer("s1", startAt(290), "a@100")
		r = readOn(t, s.source(t, fromSnapshot(t)), nil)
		r.want(t, "a b c")
		r.wantViolations(t, kindNotOldEnough)
	})
	parallel.Run(t, "a snapshot of nothing yet", func(t *testing.T) {
		const never = "1970-01-01T00:00:00Z"
		for _, first := range []string{"a@0", ""} {
			s := newSite()
			if first != "" {
				s = newSite(first, "b@300")
			}
			s.offer("s1", never)
			r := readOn(t, s.source(t, fromSnapshot(t)), nil)
			if first == "" {
				s.publish("a@0")
				s.publish("b@300")
				r = readOn(t, s.source(t, fromSnapshot(t)), r.cursor)
			}
			r.want(t, "a b")
			r.wantViolations(t)
		}
		// One that has something is of a time, whatever that is.
		s := newSite("a@0")
		s.offer("s1", never, "x@0")
		readOn(t, s.source(t, fromSnapshot(t)), nil).wantViolations(t, kindNotOldEnough)
	})
	parallel.Run(t, "a feed that has not got as far as the snapshot", func(t *testing.T) {
		s := newSite("a@0")
		s.offer("s1", startAt(290), "a@0 b@300")
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, nil)
		r.want(t, "a")
		s.write("/0", "b@300 c@301")
		readOn(t, s.source(t), r.cursor).want(t, "b c")
	})
	parallel.RunVirtual(t, "a feed that loses what the snapshot left to it", func(t *testing.T) {
		s := newSite("a@0", "b@300", "c@400")
		s.offer("s1", startAt(290), "a@0 b@300")
		src := s.source(t, fromSnapshot(t), batchesOf(1))
		r := readOn(t, src, nil)
		r.want(t, "a b c")
		s.edit(func() { s.remove("/0"); s.remove("/1") })
		for _, cursor := range r.cursors[2:4] { // behind a, and behind the snapshot
			r := readSure(t, s.source(t), cursor)
			r.wantIDs(t, "")
			r.wantError(t, true, kindNotOldEnough, "had some from before")
		}
	})
	parallel.RunVirtual(t, "a feed that does not have what the snapshot left to it", func(t *testing.T) {
		s := newSite("a@0", "x@300 y@300", "z@301")
		s.offer("s1", startAt(290), "a@0 b@300")
		r := readOn(t, s.source(t, fromSnapshot(t)), nil)
		r.wantIDs(t, "a x y")
		r.wantError(t, true, kindNotInFeed, "b of 2023-10-05T03:05:00Z", "gap is set to")

		src := s.source(t, onGap(GapResume))
		r = readOn(t, src, r.cursor)
		r.wantError(t, false, kindNotInFeed)
		time.Sleep(gapPatience)
		readOn(t, src, r.cursor).want(t, "z")
	})
	parallel.RunVirtual(t, "a feed that loses some of what the snapshot left to it", func(t *testing.T) {
		s := newSite("b@300", "c@310 d@320")
		s.offer("s1", startAt(290), "a@0 c@310 b@300")
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
		r.want(t, "a b c d")
		s.edit(func() { s.remove("/0") })
		src := s.source(t, onGap(GapResume))
		lost := readSure(t, src, r.cursors[3])
		lost.wantIDs(t, "")
		lost.wantError(t, false, kindNotInFeed, "b of 2023-10-05T03:05:00Z")
		time.Sleep(gapPatience)
		readOn(t, src, lost.cursor).want(t, "c d")
	})
	parallel.RunVirtual(t, "going on with a feed that does not reach back so far any more", func(t *testing.T) {
		s := newSite("a@0", "b@300", "c@400")
		s.offer("s1", startAt(290), "a@0")
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
		s.edit(func() { s.remove("/0"); s.remove("/1") })
		src := s.source(t, onGap(GapRestart))
		readSure(t, src, r.cursors[3]).wantError(t, false, kindNotOldEnough)
		time.Sleep(gapPatience)
		r = readOn(t, src, r.cursors[3])
		r.want(t, "c")
		r.wantViolations(t, kindNotOldEnough, kindNotOldEnough)
	})
	parallel.RunVirtual(t, "a feed that does not have it after its pages were renamed", func(t *testing.T) {
		s := newSite("a@0", "x@300 y@301")
		s.offer("s1", startAt(290), "a@0 b@300")
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
		r.wantError(t, true, kindNotInFeed)
		s.edit(func() {
			s.pages["/new"], s.pages["/0"].next, s.latest = s.pages["/1"], "/new", "/new"
			s.pages["/new"].self = "/new"
			delete(s.pages, "/1")
		})
		for _, cursor := range r.cursors[3:] {
			readSure(t, s.source(t), cursor).wantError(t, true, kindNotInFeed)
		}
	})
	parallel.RunVirtual(t, "a page of the feed that is renamed meanwhile", func(t *testing.T) {
		s := newSite("a@0", "b@300 c@310")
		s.offer("s1", startAt(290), "a@0 c@310")
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
		r.want(t, "a b c")
		s.edit(func() {
			s.pages["/new"], s.pages["/0"].next, s.latest = s.pages["/1"], "/new", "/new"
			s.pages["/new"].self = "/new"
			delete(s.pages, "/1")
		})
		for i, cursor := range r.cursors {
			readSure(t, s.source(t, fromSnapshot(t)), cursor).want(t, strings.Join(r.ids[r.counts[i]:], " "))
		}
	})
}
