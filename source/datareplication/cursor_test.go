package datareplication

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// storedCursors are cursors as they were stored. Cursors of released versions must stay
// readable, so the list grows and is never changed.
var storedCursors = map[string]string{
	"at the end":                `{"v":1,"page":"https://shop.example.com/feed/7","index":2,"digest":"ffffffffffffffff","etag":"\"x\"","last":"b","modified":1696474802}`,
	"at the end, with the time": `{"v":1,"page":"https://shop.example.com/feed/7","index":2,"digest":"1f","etag":"\"x\"","full":1696478400,"last":"b","modified":1696474802}`,
	"in front of a page":        `{"v":1,"page":"https://shop.example.com/feed/8","came":"https://shop.example.com/feed/7","last":"b","modified":1696474802}`,
	"behind an empty page":      `{"v":1,"page":"https://shop.example.com/feed/9","came":"https://shop.example.com/feed/8","before":"https://shop.example.com/feed/7","empty":1,"last":"b","modified":1696474802}`,
	"on the way back": `{"v":1,"search":{"start":"id:b@2023-10-05T03:00:02Z","id":"b","from":1696474802,"back":"https://shop.example.com/feed/3",` +
		`"newer":"https://shop.example.com/feed/4","newer_time":1696474900,"trail":{"mark":"https://shop.example.com/feed/5","steps":1,"power":4}}}`,
	"on the way back, with the pages": `{"v":1,"search":{"start":"2023-10-05T03:00:02Z","from":1696474802,"back":"https://shop.example.com/feed/3",` +
		`"newer":"https://shop.example.com/feed/4","newer_time":1696474900,"pages":41,"trail":{"mark":"https://shop.example.com/feed/5","steps":1,"power":4}}}`,
	"in a page":              `{"v":1,"page":"https://shop.example.com/feed/7","index":2,"digest":"1f","last":"<b@shop>","modified":1696474802,"tie_hashes":"OQIuak_Kjfc"}`,
	"behind a gap":           `{"v":1,"search":{"from":1696474802,"skip_hashes":"0k7E8amMblt4RSqhGvOfmw","gap":true},"gap":"b"}`,
	"before 1970":            `{"v":1,"search":{"from":-86400}}`,
	"in front of a snapshot": `{"v":1,"search":{},"snapshot":{"index":"https://shop.example.com/snapshots/latest"}}`,
	"in a snapshot": `{"v":1,"page":"https://shop.example.com/feed/7","search":{"from":1696474802,"reached":true},` +
		`"snapshot":{"index":"https://shop.example.com/snapshots/latest","found":"https://shop.example.com/snapshots/17","id":"17","created":"2023-10-05T03:01:02.5Z",` +
		`"pages":3,"ready":true,"page":1,"entity":2,"digest":"1f","published":502},"owed":{"id":"b","modified":1696474900}}`,
	"behind a snapshot": `{"v":1,"page":"https://shop.example.com/feed/7","search":{"from":1696474802,"reached":true},"owed":{"id":"b","modified":1696474900}}`,
}

func TestStoredCursors(t *testing.T) {
	t.Parallel()
	for name, stored := range storedCursors {
		cur, err := decodeCursor(feed.Cursor(stored))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var was, is any
		must.Succeed(t, errors.Join(json.Unmarshal([]byte(stored), &was), json.Unmarshal(cur.encodeCursor(), &is)))
		if diff := gocmp.Diff(was, is); diff != "" {
			t.Errorf("%s: -stored +stored again:\n%s", name, diff)
		}
	}
}

