package datareplication

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

const snapshotIndex = "http://feed.example/snapshot"

func fromSnapshot(t tester) func(*Config) {
	t.Helper()
	return from(t, "snapshot:"+snapshotIndex)
}

// newStill returns a feed with a snapshot of what had come of it after 290
// seconds, in which b and d had been replaced or deleted. The feed is read from
// 230 seconds on.
func newStill() *site {
	s := newSite("a@0 b@100", "c@200 d@210", "e@250 f@300", "g@400")
	s.offer("s1", startAt(290), "a@0", "c@200 e@250")
	return s
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	t.Run("case 129: the index, its pages, and the feed from its creation on", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, nil)
		r.want(t, "a c e f g")
		r.wantViolations(t)
		s.wantRequests(t, "GET /snapshot", "HEAD /latest", "HEAD /2", "HEAD /1",
			"GET /snapshot/s1/0", "GET /snapshot/s1/1", "GET /2", "GET /3")
		readOn(t, src, r.cursor).want(t, "")
		s.publish("h@500")
		readOn(t, src, r.cursor).want(t, "h")
	})
	t.Run("it goes on from every cursor", func(t *testing.T) {
		t.Parallel()
		for _, size := range []int{1, 2, 0} {
			s := newStill()
			s.offer("s1", startAt(290), "a@0", "c@200 e@250", "", "e2@220 e3@10 e4@20 e5@20")
			r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(size)), nil)
			r.want(t, "a c e2 e3 e4 e5 e f g")
			for i, cursor := range r.cursors {
				readOn(t, s.source(t, fromSnapshot(t)), cursor).want(t, strings.Join(r.ids[r.counts[i]:], " "))
			}
		}
	})
	t.Run("a position that a person names", func(t *testing.T) {
		t.Parallel()
		cursor, err := ParseCursor("snapshot:" + snapshotIndex)
		if err != nil {
			t.Fatal(err)
		}
		if got := placeOf(t, cursor); got != (CursorInfo{Snapshot: "the snapshot " + snapshotIndex}) {
			t.Errorf("got %+v", got)
		}
		s := newStill()
		r := readOn(t, s.source(t), cursor)
		r.want(t, "a c e f g")
		if got, want := placeOf(t, r.cursors[2]).Snapshot, "page 2 of 2 of the snapshot s1 of 2023-10-05T03:04:50Z"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("another start in the configuration changes nothing any more", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
		for i, cursor := range r.cursors[1:] {
			readOn(t, s.source(t), cursor).want(t, strings.Join(r.ids[r.counts[i+1]:], " "))
		}
	})
	t.Run("case 131: forms of createdAt", func(t *testing.T) {
		t.Parallel()
		for _, created := range []string{"2023-10-05T03:04:50Z", "2023-10-05T03:04:50.999Z", "2023-10-05T05:04:50+02:00", "2023-10-05T03:04:50.123456789Z"} {
			s := newStill()
			s.stills["s1"].created = created
			readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a c e f g")
		}
	})
	t.Run("case 132: an empty snapshot", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		s.offer("s1", startAt(290))
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "e f g")
	})
	// They are read, and it is counted. There is no mode that refuses them: their meaning
	// is clear, and an alert on violations can report them.
	for name, relative := range map[string]string{"case 133: relative URLs of pages": "s1/", "case 133: URLs without a host": "/snapshot/s1/", "case 133: URLs without a scheme": "//feed.example/snapshot/s1/"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStill()
			s.named = true // they are relative to where the index was found
			s.Add("GET", "/snapshot/s1", httpfault.Edit(func(_ http.Header, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte("http://feed.example/snapshot/s1/"), []byte(relative))
			}))
			r := readOn(t, s.source(t, fromSnapshot(t)), nil)
			r.want(t, "a c e f g")
			r.wantViolations(t, RelativePage) // once, however many there are
		})
	}
	// Its order is that of the index, as with one request at a time: more would need a
	// place on each of several pages, and let versions of a thing change their order.
	t.Run("case 134: all entities of all pages, in the order of the index, with every header", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		s.offer("s1", startAt(290), "a@0 c@200", "k@50 l@10", "m@20")
		for k := range 3 {
			s.Add("GET", fmt.Sprintf("/snapshot/s1/%d", k), httpfault.Edit(func(_ http.Header, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte("Content-ID"), []byte("x-More: 1\r\nX-More: 2\r\nContent-ID"))
			}))
		}
		src := s.source(t, fromSnapshot(t))
		var got, want []feed.Entity
		var cursor feed.Cursor
		for len(got) < 5 {
			b, err := src.Next(t.Context(), cursor)
			if err != nil {
				t.Fatal(err)
			}
			cursor = b.Cursor
			got = append(got, b.Entities...)
		}
		for _, e := range []struct {
			id         string
			page, time int
		}{{"a", 0, 0}, {"c", 0, 200}, {"k", 1, 50}, {"l", 1, 10}, {"m", 2, 20}} {
			want = append(want, feed.Entity{
				ID: e.id, Op: feed.Put, Modified: second(e.time), Body: []byte("body of " + e.id), Page: fmt.Sprintf("http://feed.example/snapshot/s1/%d", e.page),
				Header: feed.Header{
					{Name: "Content-Type", Value: "text/plain"},
					{Name: "x-More", Value: "1"},
					{Name: "X-More", Value: "2"},
					{Name: "Content-ID", Value: e.id},
					{Name: "Last-Modified", Value: second(e.time).Format(http.TimeFormat)},
					{Name: "Operation-Type", Value: "http-equiv=PUT"},
				},
			})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		s.wantRequests(t, "GET /snapshot", "HEAD /latest", "HEAD /2", "HEAD /1", "GET /snapshot/s1/0", "GET /snapshot/s1/1", "GET /snapshot/s1/2")
	})
	// The pages after it are not read meanwhile: they would come before it in the topic,
	// and a position in the snapshot would be one on each of its pages. Reading continues
	// when the page is there.
	t.Run("case 135: a page that is missing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, status := range []int{404, 410} {
				s := newStill()
				s.offer("s1", startAt(290), "a@0", "c@200", "k@50")
				s.Add("GET", "/snapshot/s1/1", slices.Repeat([]httpfault.Fault{httpfault.Status(status)}, confirmLooks+1)...)
				src := s.source(t, fromSnapshot(t))
				r := readSure(t, src, nil)
				r.wantIDs(t, "a")
				r.wantError(t, true, "", "page 2 of 3 of the snapshot s1", fmt.Sprint(status))
				readSure(t, src, r.cursor).wantError(t, true, "", fmt.Sprint(status))
				if slices.Contains(s.requests(), "GET /snapshot/s1/2") {
					t.Error("the page behind it was asked for")
				}
				readOn(t, src, r.cursor).want(t, "c k e f g")
			}
		})
	})
	t.Run("case 136: what entities of feeds have and those of snapshots need not", func(t *testing.T) {
		t.Parallel()
		for range 2 { // generated values are the same each time
			s := newStill()
			spoil := httpfault.Edit(func(_ http.Header, body []byte) []byte {
				for _, line := range []string{
					"Last-Modified: " + second(200).Format(http.TimeFormat) + "\r\n", "Last-Modified: " + second(250).Format(http.TimeFormat) + "\r\n",
					"Operation-Type: http-equiv=PUT\r\n", "Content-ID: e\r\n",
				} {
					body = bytes.ReplaceAll(body, []byte(line), nil)
				}
				return bytes.ReplaceAll(body, []byte("body of e"), []byte("body of s1/1/1"))
			})
			s.Add("GET", "/snapshot/s1/1", spoil, spoil)
			r := readOn(t, s.source(t, fromSnapshot(t)), nil)
			r.want(t, "a c s1/1/1 e f g")
			r.wantViolations(t, page.MissingEntityTime)
			b, err := s.source(t, fromSnapshot(t)).Next(t.Context(), r.cursors[2])
			if err != nil || !b.Entities[0].Modified.Equal(second(290)) {
				t.Errorf("got %v, %v: it has the time of the snapshot", b, err)
			}
		}
	})
}

