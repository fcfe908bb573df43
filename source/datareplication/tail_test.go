package datareplication

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// manyEntities returns n entities, a second apart: "e1@1 e2@2".
func manyEntities(from, to int) string {
	var all []string
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf("e%d@%d", n, n))
	}
	return strings.Join(all, " ")
}

// A new entity on a long page costs a few KiB. The page is requested whole again after an hour,
// whatever was requested meanwhile.
func TestNewEntityOnALongPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(manyEntities(1, 400))
		s.asSent = true
		s.padding = 1000
		src := s.source(t)
		src.reader.tails.least = leastRange
		r := readOn(t, src, nil)
		r.want(t, strings.ReplaceAll(ids(manyEntities(1, 400)), ",", " "))
		whole := s.sent
		for n := 401; n <= 420; n++ {
			time.Sleep(time.Minute)
			s.write("/0", manyEntities(n, n))
			s.sent = 0
			r = readOn(t, src, r.cursor)
			r.want(t, fmt.Sprintf("e%d", n))
			r.wantViolations(t)
			if s.sent > 4<<10 {
				t.Errorf("a new entity took %d bytes, the page %d", s.sent, whole)
			}
		}
		if len(s.ranged) != 20 {
			t.Errorf("requested the ranges %q", s.ranged)
		}
		s.requests()
		readOn(t, src, r.cursor).want(t, "")
		s.wantRequests(t, "GET /0 if")
		time.Sleep(trustETag - 20*time.Minute + time.Second)
		s.sent = 0
		readOn(t, src, r.cursor).want(t, "")
		if s.wantRequests(t, "GET /0"); s.sent < whole {
			t.Errorf("%d bytes were read of a page of %d", s.sent, whole)
		}
	})
}

// ids returns the IDs of entities.
func ids(entities string) string {
	var all []string
	for _, e := range strings.Fields(entities) {
		id, _ := splitEntity(e)
		all = append(all, id)
	}
	return strings.Join(all, " ")
}

// A restart does not extend the time for which the beginning of a page is trusted: the cursor has
// the time when the whole page was read.
func TestRangeDoesNotExtendTheTrustInAPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1 b@2 c@3")
		s.asSent = true
		src := s.source(t)
		r := readOn(t, src, nil)
		time.Sleep(trustETag / 2)
		s.write("/0", "d@4")
		r = readOn(t, src, r.cursor)
		r.want(t, "d")
		if len(s.ranged) != 1 {
			t.Fatalf("requested the ranges %q", s.ranged)
		}
		time.Sleep(trustETag/2 + time.Second)
		s.requests()
		readOn(t, s.source(t), r.cursor).want(t, "")
		s.wantRequests(t, "GET /0")
	})
}

