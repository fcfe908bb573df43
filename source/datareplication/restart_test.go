package datareplication

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// TestRestartAnywhere takes every cursor that was returned while a feed was
// read in small batches, and reads on from there.
func TestRestartAnywhere(t *testing.T) {
	t.Parallel()
	s := newSite("a@1 b@1 c@1", "d@1", "e@1 f@2 g@3", "", "h@3 i@3")
	s.pages["/3"].at = 3
	for _, size := range []int{1, 2, 0} {
		r := readOn(t, s.source(t, batchesOf(size)), nil)
		r.want(t, "a b c d e f g h i")
		for i, cursor := range r.cursors {
			readOn(t, s.source(t), cursor).want(t, strings.Join(r.ids[r.counts[i]:], " "))
		}
		readOn(t, s.source(t), r.cursor).want(t, "")
	}
}

// world is a feed that changes, with the entities that have been read.
type world struct {
	*site
	bubble  *testing.T
	t       *rapid.T
	edits   []func(*options)
	all     []string // IDs of the feed, from where reading starts
	grown   int      // so many entities the feed has had
	apart   int      // seconds between the entities
	lost    int      // so many of them are on pages that are gone
	renamed int
	frozen  *site // a replica that lags
	src     *limitedSource
	read    []string
	cursor  feed.Cursor
	marks   []mark // cursors to restart at
}

// mark is a cursor and the number of entities before it.
type mark struct {
	cursor feed.Cursor
	count  int
}

// TestEveryHistoryIsExact draws feeds, has them grow, lose old pages and
// rename the others, while requests fail and the reader starts over anywhere,
// and wants every entity once and in order.
func TestEveryHistoryIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, rt, 1)
			w.live("grow", "trim", "rename", "fail", "freeze", "lag", "restart", "read", "read on", "read more")
		})
	})
}

// TestEverySnapshotIsExact does so with a snapshot that was made while the feed
// grew, and wants the entities that have not changed since, in the snapshot's order, and
// then the feed from there on.
func TestEverySnapshotIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, rt, 40)
			for range rapid.IntRange(1, 10).Draw(rt, "growth before") {
				w.grow()
			}
			w.snapshot()
			w.edits = append(w.edits, fromSnapshot(rt))
			w.src = w.source(t, w.edits...)
			w.live("grow", "rename", "fail", "freeze", "lag", "restart", "read", "read on", "read more")
		})
	})
}

// TestNoCursorReadsAnotherFeed draws histories, then has another feed take the
// place of this one under the same URLs, and reads on from every cursor behind
// an entity. Nothing of the other feed may be read.
func TestNoCursorReadsAnotherFeed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, rt, 1)
			w.live("grow", "trim", "fail", "restart", "read", "read on", "read more")
			later := rapid.IntRange(0, 5).Draw(rt, "later")
			w.edit(func() {
				for _, p := range w.pages {
					for i, e := range p.entities {
						id, at := splitEntity(e)
						p.entities[i] = fmt.Sprintf("other-%s@%d", id, at+later)
					}
					p.at += later
				}
			})
			for _, m := range w.marks {
				if m.count == 0 {
					continue
				}
				src := w.source(t, w.edits...)
				r := readSure(t, src, m.cursor)
				if len(r.ids) > 0 || r.err == nil {
					rt.Fatalf("read on from %s: %v, %v", m.cursor, r.ids, r.err)
				}
			}
		})
	})
}

// inBubble runs f in virtual time. rapid ends a history by a panic, which has to
// leave the bubble.
func inBubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	var end any
	synctest.Test(t, func(t *testing.T) {
		defer func() { end = recover() }()
		f(t)
	})
	if end != nil {
		panic(end)
	}
}

func newWorld(bubble *testing.T, t *rapid.T, apart int) *world {
	w := &world{site: newSite(), bubble: bubble, t: t, apart: apart}
	w.noETag = rapid.Bool().Draw(t, "no ETag")
	w.noLength = rapid.Bool().Draw(t, "no length")
	w.header = func(h http.Header) { h.Set("Date", h.Get("Last-Modified")) } // no time proves anything
	w.edits = []func(*options){
		ahead(rapid.SampledFrom([]int{4, 4, 0, 1, 2, 16}).Draw(t, "pages ahead")),
		batchesOf(rapid.IntRange(0, 3).Draw(t, "batch entities")),
		func(cfg *options) { cfg.batch.Bytes = rapid.IntRange(100, 500).Draw(t, "batch bytes") },
	}
	w.src = w.source(bubble, w.edits...)
	return w
}