func TestBadSnapshotIndexes(t *testing.T) {
	t.Parallel()
	page := `"http://feed.example/snapshot/s1/0"`
	for name, tt := range map[string]struct{ index, words string }{
		"case 130: no id":           {`{"createdAt": "2023-10-05T03:04:50Z", "pages": []}`, "no id"},
		"case 130: null id":         {`{"id": null, "createdAt": "2023-10-05T03:04:50Z", "pages": []}`, "no id"},
		"case 130: an id of 0":      {`{"id": 0, "createdAt": "2023-10-05T03:04:50Z", "pages": []}`, "not the index"},
		"case 130: no createdAt":    {`{"id": "s1", "pages": []}`, "no createdAt"},
		"case 130: null createdAt":  {`{"id": "s1", "createdAt": null, "pages": []}`, "no createdAt"},
		"case 130: a date alone":    {`{"id": "s1", "createdAt": "2023-10-05", "pages": []}`, `"2023-10-05", which is not like`},
		"case 130: no pages":        {`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z"}`, "no pages"},
		"case 130: null pages":      {`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": null}`, "no pages"},
		"case 130: pages no array":  {`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": {}}`, "not the index"},
		"case 130: a null page":     {`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": [null]}`, "page 0"},
		"case 130: malformed":       {`{"id": "s1"`, "not the index"},
		"case 130: garbage behind":  {`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": []} x`, "not the index"},
		"case 130: nothing":         {``, "not the index"},
		"case 130: null":            {`null`, "no id"},
		"a page twice":              {`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": [` + page + `, ` + page + `]}`, "twice"},
		"a page that is no URL":     {`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": ["http://a b/"]}`, "not a URL"},
		"HTML":                      {`<html><body>Please log in.</body></html>`, `"text/html"`},
		"case 130: an array":        {`[]`, "not the index"},
		"case 130: the pages alone": {`[` + page + `]`, "check that the URL after snapshot:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStill()
			spoil := httpfault.Edit(func(h http.Header, _ []byte) []byte {
				if name == "HTML" {
					h.Set("Content-Type", "text/html")
				}
				return []byte(tt.index)
			})
			s.Add("GET", "/snapshot", spoil)
			src := s.source(t, fromSnapshot(t))
			r := readOn(t, src, nil)
			r.wantIDs(t, "")
			r.wantError(t, true, BadIndex, tt.words, snapshotIndex)
			readOn(t, src, r.cursor).want(t, "a c e f g")
		})
	}
}