// Whatever a server answers to a request for a range, the entities are those of the page. An answer
// that is no such range costs one request an hour.
func TestAnswersToARange(t *testing.T) {
	t.Parallel()
	as := func(status int, edit func(h http.Header)) func(http.Header, []byte, int) (int, []byte) {
		return func(h http.Header, whole []byte, from int) (int, []byte) {
			_, body := sendRange(h, whole, from)
			edit(h)
			return status, body
		}
	}
	for name, test := range map[string]struct {
		ranges func(h http.Header, whole []byte, from int) (int, []byte)
		// Of the first poll with a new entity, and of the second.
		first, second []string
	}{
		"honoured":      {sendRange, []string{"GET /0 if"}, []string{"GET /0 if"}},
		"ignored":       {func(h http.Header, whole []byte, from int) (int, []byte) { return 200, nil }, []string{"GET /0 if"}, []string{"GET /0 if"}},
		"another range": {func(h http.Header, whole []byte, from int) (int, []byte) { return sendRange(h, whole, from-1) }, nil, nil},
		"bytes of another range": {func(h http.Header, whole []byte, from int) (int, []byte) {
			status, body := sendRange(h, whole, from)
			copy(body, whole[from-7:])
			return status, body
		}, nil, nil},
		"only a part": {func(h http.Header, whole []byte, from int) (int, []byte) {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+99, len(whole)))
			return 206, whole[from : from+100]
		}, nil, nil},
		"more than the range": {func(h http.Header, whole []byte, from int) (int, []byte) {
			status, _ := sendRange(h, whole, from)
			return status, whole
		}, nil, nil},
		"unknown size":     {as(206, func(h http.Header) { h.Set("Content-Range", strings.Split(h.Get("Content-Range"), "/")[0]+"/*") }), nil, nil},
		"no Content-Range": {as(206, func(h http.Header) { h.Del("Content-Range") }), nil, nil},
		"several ranges": {as(206, func(h http.Header) {
			h.Del("Content-Range")
			h.Set("Content-Type", "multipart/byteranges; boundary=b")
		}), nil, nil},
		"several ranges and a Content-Range": {as(206, func(h http.Header) { h.Set("Content-Type", "multipart/byteranges; boundary=c") }), nil, nil},
		"compressed":                         {as(206, func(h http.Header) { h.Set("Content-Encoding", "gzip") }), nil, nil},
		"no links":                           {as(206, func(h http.Header) { h.Del("Link") }), nil, nil},
		"no Last-Modified":                   {as(206, func(h http.Header) { h.Del("Last-Modified") }), nil, nil},
		"another page":                       {as(206, func(h http.Header) { h.Set("Link", "<http://feed.example/9>; rel=self") }), nil, nil},
		"another delimiter":                  {as(206, func(h http.Header) { h.Set("Content-Type", `multipart/mixed; boundary="c"`) }), nil, nil},
		"416":                                {as(416, func(h http.Header) {}), nil, nil},
		"400":                                {as(400, func(h http.Header) {}), nil, nil},
		"404":                                {as(404, func(h http.Header) {}), nil, nil},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s := newSite("a@1 b@2 c@3")
			s.asSent = true
			s.ranges = test.ranges
			src := s.source(t)
			r := readOn(t, src, nil)
			r.want(t, "a b c")
			if test.first == nil {
				test.first, test.second = []string{"GET /0 if", "GET /0"}, []string{"GET /0 if"}
			}
			s.requests()
			for n, want := range [][]string{test.first, test.second} {
				time.Sleep(time.Minute)
				s.write("/0", fmt.Sprintf("d%d@%d", n, n+4))
				r = readOn(t, src, r.cursor)
				r.want(t, fmt.Sprintf("d%d", n))
				r.wantViolations(t)
				s.wantRequests(t, want...)
			}
			asked := len(s.ranged)
			time.Sleep(trustETag)
			r = readOn(t, src, r.cursor) // reads the whole page
			s.write("/0", "e@9")
			r = readOn(t, src, r.cursor)
			r.want(t, "e")
			if len(s.ranged) != asked+1 {
				t.Errorf("requested the ranges %q", s.ranged)
			}
		})
	}
}

// A page that is compressed on the wire has another ETag than a range of it, which never is. The
// first range after such a page gives the ETag to ask with from then on.
func TestRangesOfACompressedPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(manyEntities(1, 400))
		s.asSent = true
		s.packs = true
		src := s.source(t)
		src.reader.tails.least = leastRange
		r := readOn(t, src, nil)
		r.want(t, ids(manyEntities(1, 400)))
		whole := s.sent
		poll := func(want string, most int, requests ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			s.requests()
			s.sent = 0
			before := r.cursor
			r = readOn(t, src, r.cursor)
			r.want(t, want)
			r.wantViolations(t)
			if s.wantRequests(t, requests...); s.sent > most {
				t.Errorf("%q took %d bytes, the compressed page %d", want, s.sent, whole)
			}
			if want == "" && requests[0] == "GET /0 if" && !bytes.Equal(r.cursor, before) {
				t.Errorf("a poll without anything new has changed the cursor from %s to %s", before, r.cursor)
			}
		}
		poll("", 400, "GET /0 if")
		poll("", 0, "GET /0 if")
		s.write("/0", "e401@401")
		poll("e401", 800, "GET /0 if")
		poll("", 0, "GET /0 if")
		if len(s.ranged) != 2 {
			t.Errorf("got the ranges %q", s.ranged)
		}
		// The beginning of the page is trusted for as long as without ranges.
		time.Sleep(trustETag - 5*time.Minute)
		poll("", 2*whole, "GET /0")
		s.write("/0", "e402@402")
		poll("e402", 800, "GET /0 if")
	})
}