// live has the actions of these names happen, and then reads to the end.
func (w *world) live(names ...string) {
	actions := map[string]func(){
		"grow": w.grow, "trim": w.trim, "rename": w.rename, "fail": w.fail, "restart": w.restart,
		"freeze": w.freeze, "lag": w.lag, "read": w.next, "read on": w.next, "read more": w.next,
	}
	for range rapid.IntRange(1, 60).Draw(w.t, "steps") {
		actions[rapid.SampledFrom(names).Draw(w.t, "step")]()
	}
	for w.Left() > 0 {
		w.advance()
	}
	// The first idle poll may be the end of a page that grew meanwhile.
	for calls, idle := 0, 0; idle < 2; calls++ {
		if idle++; w.advance() {
			idle = 0
		}
		if calls > 500 {
			w.t.Fatalf("the source spins at %s", w.cursor)
		}
	}
	if !slices.Equal(w.read, w.all) {
		w.t.Fatalf("read  %v\nof    %v", w.read, w.all)
	}
}

// snapshot makes a snapshot that was begun when one of the entities was the
// newest, and ended now. Of each entity it is drawn whether it is still current.
func (w *world) snapshot() {
	var entities []string // of the feed, in order
	for path := w.latest; path != ""; path = w.pages[path].prev {
		entities = append(slices.Clone(w.pages[path].entities), entities...)
	}
	_, at := splitEntity(rapid.SampledFrom(entities).Draw(w.t, "newest at first"))
	at += rapid.IntRange(0, int(startMargin/time.Second)).Draw(w.t, "later")
	current := slices.DeleteFunc(rapid.Permutation(entities).Draw(w.t, "snapshot"), func(string) bool {
		return rapid.IntRange(0, 3).Draw(w.t, "current") == 0
	})
	w.all = nil
	add := func(entities []string, before bool) {
		for _, e := range entities {
			if id, modified := splitEntity(e); modified < at-int(startMargin/time.Second) == before {
				w.all = append(w.all, id)
			}
		}
	}
	add(current, true)
	add(entities, false)

	var pages []string
	for left := current; len(left) > 0; {
		n := rapid.IntRange(0, len(left)).Draw(w.t, "on the page")
		pages = append(pages, strings.Join(left[:n], " "))
		left = left[n:]
	}
	w.named = rapid.Bool().Draw(w.t, "redirect")
	w.offer("s", startAt(at), pages...)
}

// grow adds entities to the newest page, or pages.
func (w *world) grow() {
	for range rapid.IntRange(1, 4).Draw(w.t, "entities") {
		at := w.grown / rapid.IntRange(2, 4).Draw(w.t, "ties") * w.apart
		if w.latest != "" {
			at = max(at, w.pages[w.latest].at)
		}
		id := fmt.Sprintf("e%d", w.grown)
		entity := fmt.Sprintf("%s@%d", id, at)
		w.all = append(w.all, id)
		w.grown++
		if w.latest == "" || rapid.IntRange(0, 2).Draw(w.t, "new page") == 0 {
			path := fmt.Sprintf("/%d-%d", w.grown, w.renamed)
			w.edit(func() {
				w.pages[path] = &sheet{self: path, prev: w.latest}
				if before := w.pages[w.latest]; before != nil {
					before.next = path
				}
				w.latest = path
			})
		}
		w.write(w.latest, entity)
	}
}

// trim takes away the oldest page, if the reader is past it.
func (w *world) trim() {
	for path, p := range w.pages {
		if p.prev == "" && p.next != "" && len(w.read) > w.lost+len(p.entities) {
			w.edit(func() { w.remove(path) })
			w.lost += len(p.entities)
			w.forget(w.lost)
			return
		}
	}
}

// forget drops the marks with no more than n entities before them, because the feed no
// longer has their entities.
func (w *world) forget(n int) {
	w.marks = slices.DeleteFunc(w.marks, func(m mark) bool { return m.count <= n })
}

// rename gives all pages other URLs.
func (w *world) rename() {
	w.renamed++
	name := func(path string) string {
		if path == "" {
			return ""
		}
		number, _, _ := strings.Cut(path, "-")
		return number + "-" + strconv.Itoa(w.renamed)
	}
	w.edit(func() {
		pages := map[string]*sheet{}
		for path, p := range w.pages {
			pages[name(path)] = &sheet{name(p.self), name(p.prev), name(p.next), p.at, p.entities}
		}
		w.pages, w.latest = pages, name(w.latest)
	})
}