// The URLs of the pages of an index are not held resolved: a small index behind a
// long URL became gigabytes.
func TestMemoryOfSnapshotIndexes(t *testing.T) {
	for name, tt := range map[string]struct {
		path  int
		words string
	}{
		"behind a redirect to a long URL":         {50_000, "has a URL of 50"},
		"behind a redirect to the longest URL":    {longestAddress - 1000, ""},
		"with pages of URLs that become too long": {longestAddress - 100, "page 0 in the index"},
	} {
		t.Run(name, func(t *testing.T) {
			var index strings.Builder
			first := strings.Repeat("p", 200)
			index.WriteString(`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": ["` + first + `"`)
			for i := range 20_000 {
				fmt.Fprintf(&index, `,"%d"`, i)
			}
			index.WriteString(`]}`)
			long := "/" + strings.Repeat("x", tt.path) + "/"
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != long {
					http.Redirect(w, r, long, http.StatusFound)
					return
				}
				_, _ = io.WriteString(w, index.String())
			}))
			defer server.Close()
			cfg := Config{Config: source.Defaults()}
			cfg.URL = server.URL + "/latest"
			client, err := source.NewClient(cfg.Config, source.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdle()
			src := New(cfg, client, slog.New(slog.DiscardHandler))
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			ix, err := readIndex(t.Context(), src.reader.pages.client, server.URL+"/snapshot", &sightings{})
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
				t.Errorf("an index of %d bytes takes %d", index.Len(), grown)
			}
			switch {
			case tt.words != "" && (err == nil || !strings.Contains(err.Error(), tt.words)):
				t.Errorf("got the error %.300v", err)
			case tt.words == "" && err != nil:
				t.Errorf("got the error %.300v", err)
			case tt.words == "":
				if at, err := ix.pageURL(0); at != server.URL+long+first || err != nil {
					t.Errorf("page 0 is %.50s, %v", at, err)
				}
			}
			runtime.KeepAlive(ix)
		})
	}
}

func TestSnapshotIndexWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newStill()
	s.Add("GET", "/snapshot", httpfault.Edit(func(http.Header, []byte) []byte {
		return append(append([]byte(`{"id": "`), bytes.Repeat([]byte("x"), maxIndex)...), `"}`...)
	}))
	r := readOn(t, s.source(t, fromSnapshot(t)), nil)
	r.wantIDs(t, "")
	r.wantError(t, true, BadIndex, "more than")
}

