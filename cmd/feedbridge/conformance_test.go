package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// endlessFeed is a datareplication feed whose prev links never end. Page n is n steps of time older than the newest.
func endlessFeed(step time.Duration) http.HandlerFunc {
	newest := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	return func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		at := newest.Add(-step * time.Duration(n)).Format(http.TimeFormat)
		h := w.Header()
		h.Set("Content-Type", "multipart/mixed; boundary=b")
		h.Set("Last-Modified", at)
		h.Add("Link", fmt.Sprintf("</%d>; rel=self", n))
		h.Add("Link", fmt.Sprintf("</%d>; rel=prev", n+1))
		if n > 0 {
			h.Add("Link", fmt.Sprintf("</%d>; rel=next", n-1))
		}
		fmt.Fprintf(w, "--b\r\nContent-Type: text/plain\r\nContent-ID: %d\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n\r\nx\r\n--b--\r\n", n, at)
	}
}

func TestConformanceOfFeedsWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step          time.Duration
		code          int
		sampled, text string
	}{
		"each page is older": {time.Minute, exitDone, "about the newest 20 pages", ""},
		"all of one time":    {0, exitFailed, "", "raise --pages, or check that the prev links end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(endlessFeed(c.step))
			t.Cleanup(server.Close)
			var out, errs bytes.Buffer
			code := runProgram([]string{"conformance", "--json", "--pages", "20", server.URL + "/"}, nil, nil, &out, &errs)
			var r conformance.Report
			must.Succeed(t, json.Unmarshal(out.Bytes(), &r))
			if code != c.code || !strings.HasPrefix(r.Sampled, c.sampled) || !strings.Contains(errs.String(), c.text) {
				t.Errorf("exit code %d, sampled %q, errors %s", code, r.Sampled, &errs)
			}
			requests := 0
			for _, n := range r.Requests {
				requests += n
			}
			if requests > 250 || r.Pages > 40 {
				t.Errorf("%d pages with %d requests", r.Pages, requests)
			}
		})
	}
}

// TestWatchedFeedThatChangesOnce checks that a change is one violation, however often the feed is read after it,
// and that all requests of the command are counted.
func TestWatchedFeedThatChangesOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	changed, requests := false, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests[r.Method]++
		h, body := w.Header(), "x"
		h.Set("Content-Type", "multipart/mixed; boundary=b")
		h.Set("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
		h.Set("ETag", `"a"`)
		h.Add("Link", "<"+r.URL.Path+">; rel=self")
		if r.URL.Path == "/1" {
			h.Add("Link", "</>; rel=next")
			if changed {
				body = "y"
			}
			changed = changed || r.Header.Get("If-None-Match") != "" // by the check of the page, after it was read
		} else {
			h.Add("Link", "</1>; rel=prev")
		}
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintf(w, "--b\r\nContent-Type: text/plain\r\nContent-ID: %s\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n\r\n%s\r\n--b--\r\n", r.URL.Path, h.Get("Last-Modified"), body)
	}))
	t.Cleanup(server.Close)
	var out, errs bytes.Buffer
	code := runProgram([]string{"conformance", "--json", "--watch", "40ms", server.URL + "/"}, nil, nil, &out, &errs)
	var r conformance.Report
	must.Succeed(t, json.Unmarshal(out.Bytes(), &r))
	i := slices.IndexFunc(r.Requirements, func(res conformance.Result) bool { return res.ID == "datareplication/145" })
	if res := r.Requirements[i]; code != exitFailed || res.Count != 1 || len(res.Evidence) != 1 {
		t.Errorf("exit code %d, %d violations: %v\n%s", code, res.Count, res.Evidence, &errs)
	}
	if !maps.Equal(r.Requests, requests) {
		t.Errorf("the report has %v requests, and the server got %v", r.Requests, requests)
	}
}

// TestBrokenFirstPage checks that a fault before the first entity is reported against the requirements of the format
// that was detected.
func TestBrokenFirstPage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contentType, doc, broken string
	}{
		"a page without Content-ID": {
			"multipart/mixed; boundary=b",
			"--b\r\nContent-Type: text/plain\r\nLast-Modified: Wed, 01 Jan 2020 00:00:00 GMT\r\nOperation-Type: http-equiv=PUT\r\n\r\nx\r\n--b--\r\n",
			"datareplication/55",
		},
		"an index without pages": {"application/json", `{"id":"1","createdAt":"2020-01-01T00:00:00.000Z"}`, "datareplication/130"},
		"an index without id":    {"application/json", `{"createdAt":"2020-01-01T00:00:00.000Z","pages":["/p"]}`, "datareplication/130"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				w.Header().Set("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
				w.Header().Set("Link", "<"+r.URL.Path+">; rel=self")
				fmt.Fprint(w, c.doc)
			}))
			t.Cleanup(server.Close)
			var out, errs bytes.Buffer
			code := runProgram([]string{"conformance", "--json", server.URL + "/"}, nil, nil, &out, &errs)
			var r conformance.Report
			must.Succeed(t, json.Unmarshal(out.Bytes(), &r))
			i := slices.IndexFunc(r.Requirements, func(res conformance.Result) bool { return res.ID == c.broken })
			if i < 0 || r.Requirements[i].Outcome != conformance.Failed || code != exitFailed {
				t.Errorf("exit code %d, format %s, %d requirements\n%s", code, r.Format, len(r.Requirements), &errs)
			}
		})
	}
}

// TestWatchedFeedThatGoesAway checks that a check fails if the feed cannot be read again.
func TestWatchedFeedThatGoesAway(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case gone.Load():
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		case r.Header.Get("If-None-Match") != "": // by the check of the page, after it was read
			gone.Store(true)
		}
		w.Header().Set("Content-Type", "application/feed+json")
		w.Header().Set("ETag", `"a"`)
		fmt.Fprint(w, `{"version":"https://jsonfeed.org/version/1.1","title":"t","items":[{"id":"1","content_text":"x"}]}`)
	}))
	t.Cleanup(server.Close)
	var out, errs bytes.Buffer
	code := runProgram([]string{"conformance", "--watch", "40ms", server.URL + "/"}, nil, nil, &out, &errs)
	if code != exitFailed || !strings.Contains(errs.String(), "could not be read again") {
		t.Errorf("exit code %d\n%s\n%s", code, &out, &errs)
	}
}
