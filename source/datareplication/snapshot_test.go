package datareplication

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

const snapshotIndex = "http://feed.example/snapshot"

func fromSnapshot(t tester) func(*options) {
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
	parallel.Run(t, "case 129: the index, its pages, and the feed from its creation on", func(t *testing.T) {
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
	parallel.Run(t, "it goes on from every cursor", func(t *testing.T) {
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
	parallel.Run(t, "a position that a person names", func(t *testing.T) {
		cursor, err := ParseCursor("snapshot:" + snapshotIndex)
		must.Succeed(t, err)
		if got := describeCursor(t, cursor); got != (CursorInfo{Snapshot: "the snapshot " + snapshotIndex}) {
			t.Errorf("got %+v", got)
		}
		s := newStill()
		r := readOn(t, s.source(t), cursor)
		r.want(t, "a c e f g")
		if got, want := describeCursor(t, r.cursors[2]).Snapshot, "page 2 of 2 of the snapshot s1 of 2023-10-05T03:04:50Z"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	parallel.Run(t, "another start in the configuration changes nothing any more", func(t *testing.T) {
		s := newStill()
		r := readOn(t, s.source(t, fromSnapshot(t), batchesOf(1)), nil)
		for i, cursor := range r.cursors[1:] {
			readOn(t, s.source(t), cursor).want(t, strings.Join(r.ids[r.counts[i+1]:], " "))
		}
	})
	parallel.Run(t, "case 131: forms of createdAt", func(t *testing.T) {
		for _, created := range []string{"2023-10-05T03:04:50Z", "2023-10-05T03:04:50.999Z", "2023-10-05T05:04:50+02:00", "2023-10-05T03:04:50.123456789Z"} {
			s := newStill()
			s.stills["s1"].created = created
			readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "a c e f g")
		}
	})
	parallel.Run(t, "case 132: an empty snapshot", func(t *testing.T) {
		s := newStill()
		s.offer("s1", startAt(290))
		readOn(t, s.source(t, fromSnapshot(t)), nil).want(t, "e f g")
	})
	// They are read, and it is counted. There is no mode that refuses them: their meaning
	// is clear, and an alert on violations can report them.
	for name, relative := range map[string]string{"case 133: relative URLs of pages": "s1/", "case 133: URLs without a host": "/snapshot/s1/", "case 133: URLs without a scheme": "//feed.example/snapshot/s1/"} {
		parallel.Run(t, name, func(t *testing.T) {
			s := newStill()
			s.named = true // they are relative to where the index was found
			s.Add("GET", "/snapshot/s1", httpfault.Edit(func(_ http.Header, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte("http://feed.example/snapshot/s1/"), []byte(relative))
			}))
			r := readOn(t, s.source(t, fromSnapshot(t)), nil)
			r.want(t, "a c e f g")
			r.wantViolations(t, kindRelativePage) // once, however many there are
		})
	}
	// Its order is that of the index, as with one request at a time: more would need a
	// place on each of several pages, and let versions of a thing change their order.
	parallel.Run(t, "case 134: all entities of all pages, in the order of the index, with every header", func(t *testing.T) {
		s := newStill()
		s.offer("s1", startAt(290), "a@0 c@200", "k@50 l@10", "m@20")
		for k := range 3 {
			s.Add("GET", fmt.Sprintf("/snapshot/s1/%d", k), httpfault.Edit(func(_ http.Header, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte("Content-ID"), []byte("x-More: 1\r\nX-More: 2\r\nContent-ID"))
			}))
		}
		src := s.source(t, fromSnapshot(t), ahead(0)) // the order of the requests is compared
		var got, want []feed.Entity
		var cursor feed.Cursor
		for len(got) < 5 {
			b, err := src.Next(t.Context(), cursor, feed.Limits{})
			must.Succeed(t, err)
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
		must.Match(t, "", want, got)
		s.wantRequests(t, "GET /snapshot", "HEAD /latest", "HEAD /2", "HEAD /1", "GET /snapshot/s1/0", "GET /snapshot/s1/1", "GET /snapshot/s1/2")
	})
	// The pages after it are not read meanwhile: they would come before it in the topic,
	// and a position in the snapshot would be one on each of its pages. Reading continues
	// when the page is there.
	parallel.RunVirtual(t, "case 135: a page that is missing", func(t *testing.T) {
		for _, status := range []int{404, 410} {
			s := newStill()
			s.offer("s1", startAt(290), "a@0", "c@200", "k@50")
			s.Add("GET", "/snapshot/s1/1", slices.Repeat([]httpfault.Fault{httpfault.Status(status)}, confirmLooks+1)...)
			src := s.source(t, fromSnapshot(t), ahead(0))
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
	parallel.Run(t, "case 136: what entities of feeds have and those of snapshots need not", func(t *testing.T) {
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
			b, err := s.source(t, fromSnapshot(t)).Next(t.Context(), r.cursors[2], feed.Limits{})
			if err != nil || !b.Entities[0].Modified.Equal(second(290)) || b.Entities[0].Made != "Last-Modified" {
				t.Errorf("got %v, %v: it has the time of the snapshot", b, err)
			}
		}
	})
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
			parallel.Run(t, name+" at "+path, func(t *testing.T) {
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
	parallel.Run(t, "pages of the feed vanish while the place is looked for", func(t *testing.T) {
		s := newStill()
		s.Add("", "/2", httpfault.Status(404), httpfault.Status(404))
		s.Add("", "/3", httpfault.Status(404), httpfault.Status(404))
		src := s.source(t, fromSnapshot(t))
		r := readOn(t, src, nil)
		r.wantIDs(t, "")
		r.wantError(t, false, kindPageGone, "two neighbouring pages")
		readOn(t, src, nil).want(t, "a c e f g")
	})
	parallel.Run(t, "another host", func(t *testing.T) {
		s := newStill()
		r := readOn(t, s.source(t, from(t, "snapshot:http://other.example/snapshot")), nil)
		r.wantError(t, true, "", "the index of the snapshot", "other.example", "allow_hosts")
		s.base = "http://other.example"
		r = readOn(t, s.source(t, fromSnapshot(t), func(cfg *options) { cfg.URL = "http://feed.example/0" }), nil)
		r.wantError(t, true, "", "other.example", "allow_hosts")
	})
}

func TestSnapshotPositions(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"snapshot:", "snapshot:shop.example.com", "snapshot:ftp://x/", "snapshot:https://me:secret@x/", "snapshot:/x"} {
		if _, err := source.ParseStart(bad); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "the url of the snapshot") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
	const good = "snapshot:https://shop.example.com/snapshots/latest?a=b"
	start, err := source.ParseStart(good)
	if err != nil || start.String() != good {
		t.Errorf("got %v, %v", start, err)
	}
	for _, bad := range []string{
		`{"v":2,"search":{}}`, `{"v":1,"snapshot":{"index":"x"}}`,
		`{"v":1,"search":{},"snapshot":{}}`, `{"v":1,"search":{},"snapshot":{"index":"x","id":"s"}}`,
		`{"v":1,"search":{"from":1},"snapshot":{"index":"x","id":"s","page":-1}}`, `{"v":1,"search":{},"snapshot":{"index":"x","entity":2}}`,
	} {
		if _, err := Describe(feed.Cursor(bad)); !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}