// A snapshot that cannot be read is an error, and goes on when it can.
func TestSnapshotFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]httpfault.Fault{
		"500": httpfault.Status(500), "404": httpfault.Status(404), "204": httpfault.Status(204), "304 without a condition": httpfault.Status(304),
		"reset": httpfault.Reset, "redirects without end": loop, "cut": httpfault.Cut(20),
		"HTML": httpfault.Edit(func(h http.Header, _ []byte) []byte {
			h.Set("Content-Type", "text/html")
			return []byte("<html>")
		}),
	} {
		for _, path := range []string{"/snapshot", "/snapshot/s1/0", "/snapshot/s1/1", "/2"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				s := newStill()
				for range 8 {
					s.Add("GET", path, fault)
				}
				src := s.source(t, fromSnapshot(t), batchesOf(1))
				r := readOn(t, src, nil)
				ids, failed := r.ids, r.err != nil
				for s.Left() > 0 || r.err != nil {
					r = readOn(t, src, r.cursor)
					ids = append(ids, r.ids...)
				}
				if got := strings.Join(ids, " "); got != "a c e f g" || !failed {
					t.Errorf("read %q; there was an error: %v", got, failed)
				}
			})
		}
	}
	t.Run("pages of the feed vanish while the place is looked for", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		s.Add("HEAD", "/2", httpfault.Status(404))
		s.Add("HEAD", "/3", httpfault.Status(404))
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, nil)
		r.wantIDs(t, "")
		r.wantError(t, false, PageGone, "two neighbouring pages")
		readOn(t, src, nil).want(t, "a c e f g")
	})
	t.Run("another host", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		r := readOn(t, s.source(t, from(t, "snapshot:http://other.example/snapshot")), nil)
		r.wantError(t, true, "", "the index of the snapshot", "other.example", "allow_hosts")
		s.base = "http://other.example"
		r = readOn(t, s.source(t, fromSnapshot(t), func(cfg *Config) { cfg.URL = "http://feed.example/0" }), nil)
		r.wantError(t, true, "", "other.example", "allow_hosts")
	})
}

func TestSnapshotIsReplaced(t *testing.T) {
	t.Parallel()
	// begin reads the old snapshot until n of its entities are there, and puts
	// another in its place.
	begin := func(t *testing.T, s *site, n int, edits ...func(*Config)) feed.Cursor {
		t.Helper()
		src := s.source(t, append(edits, fromSnapshot(t), batchesOf(1))...)
		var cursor feed.Cursor
		for read := 0; read < n || cursor == nil; {
			b, err := src.Next(t.Context(), cursor)
			if err != nil {
				t.Fatal(err)
			}
			cursor = b.Cursor
			read += len(b.Entities)
		}
		s.publish("h@500")
		s.offer("s2", startAt(500), "c@200", "e@250 g@400")
		return cursor
	}
	t.Run("before anything of it was published", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		cursor := begin(t, s, 0)
		// The feed goes on from the first one's creation, so a is not read: it
		// was deleted, and a consumer that has it gets the delete.
		readOn(t, s.source(t, fromSnapshot(t)), cursor).want(t, "c e f g h")
	})
	t.Run("one that goes on under its own URL", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		s.named = true
		cursor := begin(t, s, 1)
		readOn(t, s.source(t, fromSnapshot(t)), cursor).want(t, "c e f g h")
	})
	t.Run("a URL of its own that holds for a while", func(t *testing.T) {
		t.Parallel()
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
	t.Run("it is read to its end by who has its index", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		src := s.source(t, fromSnapshot(t), batchesOf(1))
		b, err := src.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.offer("s2", startAt(500), "c@200")
		readOn(t, src, b.Cursor).want(t, "a c e f g")
	})
	t.Run("halt", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		cursor := begin(t, s, 1)
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, cursor)
		r.wantIDs(t, "")
		r.wantError(t, true, SnapshotReplaced, "is s2 of 2023-10-05T03:08:20Z", "was s1", "gap is set to")
		s.edit(func() { s.still = "s1" })
		readOn(t, src, cursor).want(t, "c e f g h")
	})
	for name, n := range map[string]int{"while it is read": 1, "when nothing of it was published": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStill()
				s.named = true
				src := s.source(t, fromSnapshot(t), batchesOf(1))
				var cursor feed.Cursor
				for range 1 + n { // its index with the place in the feed, and a
					b, err := src.Next(t.Context(), cursor)
					if err != nil {
						t.Fatal(err)
					}
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
				r.wantError(t, true, SnapshotReplaced, "is s2", "was s1", "gap is set to", "another topic")
			})
		})
	}
	t.Run("a page that has changed", func(t *testing.T) {
		t.Parallel()
		s := newStill()
		s.offer("s1", startAt(290), "a@0 c@200 e@250")
		cursor := begin(t, s, 2)
		s.offer("s1", startAt(290), "a@0 x@200 e@250")
		r := readOn(t, s.source(t, fromSnapshot(t)), cursor)
		r.wantIDs(t, "")
		r.wantError(t, true, SnapshotReplaced, "the first 2 entities of page 1 of 1 of the snapshot s1")
	})
	for name, named := range map[string]bool{"at the same URL": false, "gone from its own URL": true} {
		t.Run("going on with the new one, "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStill()
				s.named = named
				cursor := begin(t, s, 2)
				s.edit(func() { delete(s.stills, "s1") })
				g := gated(s.source(t, fromSnapshot(t), onGap(GapResume)))
				g.IDs.Load("a")
				g.IDs.Load("c")
				r := readOn(t, g, cursor)
				r.wantError(t, false, SnapshotReplaced, "1m0s")
				time.Sleep(gapPatience)
				r = readOn(t, g, cursor)
				// c is left out because the topic has it, e and g because the feed
				// brings them.
				r.want(t, "e f g h")
			})
		})
	}
}

