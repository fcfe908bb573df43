package datareplication

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// A feed of one page is started with one request. The next poll is as cheap as after any other
// read: the validators of that answer are kept, in the cursor too.
func TestFirstStartRequestsAPageOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]string{
		"beginning": "beginning", "now": "now", "a time": startAt(2), "an ID": startBehind("a", 1), "a time after the end": startAt(9),
	} {
		for validator, test := range map[string]struct {
			noETag bool
			poll   string
		}{
			"with an ETag": {false, "GET /0 if"}, "by time and length": {true, "HEAD /0"},
		} {
			parallel.RunVirtual(t, name+" "+validator, func(t *testing.T) {
				s := newSite("a@1 b@2")
				s.noETag = test.noETag
				want := map[string]string{"beginning": "a b", "a time": "b", "an ID": "b"}[name]
				src := s.source(t, from(t, start))
				r := readOn(t, src, nil)
				r.want(t, want)
				s.wantRequests(t, "GET /latest")
				time.Sleep(time.Minute)
				readOn(t, src, r.cursor).want(t, "")
				s.wantRequests(t, test.poll)
				if !test.noETag {
					readOn(t, s.source(t, from(t, start)), r.cursor).want(t, "")
					s.wantRequests(t, test.poll)
				}
				s.write("/0", "c@10")
				r = readOn(t, src, r.cursor)
				r.want(t, "c")
				s.publish("d@11")
				readOn(t, src, r.cursor).want(t, "d")
			})
		}
	}
}

// As long as a feed is empty, a poll is one request, and so is the one that finds its first page.
func TestFirstPageOfAnEmptyFeedIsRequestedOnce(t *testing.T) {
	t.Parallel()
	s := newSite()
	src := s.source(t)
	readOn(t, src, nil).want(t, "")
	s.wantRequests(t, "GET /latest")
	s.publish("a@1 b@2")
	readOn(t, src, nil).want(t, "a b")
	s.wantRequests(t, "GET /latest")
}

// The page at the entry point may have a self link that must not be requested. Then nothing of it
// is published: the next poll would be refused, and the cursor would have that link.
func TestSelfLinkOfTheEntryPointIsChecked(t *testing.T) {
	t.Parallel()
	s := newSite("a@1")
	s.pages["/0"].self = "http://other.example/0"
	r := readOn(t, s.source(t), nil)
	r.wantIDs(t, "")
	r.wantError(t, true, "", "other.example", "allow_hosts")
}

// If reading cannot begin, the body of the entry point keeps no connection.
func TestEntryPointIsClosedAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1", "b@2")
		s.padding = 1 << 20
		s.pages["/1"].prev = "/1"
		answered := false
		s.Add("GET", "/latest", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(w, r)
			answered = true
		})
		src := s.source(t)
		readOn(t, src, nil).wantError(t, true, kindLoop)
		synctest.Wait()
		if !answered {
			t.Error("the server still sends the page")
		}
	})
}

// An entry point that needs seconds to answer ends the call of Next. If the search goes on at another
// page, the answer keeps no connection.
func TestSlowEntryPointIsClosedAfterTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1", "b@2")
		s.padding = 1 << 20
		answered := false
		s.Add("GET", "/latest", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			time.Sleep(2 * maxHeadTime)
			next.ServeHTTP(w, r)
			answered = true
		})
		src := s.source(t)
		b, err := src.Next(t.Context(), nil, feed.Limits{})
		if err != nil || !b.More {
			t.Fatalf("error %v, more %v", err, b.More)
		}
		synctest.Wait()
		if !answered {
			t.Error("the server still sends the page")
		}
	})
}
