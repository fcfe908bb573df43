package datareplication

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// TestHeadIsNotGet has servers whose answers to HEAD would stop the reading, or begin it at a wrong page.
// The page is not at fault.
func TestHeadIsNotGet(t *testing.T) {
	t.Parallel()
	edit := func(change func(h http.Header)) httpfault.Fault {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			maps.Copy(w.Header(), answer.Header())
			change(w.Header())
			w.WriteHeader(answer.Code)
		}
	}
	without := func(name string) httpfault.Fault { return edit(func(h http.Header) { h.Del(name) }) }
	withoutLink := func(rel string) httpfault.Fault {
		return edit(func(h http.Header) {
			h["Link"] = slices.DeleteFunc(h["Link"], func(l string) bool { return strings.HasSuffix(l, "="+rel) })
		})
	}
	noNext, noPrev := withoutLink("next"), withoutLink("prev")
	always := []string{kindHeadDiffers}
	for _, tt := range []struct {
		name       string
		fault      httpfault.Fault
		times      int // of HEAD
		fails      bool
		violations []string
	}{
		{"case 88: 405", httpfault.Status(405), 1, false, []string{kindHeadRefused}},
		{"case 88: 501", httpfault.Status(501), 1, false, []string{kindHeadRefused}},
		{"403", httpfault.Status(403), 3, false, always},
		{"404", httpfault.Status(404), 3, false, always},
		{"404 of a server that lags", httpfault.Status(404), 2, false, nil},
		{"500", httpfault.Status(500), 3, false, always},
		{"204", httpfault.Status(204), 3, false, always},
		{"no link", without("Link"), 1, false, always},
		{"no time", without("Last-Modified"), 1, false, always},
		{"no next link", noNext, 3, false, always},
		{"no next link at a server that lags", noNext, 2, false, nil},
		{"another time", edit(func(h http.Header) { h.Set("Last-Modified", second(9).Format(http.TimeFormat)) }), 4, true, always},
		{"no prev link", noPrev, 1, true, always},
	} {
		parallel.Run(t, tt.name, func(t *testing.T) {
			s := newSite("a@1", "b@2", "c@3", "d@4", "e@5")
			s.pages["/4"].at = 9 // so that the time that HEAD has does not run back
			s.pages["/4"].entities = []string{"e@9"}
			s.Add("HEAD", "", slices.Repeat([]httpfault.Fault{tt.fault}, tt.times)...)
			src := s.source(t)
			r := readOn(t, src, nil)
			if tt.fails {
				r.wantError(t, false, "", "GET http://feed.example/", "the answer to HEAD had another")
				r.wantIDs(t, "")
				r = readOn(t, src, r.cursor)
			}
			r.want(t, "a b c d e")
			r.wantViolations(t, tt.violations...)
			if n := s.Left(); n > 0 {
				t.Errorf("%d answers to HEAD were not requested", n)
			}
		})
	}
	parallel.Run(t, "the page is at fault", func(t *testing.T) {
		s := newSite("a@1", "b@2", "c@3")
		s.pages["/1"].self = ""
		r := readOn(t, s.source(t), nil)
		r.wantError(t, true, "missing_self_link")
		s.wantRequests(t, "GET /latest", "HEAD /1", "GET /1")
	})
}