// A server whose ranges have no ETag, or another one each time, is asked for one range an hour.
func TestRangesOfACompressedPageWithoutAUsableETag(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(h http.Header, n int){
		"none":                  func(h http.Header, _ int) { h.Del("ETag") },
		"another one each time": func(h http.Header, n int) { h.Set("ETag", fmt.Sprintf(`"%d"`, n)) },
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s := newSite("a@1 b@2 c@3")
			s.asSent = true
			s.packs = true
			asked := 0
			s.ranges = func(h http.Header, whole []byte, from int) (int, []byte) {
				asked++
				edit(h, asked)
				return sendRange(h, whole, from)
			}
			src := s.source(t)
			r := readOn(t, src, nil)
			for range 5 {
				time.Sleep(time.Minute)
				readOn(t, src, r.cursor).want(t, "")
			}
			s.requests()
			time.Sleep(time.Minute)
			readOn(t, src, r.cursor).want(t, "")
			if s.wantRequests(t, "GET /0 if"); asked > 2 {
				t.Errorf("requested the ranges %q", s.ranged)
			}
			s.write("/0", "d@4")
			readOn(t, src, r.cursor).want(t, "d")
		})
	}
}

// A server that compresses pages and ignores ranges sends its pages compressed, except for one an
// hour: a request for a range asks for bytes that are not.
func TestCompressedPageOfAServerWithoutRanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(manyEntities(1, 400))
		s.asSent = true
		s.packs = true
		s.ranges = func(http.Header, []byte, int) (int, []byte) { return http.StatusOK, nil }
		src := s.source(t)
		src.reader.tails.least = leastRange
		r := readOn(t, src, nil)
		whole := s.sent
		large := 0
		for n := 401; n <= 420; n++ {
			time.Sleep(time.Minute)
			s.write("/0", manyEntities(n, n))
			s.sent = 0
			r = readOn(t, src, r.cursor)
			r.want(t, fmt.Sprintf("e%d", n))
			if s.sent > 2*whole {
				large++
			}
		}
		if large > 1 {
			t.Errorf("%d of 20 pages were not compressed, want at most one", large)
		}
	})
}

// After the contents of a page have changed, its end is not requested alone: the digest in the
// cursor is that of other entities, so the answer would be of no use.
func TestNoRangeOfAPageWhoseContentsHaveChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1 b@2 c@3")
		s.asSent = true
		src := s.source(t)
		r := readOn(t, src, nil)
		s.edit(func() { s.pages["/0"].entities[0] = "x@1" })
		src = s.source(t) // after a restart the whole page is read
		r = readOn(t, src, r.cursor)
		r.want(t, "")
		r.wantViolations(t, kindPageChanged)
		s.write("/0", "d@4")
		s.requests()
		r = readOn(t, src, r.cursor)
		r.want(t, "d")
		s.wantRequests(t, "GET /0 if")
		if len(s.ranged) > 0 {
			t.Errorf("requested the ranges %q", s.ranged)
		}
	})
}

// A range is not requested of pages of which the server offers none.
func TestPagesWithoutRanges(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]func(http.Header){
		"Accept-Ranges: none": func(h http.Header) { h.Set("Accept-Ranges", "none") },
		"without an ETag":     func(h http.Header) { h.Del("ETag") },
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s := newSite("a@1 b@2 c@3")
			s.asSent = true
			s.header = header
			src := s.source(t)
			r := readOn(t, src, nil)
			s.write("/0", "d@4")
			readOn(t, src, r.cursor).want(t, "d")
			if len(s.ranged) > 0 {
				t.Errorf("requested the ranges %q", s.ranged)
			}
		})
	}
}

