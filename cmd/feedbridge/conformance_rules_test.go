package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// producer is a feed and what a check of it reports.
type producer struct {
	media   string            // of all documents; the rest of documents are lines of their header
	pages   map[string]string // by path; the feed is at /. A number is a status without a document.
	id      string            // of a requirement
	outcome conformance.Outcome
	text    string // of its evidence or reason
	code    int    // the exit code
	says    string // on standard error
}

func (p producer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, ok := p.pages[r.URL.RequestURI()]
	if status := 404; !ok || len(page) == 3 {
		_, _ = fmt.Sscan(page, &status)
		http.Error(w, "no", status)
		return
	}
	w.Header().Set("Content-Type", p.media)
	w.Header().Set("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
	w.Header().Set("Link", fmt.Sprintf("<%s>; rel=self", r.URL.Path))
	if strings.HasPrefix(p.media, "multipart/") {
		page = strings.ReplaceAll(page, "\n", "\r\n")
	}
	fmt.Fprint(w, page)
}

// testProducers checks the producers, with flags.
func testProducers(t *testing.T, producers map[string]producer, flags ...string) {
	t.Helper()
	t.Parallel()
	for name, p := range producers {
		parallel.Run(t, name, func(t *testing.T) {
			server := httptest.NewServer(p)
			t.Cleanup(server.Close)
			var out, errs bytes.Buffer
			code := runProgram(append([]string{"conformance", "--json", server.URL + "/"}, flags...), nil, nil, &out, &errs)
			var r conformance.Report
			must.Succeed(t, json.Unmarshal(out.Bytes(), &r))
			for _, res := range r.Requirements {
				if got := fmt.Sprint(res.Evidence, res.Reason); res.ID == p.id && (res.Outcome != p.outcome || !strings.Contains(got, p.text)) {
					t.Errorf("%s %s: %s", res.ID, res.Outcome, got)
				}
			}
			if found := strings.Contains(out.String(), `"`+p.id+`"`); !found || code != p.code || r.Complete != (p.says == "") || !strings.Contains(errs.String(), p.says) || strings.Contains(errs.String(), "ERROR") || len(r.Gaps) > 0 && r.Complete {
				t.Errorf("exit code %d, complete %t, requirement %t, %s", code, r.Complete, found, &errs)
			}
		})
	}
}

// part is an entity of a page of datareplication.
const part = "--b\nContent-Type: text/plain\nContent-ID: 1\nLast-Modified: Wed, 01 Jan 2020 00:00:00 GMT\nOperation-Type: http-equiv=PUT\n\nx\n"

func TestConformanceOfPages(t *testing.T) {
	const media = "multipart/mixed; boundary=b"
	testProducers(t, map[string]producer{
		"case 151: no closing delimiter": {media, map[string]string{"/": part}, "datareplication/151", conformance.Failed, "without --b--", exitFailed, "b"},
		"a closing delimiter":            {media, map[string]string{"/": part + "--b--\n"}, "datareplication/151", conformance.Passed, "", exitDone, ""},
		"no entity has a Content-Length": {media, map[string]string{"/": part + "--b--\n"}, "datareplication/65", conformance.NotTested, "nothing that the rule is about", exitDone, ""},
		"case 144: a boundary in a body": {media, map[string]string{"/": part + "--b\ny\n--b--\n"}, "datareplication/144", conformance.NotTested, "None is possible", exitFailed, "/"},
	})
}

// TestConformanceOfChangingPage checks that a page which changes with each request is reported as such, and not as a
// page with a next link that has changed.
func TestConformanceOfChangingPage(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "multipart/mixed; boundary=b")
		w.Header().Set("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n.Add(1)))
		w.Header().Set("Link", "</>; rel=self")
		fmt.Fprint(w, strings.ReplaceAll(strings.Replace(part, "x", fmt.Sprint(n.Load()), 1)+"--b--\n", "\n", "\r\n"))
	}))
	t.Cleanup(server.Close)
	var out, errs bytes.Buffer
	code := runProgram([]string{"conformance", "--json", server.URL + "/"}, nil, nil, &out, &errs)
	var r conformance.Report
	must.Succeed(t, json.Unmarshal(out.Bytes(), &r))
	var failed []string
	for _, res := range r.Requirements {
		if res.Outcome == conformance.Failed {
			failed = append(failed, res.ID)
		}
	}
	if code != exitFailed || !slices.Equal(failed, []string{"datareplication/146"}) || !strings.Contains(fmt.Sprint(r.Notes), "change with each request") {
		t.Errorf("exit code %d, failed %v, notes %q\n%s", code, failed, r.Notes, &errs)
	}
	if r.Checked.IsZero() || r.Version != programVersion() {
		t.Errorf("checked %v by %q", r.Checked, r.Version)
	}
}
