package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// The key of a shared cache may lack the Host header, so nothing that it may store depends on it, and
// no ETag does, because a cache that revalidates keeps the header fields that it has.
func TestSharedCachesDoNotSeeTheHost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		format           Format
		publicURL, reach string
	}{
		{DataReplication, "", "private"},
		{DataReplication, "https://shop.example/f", "public"},
		{Atom, "", "public"},
		{Atom, "https://shop.example/f", "public"},
		{RSS, "", "public"},
		{RSS, "https://shop.example/f", "public"},
	} {
		parallel.Run(t, string(test.format)+" "+test.publicURL, func(t *testing.T) {
			topic := numberedTopic(7)
			s := serveTopic(t, topic, as(test.format), func(c *Config) { c.PublicURL = test.publicURL })
			paths := []string{"/latest", "/pages/e0-3-0", "/pages/e0-3-1", "/pages/e0-3-7", "/pages/e9-3-0", "/nothing"}
			if test.format == DataReplication {
				s = serveTopic(t, topic, withSnapshots(), func(c *Config) { c.PublicURL = test.publicURL })
				must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
				index := "/snapshots/" + s.snapshots.Newest().ID
				paths = append(paths, "/snapshots/latest", index, index+"/0", "/snapshots/nothing")
			}
			for _, path := range paths {
				for _, accept := range []string{"", browser} {
					one := s.get(t, "http://feed.example/feeds/orders"+path, "Accept", accept)
					other := s.get(t, "http://stranger.example/feeds/orders"+path, "Accept", accept)
					control := one.header.Get("Cache-Control")
					reach, tags := test.reach, one.header.Get("ETag") == other.header.Get("ETag")
					if accept == browser && test.publicURL == "" {
						reach, tags = "private", one.body != other.body == (one.header.Get("ETag") != other.header.Get("ETag"))
					}
					if one.status < 400 && !strings.HasPrefix(control, reach+", ") {
						t.Errorf("%s %s is %s", accept, path, control)
					}
					if !strings.HasPrefix(control, "private") && fmt.Sprint(one) != fmt.Sprint(other) || !tags {
						t.Errorf("%s %s: got %v, and for another host %v", accept, path, one, other)
					}
				}
			}
		})
	}
}

// pathCache is a shared cache whose key is the path.
func pathCache(next http.Handler) http.Handler {
	var stored sync.Map
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hit, ok := stored.Load(r.Method + r.URL.Path)
		if !ok {
			got := httptest.NewRecorder()
			next.ServeHTTP(got, r)
			hit = got
			if control := got.Header().Get("Cache-Control"); got.Code == http.StatusOK && strings.Contains(control, "max-age") && !strings.Contains(control, "private") {
				stored.Store(r.Method+r.URL.Path, hit)
			}
		}
		got := hit.(*httptest.ResponseRecorder)
		for name, values := range got.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	})
}

// readAll returns the entities that our own source reads.
func (s *site) readAll(t *testing.T, format Format) []feed.Entity {
	t.Helper()
	if format == DataReplication {
		c := s.crawl(t)
		c.all(t)
		return c.got
	}
	f := s.follow(t)
	defer f.client.CloseIdle()
	f.all(t)
	return f.got
}

// Requests with a foreign Host do not lead other clients of a cache to a stranger.
func TestForeignHostBehindASharedCache(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{DataReplication, Atom, RSS} {
		parallel.Run(t, string(format), func(t *testing.T) {
			topic, site := newTopic(), newSite(t)
			for i := range 10 {
				topic.add(messageOf(fmt.Sprintf("urn:x:%d", i), feed.Put, later(i), "x"))
			}
			site.feed.Store(serveTopic(t, topic, as(format)).Feed)
			site.Config.Handler = pathCache(site.Config.Handler)
			for _, method := range []string{"GET", "HEAD"} {
				for _, path := range []string{"/pages/e0-3-0", "/pages/e0-3-1", "/latest"} {
					r := httptest.NewRequest(method, "http://stranger.example/feeds/orders"+path, nil)
					site.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
				}
			}
			if n := len(site.readAll(t, format)); n != 10 {
				t.Errorf("got %d of 10 entities", n)
			}
		})
	}
}

// A reader that is half-way through documents with absolute links continues in those with relative ones, and
// the other way round.
func TestReadersContinueWhenLinksBecomeRelative(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{Atom, RSS} {
		for swapped := range 5 {
			topic, site := newTopic(), newSite(t)
			feeds := []*Feed{serveTopic(t, topic, as(format), func(c *Config) { c.PublicURL = site.URL + "/feeds/orders" }).Feed, serveTopic(t, topic, as(format)).Feed}
			site.feed.Store(feeds[swapped%2])
			f := site.follow(t)
			defer f.client.CloseIdle()
			add := func(n int) {
				for range n {
					i := int(topic.span.End)
					topic.add(messageOf(fmt.Sprintf("urn:x:%d", i), feed.Put, later(i), "x"))
				}
			}
			add(13)
			f.batch = feed.Limits{Entities: 1}
			for range swapped {
				f.step(t)
			}
			site.feed.Store(feeds[1-swapped%2])
			f.all(t)
			add(13)
			f.all(t)
			for i, e := range f.got {
				if want := fmt.Sprintf("urn:x:%d", i); e.ID != want && !strings.HasPrefix(e.ID, want+"#") {
					t.Errorf("%s, swapped after %d batches: entity %d is %s", format, swapped, i, e.ID)
				}
			}
			if len(f.got) != 26 {
				t.Errorf("%s, swapped after %d batches: got %d of 26 entities", format, swapped, len(f.got))
			}
		}
	}
}
