package conformance

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// probeSite probes pages of a site, and returns the results.
func probeSite(t *testing.T, r *Report, site http.HandlerFunc, pages ...string) (*Report, Checks) {
	t.Helper()
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	cfg := source.Defaults()
	cfg.URL = server.URL + "/feed"
	documents := NewDocuments()
	reader := http.Client{Transport: documents.Wrap(http.DefaultTransport)}
	for _, page := range append([]string{"/feed"}, pages...) { // the crawl
		res, err := reader.Get(server.URL + page)
		must.Succeed(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		must.Succeed(t, errors.Join(err, res.Body.Close()))
	}
	client, err := source.NewClient(cfg, source.Options{})
	must.Succeed(t, err)
	t.Cleanup(client.CloseIdle)
	var read Pages
	for _, page := range pages {
		read.Add(&feed.Entity{ID: page, Page: server.URL + page}, r.Format)
		r.AddEntity(&feed.Entity{ID: page, Page: server.URL + page})
	}
	checks := documents.Results(r)
	p := Prober{Client: client, URL: cfg.URL, Documents: documents}
	p.Check(t.Context(), r, &read, checks)
	r.Complete = true
	r.Evaluate(checks)
	return r, checks
}

// of returns the result for a requirement.
func (r *Report) of(t *testing.T, id string) Result {
	t.Helper()
	for _, res := range r.Requirements {
		if res.ID == id {
			return res
		}
	}
	t.Fatalf("there is no requirement %s for %s", id, r.Format)
	return Result{}
}

// want checks the outcome of a requirement, and that its evidence or reason has a text.
func (r *Report) want(t *testing.T, id string, outcome Outcome, text string) {
	t.Helper()
	res := r.of(t, id)
	if got := fmt.Sprint(res.Evidence, res.Reason); res.Outcome != outcome || !strings.Contains(got, text) {
		t.Errorf("%s %s: %s, want %s, %s", id, res.Outcome, got, outcome, text)
	}
}

// page writes a page with the header fields.
func page(w http.ResponseWriter, r *http.Request, fields ...string) {
	w.Header().Set("Content-Type", "multipart/mixed; boundary=x")
	for i := 0; i < len(fields); i += 2 {
		w.Header().Set(fields[i], fields[i+1])
	}
	if tag := w.Header().Get("ETag"); tag != "" && r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
	}
}

const old = "Wed, 01 Jan 2020 00:00:00 GMT"

func TestProbes(t *testing.T) {
	for name, c := range map[string]struct {
		site    http.HandlerFunc
		id      string
		outcome Outcome
		text    string
	}{
		"a good page": {func(w http.ResponseWriter, r *http.Request) {
			page(w, r, "ETag", `"a"`, "Last-Modified", old)
		}, "datareplication/147", Passed, ""},
		"HEAD has another header": {func(w http.ResponseWriter, r *http.Request) {
			page(w, r, "Link", "<"+r.Method+">; rel=self")
		}, "datareplication/88", Failed, "HEAD has Link"},
		"HEAD is refused": {func(w http.ResponseWriter, r *http.Request) {
			if page(w, r); r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
			}
		}, "datareplication/88", Failed, "405"},
		"a boundary of its own each time": {func(w http.ResponseWriter, r *http.Request) {
			page(w, r, "Content-Type", "multipart/mixed; boundary="+r.Method)
		}, "datareplication/88", Passed, ""},
		"a page that changes": {func() http.HandlerFunc {
			n := 0
			return func(w http.ResponseWriter, r *http.Request) {
				n++
				page(w, r, "ETag", fmt.Sprintf(`"%d"`, n))
			}
		}(), "datareplication/88", NotTested, "change with each request"},
		"validators that change": {func() http.HandlerFunc {
			n := 0
			return func(w http.ResponseWriter, r *http.Request) {
				n++
				page(w, r, "ETag", fmt.Sprintf(`"%d"`, n))
			}
		}(), "datareplication/147", NotTested, "validators change"},
		"case 147: 304 is never answered": {func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("If-None-Match")
			page(w, r, "ETag", `"a"`)
		}, "datareplication/147", Failed, "answered with 200"},
		"case 148: no ETag": {func(w http.ResponseWriter, r *http.Request) {
			page(w, r, "Last-Modified", old)
		}, "datareplication/148", Failed, "answered with 200"},
		"a date that is honoured": {func(w http.ResponseWriter, r *http.Request) {
			if page(w, r, "Last-Modified", old); r.Header.Get("If-Modified-Since") == old {
				w.WriteHeader(http.StatusNotModified)
			}
		}, "datareplication/148", Passed, ""},
		"case 143: a page of the future": {func(w http.ResponseWriter, r *http.Request) {
			page(w, r, "Last-Modified", "Wed, 01 Jan 2020 00:00:01 GMT", "Date", old)
		}, "datareplication/143", Failed, "00:00:01"},
		"case 142: a page that forbids caching": {func(w http.ResponseWriter, r *http.Request) {
			page(w, r, "Cache-Control", "private, no-store")
		}, "datareplication/142", Failed, "no-store"},
		"case 142: a page that can be cached": {func(w http.ResponseWriter, r *http.Request) {
			page(w, r, "Cache-Control", "private, max-age=60")
		}, "datareplication/142", Passed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := probeSite(t, NewReport("", "datareplication"), c.site, "/1", "/2")
			r.want(t, c.id, c.outcome, c.text)
		})
	}
}

