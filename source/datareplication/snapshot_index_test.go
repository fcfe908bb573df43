package datareplication

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

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
		parallel.Run(t, name, func(t *testing.T) {
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
			r.wantError(t, true, kindBadIndex, tt.words, snapshotIndex)
			readOn(t, src, r.cursor).want(t, "a c e f g")
		})
	}
}

// FuzzSnapshotIndex reads its input as an index, and as the URL of a page. An index that is read has
// everything, and no page twice.
func FuzzSnapshotIndex(f *testing.F) {
	f.Add(`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": ["0", "/1", "http://x.example/2"]}`, "a?b=%41#c")
	f.Add(`{"id": "s1", "createdAt": "0000-12-31T23:59:59-23:59", "pages": null}`, "//é:80/../x")
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, text, link string) {
		pages, err := json.Marshal([]string{link, "./" + link, strings.Repeat(link, 3)})
		must.Succeed(t, err)
		read := func(text string) {
			resp := &source.Response{URL: &url.URL{Scheme: "https", Host: "feed.example", Path: "/snapshot"}, Date: time.Unix(0, 0)}
			ix, err := decodeIndex([]byte(text), resp, &sightings{})
			if v := (*feed.Violation)(nil); err != nil && (!errors.As(err, &v) || v.Kind != kindBadIndex) {
				t.Fatalf("%s: %v", text, err)
			}
			if err != nil {
				return
			}
			_ = ix.feedStart()
			urls := ix.following(0, len(ix.pages))
			if slices.Sort(urls); ix.id == "" || len(urls) != len(ix.pages) || len(slices.Compact(urls)) != len(ix.pages) {
				t.Fatalf("%s: %+v", text, ix)
			}
		}
		for _, text := range []string{text, `{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": ` + string(pages) + `}`} {
			read(text)
			cputime.CheckRepeated(t, text, read)
		}
		cputime.CheckRepeated(t, link, func(links string) {
			read(`{"id": "s1", "createdAt": "2023-10-05T03:04:50Z", "pages": ["` + links + `"]}`)
		})
	}))
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
			must.Succeed(t, err)
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
	r.wantError(t, true, kindBadIndex, "more than")
}