// Whatever a caller does with a decoded cursor, the next one gets what is stored.
func TestCachedCursorIsTheStoredOne(t *testing.T) {
	ties := cursor{Page: "/1", Index: 3, Last: "c", Modified: dawn.Unix(), Ties: hashIDs([]string{"a", "b"})}
	stored := map[string]string{
		"ties": string(ties.encodeCursor()),
		"owed": `{"v":1,"page":"/1","index":1,"last":"a","owed":{"id":"b","modified":1696474900}}`,
	}
	maps.Copy(stored, storedCursors)
	var cache decodedCursor
	for name, text := range stored {
		for range 3 {
			want, err := decodeCursor(feed.Cursor(text))
			must.Succeed(t, err)
			got, err := cache.decode(feed.Cursor(text))
			must.Succeed(t, err)
			if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(cursor{}, seek{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: -stored +decoded:\n%s", name, diff)
			}
			if sr := got.Search; sr != nil {
				*sr = seek{}
			}
			if sn := got.Snapshot; sn != nil {
				*sn = snapshotPosition{}
			}
			if o := got.Owed; o != nil {
				*o = owed{}
			}
			for _, at := range []time.Time{dawn.Add(time.Hour), dawn.Add(time.Hour)} {
				got.advance(&feed.Entity{ID: "z", Modified: at})
			}
		}
		if _, err := cache.decode(feed.Cursor("{")); err == nil {
			t.Error("half a cursor is no error")
		}
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	tests := map[string]CursorInfo{
		"in a page":                       {Page: "https://shop.example.com/feed/7", Index: 2, Last: "<b@shop>", Modified: 1696474802},
		"on the way back":                 {Searching: "the entity after b of 2023-10-05T03:00:02Z", SearchedBackTo: time.Date(2023, 10, 5, 3, 1, 40, 0, time.UTC)},
		"on the way back, with the pages": {Searching: "the first entity since 2023-10-05T03:00:02Z", SearchedPages: 41, SearchedBackTo: time.Date(2023, 10, 5, 3, 1, 40, 0, time.UTC)},
		"behind a gap":                    {Searching: "the first entity since 2023-10-05T03:00:02Z"},
		"before 1970":                     {Searching: "the first entity since 1969-12-31T00:00:00Z"},
		"in a snapshot":                   {Page: "https://shop.example.com/feed/7", Snapshot: "page 2 of 3 of the snapshot 17 of 2023-10-05T03:01:02Z", SnapshotRead: 1, SnapshotPages: 3},
	}
	for name, want := range tests {
		got, err := Describe(feed.Cursor(storedCursors[name]))
		must.Succeed(t, err)
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		`x`, `{}`, `null`, `[]`, `{"v":2,"page":"x"}`, `{"v":1}`, `{"v":1,"page":"x","index":-1}`,
		`{"v":1,"page":"x","index":3}`, `{"v":1,"index":3,"last":"a","search":{}}`, `{"v":1,"page":"x","digest":"zz"}`,
		`{"v":1,"search":{"id":"a"}}`, `{"v":1,"page":"x","empty":-1}`, `{"v":1,"page":"x"} ` + `{}`,
	} {
		if _, err := Describe(feed.Cursor(bad)); !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("%s: error %v", bad, err)
		}
		if _, err := newSite().source(t).Next(t.Context(), feed.Cursor(bad), feed.Limits{}); !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("%s: error %v", bad, err)
		}
		if _, err := ParseCursor(bad); err == nil {
			t.Errorf("%s is taken for a position", bad)
		}
	}
}