// crawlOf returns the pages of a crawl: each is its URL and the bodies of its entities.
func crawlOf(p *Pages, format string, pages ...[]string) *Pages {
	for _, page := range pages {
		for i, body := range page[1:] {
			p.Add(&feed.Entity{ID: fmt.Sprint(page[0], i), Page: page[0], Body: []byte(body)}, format)
		}
	}
	return p
}

func TestPagesAreCompared(t *testing.T) {
	archived, events := &Report{Format: "atom", Dialect: syndication.Archived}, &Report{Format: "http-feeds"}
	pages, sampled := &Report{Format: "datareplication"}, &Report{Format: "atom", Dialect: syndication.Archived, Sampled: "the newest"}
	paged, items := &Report{Format: "atom", Dialect: syndication.Paged}, &Report{Format: "jsonfeed", Dialect: syndication.Window}
	sample := &Report{Format: "http-feeds", Sampled: "the oldest"}
	for name, c := range map[string]struct {
		report        *Report
		first, second [][]string
		check, text   string
		changed       bool
	}{
		"nothing changes":                     {pages, [][]string{{"1", "a"}, {"2", "b"}}, [][]string{{"1", "a"}, {"2", "b"}}, "", "", false},
		"the newest page grows":               {pages, [][]string{{"1", "a"}, {"2", "b"}}, [][]string{{"1", "a"}, {"2", "b", "c"}, {"3", "d"}}, "", "", true},
		"case 145: an entity changes":         {pages, [][]string{{"1", "a"}, {"2", "b"}}, [][]string{{"1", "x"}, {"2", "b"}}, checkClosed, "not the same", true},
		"an entity comes late":                {pages, [][]string{{"1", "a"}, {"2", "b"}}, [][]string{{"1", "a", "x"}, {"2", "b"}}, checkClosed, "had 1 entities and has 2", true},
		"case 146: an entity of the newest":   {pages, [][]string{{"1", "a"}, {"2", "b", "c"}}, [][]string{{"1", "a"}, {"2", "b", "x"}}, checkOpen, "some have changed", true},
		"an entity of the newest less":        {pages, [][]string{{"1", "a"}, {"2", "b", "c"}}, [][]string{{"1", "a"}, {"2", "b"}}, checkOpen, "are gone", true},
		"the oldest page is removed":          {pages, [][]string{{"1", "a"}, {"2", "b"}, {"3", "c"}}, [][]string{{"2", "b"}, {"3", "c"}}, "", "", true},
		"a page between is removed":           {pages, [][]string{{"1", "a"}, {"2", "b"}, {"3", "c"}}, [][]string{{"1", "a"}, {"3", "c"}}, checkClosed, "no longer", true},
		"an archive changes":                  {archived, [][]string{{"1", "a"}, {"feed", "b"}}, [][]string{{"1", "x"}, {"feed", "b"}}, checkClosed, "not the same", true},
		"the subscription changes":            {archived, [][]string{{"1", "a"}, {"feed", "b"}}, [][]string{{"1", "a"}, {"feed", "x"}}, "", "", true},
		"an archive moves":                    {archived, [][]string{{"1", "a"}, {"feed", "b"}}, [][]string{{"new", "a"}, {"feed", "b"}}, checkURLs, "no archive", true},
		"a sample of archives moves":          {sampled, [][]string{{"1", "a"}, {"2", "b"}, {"feed", "c"}}, [][]string{{"2", "b"}, {"3", "c"}, {"feed", "d"}}, "", "", false},
		"a sample of archives lacks one":      {sampled, [][]string{{"1", "a"}, {"2", "b"}, {"3", "c"}, {"feed", "c"}}, [][]string{{"1", "a"}, {"3", "c"}, {"feed", "d"}}, checkURLs, "no archive", false},
		"a sample of archives begins earlier": {sampled, [][]string{{"1", "a"}, {"feed", "c"}}, [][]string{{"0", "a"}, {"1", "a"}, {"feed", "c"}}, "", "", false},
		"a sample of events has more":         {sample, [][]string{{"1", "a"}}, [][]string{{"1", "a"}, {"2", "b"}}, "", "", false},
		"a page of a paged feed grows":        {paged, [][]string{{"1", "a"}}, [][]string{{"1", "a", "b"}}, "", "", true},
		"a paged feed stays":                  {paged, [][]string{{"1", "a"}, {"2", "b"}}, [][]string{{"1", "a"}, {"2", "b"}}, "", "", false},
		"a JSON Feed grows":                   {items, [][]string{{"1", "a"}}, [][]string{{"1", "b", "a"}}, "", "", true},
		"events are compacted":                {events, [][]string{{"1", "a"}, {"2", "b"}}, [][]string{{"2", "b"}}, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, checks := *c.report, Checks{}
			first := crawlOf(new(Pages), r.Format, c.first...)
			crawlOf(new(Pages), r.Format, c.second...).Compare(first, &r, "feed", checks)
			for name, check := range checks {
				if failed := fmt.Sprint(check.failed.Examples); (check.failed.Count > 0) != (name == c.check) || name == c.check && !strings.Contains(failed, c.text) {
					t.Errorf("%s: %s", name, failed)
				}
			}
			if c.check != "" && checks[c.check] == nil || c.changed != slices.Contains(r.Notes, "the feed has changed while it was checked") {
				t.Errorf("check %q, notes %q", c.check, r.Notes)
			}
		})
	}
}

