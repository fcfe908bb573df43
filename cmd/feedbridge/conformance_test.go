package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
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