// What happens to a page whose end is requested is noticed as if the whole page had been requested:
// the same entities, violations and error.
func TestChangedPagesOfARange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*site){
		"nothing but the ETag": func(s *site) { s.header = func(h http.Header) { h.Set("ETag", `"other"`) } },
		"grown":                func(s *site) { s.write("/0", "d@4 e@5 f@6") },
		"grown, with a next page": func(s *site) {
			s.write("/0", "d@4")
			s.publish("e@5")
		},
		"a next page":           func(s *site) { s.publish("e@5") },
		"shrunk":                func(s *site) { s.edit(func() { s.pages["/0"].entities = s.pages["/0"].entities[:2] }) },
		"shrunk to nothing":     func(s *site) { s.edit(func() { s.pages["/0"].entities = nil }) },
		"the last one replaced": func(s *site) { s.edit(func() { s.pages["/0"].entities[2] = "x@3" }) },
		"another time of the last one": func(s *site) {
			s.edit(func() { s.pages["/0"].entities[2] = "c@4" })
			s.write("/0", "d@5")
		},
		"one inserted":             func(s *site) { s.edit(func() { s.pages["/0"].entities = strings.Fields("a@1 x@1 b@2 c@3 d@4") }) },
		"one removed":              func(s *site) { s.edit(func() { s.pages["/0"].entities = strings.Fields("b@2 c@3 d@4") }) },
		"an earlier one replaced":  func(s *site) { s.edit(func() { s.pages["/0"].entities[0] = "x@1" }) },
		"replaced, with other IDs": func(s *site) { s.edit(func() { s.pages["/0"].entities = strings.Fields("k@1 l@2 m@3 n@4") }) },
		"time runs back":           func(s *site) { s.write("/0", "d@2") },
		"gone":                     func(s *site) { s.edit(func() { s.remove("/0") }) },
		"503":                      func(s *site) { s.Add("GET", "/0", httpfault.Status(503)) },
	} {
		parallel.Run(t, name, func(t *testing.T) {
			read := func(least int64) (result string, ranged int) {
				synctest.Test(t, func(t *testing.T) {
					s := newSite("a@1 b@2 c@3")
					s.asSent = true
					src := s.source(t)
					src.reader.tails.least = least
					r := readOn(t, src, nil)
					r.want(t, "a b c")
					change(s)
					r = readSure(t, src, r.cursor)
					result = fmt.Sprintln(r.ids, r.violations, r.err)
					r = readSure(t, src, r.cursor)
					result += fmt.Sprintln(r.ids, r.violations, r.err)
					ranged = len(s.ranged)
				})
				return result, ranged
			}
			want, none := read(1 << 30)
			got, some := read(0)
			if got != want {
				t.Errorf("read  %swant  %s", got, want)
			}
			if none != 0 || some == 0 && name != "503" && name != "gone" {
				t.Errorf("requested %d and %d ranges", none, some)
			}
		})
	}
}

// An entity before the last one that is replaced by another of the same size, in the same answer
// as a new entity, is noticed when the whole page is read, at the latest an hour after the last
// time. Nothing is lost or repeated meanwhile.
func TestChangeBeforeARangeIsReportedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1 b@2 c@3")
		s.asSent = true
		src := s.source(t)
		r := readOn(t, src, nil)
		s.edit(func() { s.pages["/0"].entities[0] = "x@1" })
		s.write("/0", "d@4")
		r = readOn(t, src, r.cursor)
		r.want(t, "d")
		r.wantViolations(t)
		time.Sleep(trustETag)
		s.write("/0", "e@5")
		r = readOn(t, src, r.cursor)
		r.want(t, "e")
		r.wantViolations(t, kindPageChanged)
	})
}

// An error within a range is met after the entities before it, or not at all.
func TestBrokenRange(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]int{"in the first entity": 20, "in the second": 220, "in the third": 390} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s := newSite("a@1 b@2 c@3")
			s.asSent = true
			s.ranges = func(h http.Header, whole []byte, from int) (int, []byte) {
				status, body := sendRange(h, whole, from)
				body = bytes.Clone(body)
				for i := cut; i < len(body); i++ {
					body[i] = '.'
				}
				return status, body
			}
			src := s.source(t)
			r := readOn(t, src, nil)
			s.write("/0", "d@4 e@5")
			got := readOn(t, src, r.cursor)
			got.want(t, "d e")
			if len(s.ranged) != 1 {
				t.Errorf("requested the ranges %q", s.ranged)
			}
		})
	}
}