// TestACursorStaysSmall takes every cursor to its limit: a second with many
// entities, IDs and ETags as long as a feed may have them, and everything that a
// cursor can hold at a time.
func TestACursorStaysSmall(t *testing.T) {
	t.Parallel()
	size := func(cur cursor) int {
		cur.trimFields()
		return len(cur.encodeCursor())
	}
	for _, text := range []string{"x", `"`, "<", "\u2028", "é"} {
		for _, length := range []int{10, maxStoredID - 10, 5000} {
			id := func(i int) string { return fmt.Sprintf("%06d%s", i, strings.Repeat(text, length/len(text))) }
			cur := cursor{Gap: storedID(id(0))}
			largest := 0
			for i := range 100 {
				cur.advance(&feed.Entity{ID: id(i), Modified: dawn})
				cur.setFullRead(fmt.Sprintf("%q", id(0)), dawn)
				largest = max(largest, size(cur))
				if !isStoredID(storedID(id(i)), id(i)) || isStoredID(storedID(id(i)), id(i+1)) || storedID(storedID(id(i))) != storedID(id(i)) {
					t.Fatalf("%s is stored as %s", id(i), storedID(id(i)))
				}
			}
			cur.trimFields()
			if n := len(cur.Ties); n != maxTies || !cur.Ties.contains(id(98)) || cur.Ties.contains(id(99)) || cur.Ties.contains(id(98-maxTies)) {
				t.Errorf("after 100 entities of %d bytes the cursor has hashes of %d", length, n)
			}
			if largest > maxCursor {
				t.Errorf("with IDs of %d times %q a cursor has %d bytes", length, text, largest)
			}

			from := dawn.Unix()
			way := seek{From: &from, NewerTime: from, Pages: 1e6, Trail: trail{Steps: 1e6, Power: 1e6}, Oldest: true, Reached: true, Early: 60}
			sn := cursor{
				Search: &way, Owed: &owed{storedID(id(0)), from},
				Snapshot: &snapshotPosition{ID: storedID(id(0)), Created: dawn.Add(1), Pages: 1e6, Ready: true, Page: 1e6, Entity: 1e6, Digest: 1<<64 - 1, Published: 1e9},
			}
			cur.Empty = maxEmptyPages
			gap := cur
			behind := way
			behind.Skip, behind.Gap = cur.published(), true
			gap.Search = &behind
			if n := max(size(sn), size(gap)); n > maxCursor {
				t.Errorf("with IDs of %d times %q a cursor of a snapshot or behind a gap has %d bytes", length, text, n)
			}
		}
	}
}

// TestManyEntitiesInOneSecond reads more entities of one second than a cursor
// names, and longer IDs than it holds, from every cursor on and behind a gap.
func TestManyEntitiesInOneSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("i", 300)
		var ids, entities []string
		for i := range 300 {
			ids = append(ids, fmt.Sprintf("%s%d", long, i))
			entities = append(entities, ids[i]+"@1")
		}
		s := newSite(strings.Join(entities[:200], " "), strings.Join(entities[200:], " "))
		r := readOn(t, s.source(t, batchesOf(7)), nil)
		r.want(t, strings.Join(ids, " "))
		for i, cursor := range append(r.cursors, r.cursor)[1:] {
			if len(cursor) > maxCursor {
				t.Fatalf("a cursor has %d bytes", len(cursor))
			}
			if i%10 == 0 {
				readOn(t, s.source(t), cursor).want(t, strings.Join(ids[r.counts[i+1]:], " "))
			}
		}

		// The last one is lost, and something else of the same second came. More
		// of the second were published than the cursor names, so the sink has to
		// know them.
		s.edit(func() {
			page := s.pages["/1"]
			page.entities = append(page.entities[:len(page.entities)-1], "other@1")
		})
		g := gated(s.source(t, onGap(GapResume)))
		for _, id := range ids {
			g.IDs.Load(id)
		}
		lost := readSure(t, g, r.cursor)
		lost.wantError(t, false, kindNotOldEnough)
		time.Sleep(gapPatience)
		readOn(t, g, r.cursor).want(t, "other")
	})
}

func FuzzCursor(f *testing.F) {
	for _, stored := range storedCursors {
		f.Add([]byte(stored))
	}
	f.Add([]byte(`{"v":1,"search":{"now":true,"id":"a","from":0}}`))
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, data []byte) {
		_, _ = ParseCursor(string(data))
		cputime.CheckRepeated(t, string(data), func(text string) { _, _ = ParseCursor(text) })
		cur, err := decodeCursor(data)
		if err != nil {
			if !errors.Is(err, feed.ErrPermanent) {
				t.Fatalf("error %v is not permanent", err)
			}
			return
		}
		if len(data) > 0 {
			again, err := decodeCursor(cur.encodeCursor())
			if err != nil {
				t.Fatalf("%s is stored as %s, which is not read again: %v", data, cur.encodeCursor(), err)
			}
			if diff := gocmp.Diff(cur, again, gocmp.AllowUnexported(cursor{}, seek{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("-read +stored and read:\n%s", diff)
			}
			if _, err := Describe(data); err != nil {
				t.Fatal(err)
			}
		}
		e := feed.Entity{ID: "a", Modified: dawn}
		if cur.Search != nil {
			cur.Search.compareTarget(&e)
		}
		cur.advance(&e)
		cur.trimFields()
	}))
}