// fail has one of the next requests fail.
func (w *world) fail() {
	for range rapid.IntRange(0, 3).Draw(w.t, "good requests") {
		w.Add("", "", httpfault.Pass)
	}
	n := rapid.IntRange(0, 400).Draw(w.t, "cut")
	w.Add("", "", rapid.SampledFrom([]httpfault.Fault{
		httpfault.Status(500), httpfault.Status(502), httpfault.Status(404), httpfault.Reset, httpfault.Cut(n),
		httpfault.Edit(func(_ http.Header, body []byte) []byte { return body[:min(n, len(body))] }),
	}).Draw(w.t, "fault"))
}

// freeze has a replica stop following the site.
func (w *world) freeze() { w.frozen = w.replica() }

// lag makes that replica answer one of the next requests.
func (w *world) lag() {
	if w.frozen == nil {
		return
	}
	for range rapid.IntRange(0, 3).Draw(w.t, "fresh answers") {
		w.Add("", "", httpfault.Pass)
	}
	w.Add("", "", answerFrom(w.frozen))
}

// restart goes on with a fresh source, here or at an older cursor.
func (w *world) restart() {
	w.src = w.source(w.bubble, w.edits...)
	if len(w.marks) > 0 && rapid.Bool().Draw(w.t, "at an older cursor") {
		m := rapid.SampledFrom(w.marks).Draw(w.t, "mark")
		w.cursor, w.read = m.cursor, w.read[:m.count:m.count]
		w.marks = slices.DeleteFunc(w.marks, func(later mark) bool { return later.count > m.count })
	}
}

func (w *world) next() { w.advance() }

// advance calls Next once and reports whether there is, or may be, more to read.
func (w *world) advance() bool {
	b, err := w.src.Next(w.bubble.Context(), w.cursor, feed.Limits{})
	if err != nil {
		time.Sleep(confirmFor / (confirmLooks - 1))
		return true // whatever failed, the place stays
	}
	if bytes.Equal(b.Cursor, w.cursor) {
		if len(b.Entities) > 0 {
			w.t.Fatalf("entities came without a new cursor: %v", b.Entities)
		}
		return false
	}
	for _, e := range b.Entities {
		w.read = append(w.read, e.ID)
	}
	if n := len(w.read); n > len(w.all) || !slices.Equal(w.read, w.all[:n]) {
		w.t.Fatalf("read  %v\nof    %v\nup to %s", w.read, w.all, b.Cursor)
	}
	w.cursor = b.Cursor
	w.marks = append(w.marks, mark{b.Cursor, len(w.read)})
	return true
}

// TestLongFeed reads a feed of 10,000 pages from its beginning. It is not parallel,
// as it measures memory.
func TestLongFeed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const pages = 10_000
	s := newSite("x@1")
	f := samplefeed.New(samplefeed.Options{PageSize: 1, Entity: func(i int) feed.Entity {
		return feed.Entity{ID: strconv.Itoa(i), Op: feed.Put, Modified: second(i / 3), Body: []byte("body of " + strconv.Itoa(i))}
	}})
	f.SetLen(pages)
	s.Handler = f
	entry := func(cfg *options) { cfg.URL = "http://feed.example/feed/latest" }

	retained := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	src := s.source(t, entry)
	var cursor feed.Cursor
	var early uint64
	calls, count, largest, heads := 0, 0, 0, 0
	for more := true; more; calls++ {
		b, err := src.Next(t.Context(), cursor, feed.Limits{})
		must.Succeed(t, err)
		for _, e := range b.Entities {
			if e.ID != strconv.Itoa(count) {
				t.Fatalf("entity %d is %s", count, e.ID)
			}
			count++
		}
		cursor, more = b.Cursor, b.More
		largest = max(largest, len(cursor))
		switch calls {
		case 20:
			early = retained()
		case 60, pages / 2: // on the way back, and on the way forward
			src = s.source(t, entry)
		}
		for _, request := range s.requests() {
			if strings.HasPrefix(request, "HEAD") {
				heads++
			}
		}
	}
	t.Run("case 27: every entity, with the way back made once", func(t *testing.T) {
		if count != pages || heads > pages+pages/100 {
			t.Errorf("read %d entities with %d HEAD requests", count, heads)
		}
	})
	t.Run("case 27: in constant memory", func(t *testing.T) {
		if largest > 1<<10 {
			t.Errorf("the largest cursor has %d bytes", largest)
		}
		if late := retained(); late > early+4<<20 {
			t.Errorf("%d bytes are held after 20 calls, and %d after %d", early, late, calls)
		}
	})
}