func TestSnapshotAndFeedOverlap(t *testing.T) {
	t.Parallel()
	t.Run("case 140: the second of the creation", func(t *testing.T) {
		t.Parallel()
		// The snapshot has the time 290.7 s. It has b of that second, and not c.
		s := newSite("a@0", "b@290 c@290 d@291")
		s.offer("s1", second(290).Add(700*time.Millisecond).Format(time.RFC3339Nano), "a@0 b@290")
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a b c d")
	})
	t.Run("case 140: entities that bear a time from before the creation", func(t *testing.T) {
		t.Parallel()
		s := newSite("a@0", "b@280 c@280 d@291")
		s.offer("s1", startAt(290), "a@0 b@280")
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a b c d")
	})
	t.Run("case 141: entities that change while the snapshot is made", func(t *testing.T) {
		t.Parallel()
		// b, c and d are versions of one thing. The snapshot has the last of
		// them, which must not be followed by the others.
		s := newSite("a@0", "b@300 c@310 d@320", "e@330")
		s.offer("s1", startAt(290), "d@320", "a@0")
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a b c d e")
	})
	t.Run("more of them than anyone remembers", func(t *testing.T) {
		t.Parallel()
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
	t.Run("a clock that is ahead", func(t *testing.T) {
		t.Parallel()
		s := newSite("a@0", "b@200 c@300 d@400")
		s.offer("s1", startAt(7200), "a@0 c@300")
		dated := httpfault.Edit(func(h http.Header, body []byte) []byte {
			h.Set("Date", second(300).Format(http.TimeFormat))
			return body
		})
		s.Add("GET", "/snapshot", dated)
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a c d")
	})
	t.Run("a feed that starts with the snapshot", func(t *testing.T) {
		t.Parallel()
		s := newSite()
		s.offer("s1", startAt(290), "a@0")
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, nil)
		r.want(t, "a")
		s.publish("b@300")
		r = readOn(t, src, r.cursor)
		r.want(t, "b")
		r.wantViolations(t, NotOldEnough)
	})
	t.Run("a feed that is younger than the clocks may differ", func(t *testing.T) {
		t.Parallel()
		s := newSite("a@250 b@289", "c@300")
		s.offer("s1", startAt(290), "a@250")
		r := readOn(t, s.source(t, fromSnapshot(t)), nil)
		r.want(t, "a b c")
		r.wantViolations(t)
		s = newSite("b@290", "c@300")
		s.offer("s1", startAt(290), "a@100")
		r = readOn(t, s.source(t, fromSnapshot(t)), nil)
		r.want(t, "a b c")
		r.wantViolations(t, NotOldEnough)
	})
	t.Run("a snapshot of nothing yet", func(t *testing.T) {
		t.Parallel()
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
		readOn(t, s.source(t, fromSnapshot(t)), nil).wantViolations(t, NotOldEnough)
	})
	t.Run("a feed that has not got as far as the snapshot", func(t *testing.T) {
		t.Parallel()
		s := newSite("a@0")
		s.offer("s1", startAt(290), "a@0 b@300")
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, nil)
		r.want(t, "a")
		s.write("/0", "b@300 c@301")
		readOn(t, s.source(t), r.cursor).want(t, "b c")
	})
	t.Run("a feed that loses what the snapshot left to it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite("a@0", "b@300", "c@400")
			s.offer("s1", startAt(290), "a@0 b@300")
			src := s.source(t, fromSnapshot(t), batchesOf(1))
			r := readOn(t, src, nil)
			r.want(t, "a b c")
			s.edit(func() { s.remove("/0"); s.remove("/1") })
			for _, cursor := range r.cursors[2:4] { // behind a, and behind the snapshot
				r := readSure(t, s.source(t), cursor)
				r.wantIDs(t, "")
				r.wantError(t, true, NotOldEnough, "had some from before")
			}
		})
	})
	t.Run("a feed that does not have what the snapshot left to it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite("a@0", "x@300 y@300", "z@301")
			s.offer("s1", startAt(290), "a@0 b@300")
			r := readOn(t, s.source(t, fromSnapshot(t)), nil)
			r.wantIDs(t, "a x y")
			r.wantError(t, true, NotInFeed, "b of 2023-10-05T03:05:00Z", "gap is set to")

			src := s.source(t, onGap(GapResume))
			r = readOn(t, src, r.cursor)
			r.wantError(t, false, NotInFeed)
			time.Sleep(gapPatience)
			readOn(t, src, r.cursor).want(t, "z")
		})
	})
	t.Run("a feed that loses some of what the snapshot left to it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite("b@300", "c@310 d@320")
			s.offer("s1", startAt(290), "a@0 c@310 b@300")
			r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
			r.want(t, "a b c d")
			s.edit(func() { s.remove("/0") })
			src := s.source(t, onGap(GapResume))
			lost := readSure(t, src, r.cursors[3])
			lost.wantIDs(t, "")
			lost.wantError(t, false, NotInFeed, "b of 2023-10-05T03:05:00Z")
			time.Sleep(gapPatience)
			readOn(t, src, lost.cursor).want(t, "c d")
		})
	})
	t.Run("going on with a feed that does not reach back so far any more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite("a@0", "b@300", "c@400")
			s.offer("s1", startAt(290), "a@0")
			r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
			s.edit(func() { s.remove("/0"); s.remove("/1") })
			src := s.source(t, onGap(GapRestart))
			readSure(t, src, r.cursors[3]).wantError(t, false, NotOldEnough)
			time.Sleep(gapPatience)
			r = readOn(t, src, r.cursors[3])
			r.want(t, "c")
			r.wantViolations(t, NotOldEnough, NotOldEnough)
		})
	})
	t.Run("a feed that does not have it after its pages were renamed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSite("a@0", "x@300 y@301")
			s.offer("s1", startAt(290), "a@0 b@300")
			r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
			r.wantError(t, true, NotInFeed)
			s.edit(func() {
				s.pages["/new"], s.pages["/0"].next, s.latest = s.pages["/1"], "/new", "/new"
				s.pages["/new"].self = "/new"
				delete(s.pages, "/1")
			})
			for _, cursor := range r.cursors[3:] {
				readSure(t, s.source(t), cursor).wantError(t, true, NotInFeed)
			}
		})
	})
	t.Run("a page of the feed that is renamed meanwhile", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
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
	})
}

func TestSnapshotPositions(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"snapshot:", "snapshot:shop.example.com", "snapshot:ftp://x/", "snapshot:https://me:secret@x/", "snapshot:/x"} {
		if _, err := ParseStart(bad); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "the url of the snapshot") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
	const good = "snapshot:https://shop.example.com/snapshots/latest?a=b"
	start, err := ParseStart(good)
	if err != nil || start.String() != good {
		t.Errorf("got %v, %v", start, err)
	}
	for _, bad := range []string{
		`{"v":2,"search":{}}`, `{"v":1,"search":{},"snapshot":{"index":"x"}}`, `{"v":2,"snapshot":{"index":"x"}}`,
		`{"v":2,"search":{},"snapshot":{}}`, `{"v":2,"search":{},"snapshot":{"index":"x","id":"s"}}`,
		`{"v":2,"search":{"from":1},"snapshot":{"index":"x","id":"s","page":-1}}`, `{"v":2,"search":{},"snapshot":{"index":"x","entity":2}}`,
	} {
		if _, err := Describe(feed.Cursor(bad)); !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}