func TestWhatWasNotTestedHasAReason(t *testing.T) {
	for _, format := range []string{"datareplication", "atom", "rss", "rdf", "jsonfeed", "http-feeds"} {
		r := NewReport("", format)
		r.Complete = true
		checks := Checks{}
		checks.NotReadAgain(errors.New("it is down"))
		r.Evaluate(checks)
		for _, res := range r.Requirements {
			if res.Outcome != NotTested || res.Reason == "" {
				t.Errorf("%s: %s %s %q of a feed without entities", format, res.ID, res.Outcome, res.Reason)
			}
		}
		if len(r.Requirements) < 8 {
			t.Errorf("%s has %d requirements", format, len(r.Requirements))
		}
	}
}

func TestViolationsDecide(t *testing.T) {
	r := NewReport("", "datareplication")
	r.AddEntity(&feed.Entity{Page: "1"})
	r.Complete = true
	for i := range 7 {
		for range 2 { // the same evidence is shown once
			r.AddViolation(feed.NewViolation("loop", "1", "%d", i))
		}
	}
	r.AddViolation(feed.NewViolation("content_transfer_encoding", "1", "x"))
	r.AddViolation(feed.NewViolation("long_id", "1", "x"))
	r.Evaluate(Checks{})
	if res := r.of(t, "datareplication/23"); res.Outcome != Failed || res.Count != 14 || len(res.Evidence) != 5 {
		t.Errorf("got %+v", res)
	}
	if n, strict := r.Failures(false), r.Failures(true); len(n) != 1 || len(strict) != 2 {
		t.Errorf("failures %v, and strictly %v", n, strict)
	}
	if besides := r.Besides(); len(besides) != 1 || besides[0].Kind != "long_id" {
		t.Errorf("besides: %+v", besides)
	}
	r.Version = "v9"
	var junit strings.Builder
	must.Succeed(t, r.WriteJUnit(&junit, nil, false))
	for _, want := range []string{`failures="1"`, `errors="0"`, `timestamp="20`, `<property name="feedbridge" value="v9">`, `rfc9110#section-5.6.7`, `/docs/cases/datareplication.md`, `<failure message="violated 14 times (feed: links)">1&#xA;`, `does not count for a SHOULD`, `name="datareplication/23 MUST: `} {
		if !strings.Contains(junit.String(), want) {
			t.Errorf("there is no %s in\n%s", want, &junit)
		}
	}
}

func TestComparedEventsAreBounded(t *testing.T) {
	var p Pages
	for i := range mostCompared + 10 {
		p.Add(&feed.Entity{ID: fmt.Sprint(i), Page: "1"}, "http-feeds")
	}
	if len(p.order) != mostCompared {
		t.Errorf("%d events are kept", len(p.order))
	}
}

func TestErrorsForProducers(t *testing.T) {
	for err, want := range map[string]string{
		"the entity lacks an ID; nothing after it is published until the provider has fixed it":                                                        "the entity lacks an ID",
		"GET /: 401 Unauthorized (check auth and headers of the feed)":                                                                                 "GET /: 401 Unauthorized",
		"GET /: 405; check the url and headers of the feed against what the provider documents":                                                        "GET /: 405",
		"an older document is awaited until 2026-11-27T15:19:35Z, and then left out: GET /1: 500; if this persists, ask the provider to fix it":        "GET /1: 500",
		"line 1: no end: nothing after it is read until the provider corrects the document; set lenient to true to have it repaired (not_well_formed)": "line 1: no end",
		"the body ended early; it is requested again; if this persists, the provider sends broken pages: unexpected EOF":                               "the body ended early: unexpected EOF",
	} {
		if got := ForProducers(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
