package syndication_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// fieldsProgram prints the fields of the entries of documents as feedparser has them.
const fieldsProgram = `
import calendar, feedparser, json, sys
def moment(t):
    return str(calendar.timegm(t)) if t else ""
def one(e):
    return {
        "title": e.get("title", ""), "summary": (e.get("summary_detail") or {}).get("value") or "",
        "content": e["content"][0]["value"] if e.get("content") else "", "url": e.get("link", ""),
        "date_published": moment(e.get("published_parsed")), "date_modified": moment(e.get("updated_parsed")) if "updated" in e else "",
        "authors": " ".join(sorted(a.get("name") or a.get("email") or "" for a in e.get("authors", []) if a)),
        "tags": " ".join(sorted(t["term"] for t in e.get("tags", []) if t.get("term"))),
        "attachments": " ".join(l.get("href", "") for l in e.get("enclosures", [])),
    }
out = []
for doc in json.load(sys.stdin):
    d = feedparser.parse(bytes.fromhex(doc), response_headers={"content-location": "http://x.example/feed", "content-type": "application/xml"}, sanitize_html=False, resolve_relative_uris=False)
    out.append([one(e) for e in d.entries])
json.dump(out, sys.stdout)`

// fieldsOf returns the fields of an entry in JSON as fieldsProgram does.
func fieldsOf(body []byte) map[string]string {
	var d entry.Document
	if err := json.Unmarshal(body, &d); err != nil {
		panic(err)
	}
	first := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	moment := func(text string) string {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return ""
		}
		return fmt.Sprint(at.Unix())
	}
	var authors, attachments []string
	for _, a := range d.Authors {
		authors = append(authors, first(a.Name, a.Email))
	}
	for _, a := range d.Attachments {
		attachments = append(attachments, a.URL)
	}
	return map[string]string{
		"title": first(d.TitleHTML, d.Title), "summary": first(d.SummaryHTML, d.Summary), "content": first(d.ContentHTML, d.ContentText), "url": d.URL,
		"date_published": moment(d.DatePublished), "date_modified": moment(d.DateModified),
		"authors": strings.Join(slices.Sorted(slices.Values(authors)), " "), "tags": strings.Join(slices.Sorted(slices.Values(d.Tags)), " "), "attachments": strings.Join(attachments, " "),
	}
}

// The fields of entries are those that feedparser reads in 99 of 100.
func TestFieldsAsFeedparserReadsThem(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import feedparser").Run(); err != nil {
		if os.Getenv("REQUIRE_PYTHON") != "" {
			t.Fatal(err)
		}
		t.Skip("Python has no feedparser")
	}
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/mmcdole/gofeed").Output()
	must.Succeed(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "parser", "*", "*.xml"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d documents: %v", len(files), err)
	}
	var docs []string
	for _, file := range files {
		doc, err := os.ReadFile(file)
		must.Succeed(t, err)
		docs = append(docs, fmt.Sprintf("%x", doc))
	}
	in, err := json.Marshal(docs)
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), "python3", "-c", fieldsProgram)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	must.Succeed(t, err)
	var theirs [][]map[string]string
	must.Succeed(t, json.Unmarshal(out, &theirs))
	equal, all := 0, 0
	for i, file := range files {
		doc, err := os.ReadFile(file)
		must.Succeed(t, err)
		r := feedxml.NewReader(bytes.NewReader(doc), feedxml.Options{URL: "http://x.example/feed", ContentType: "application/xml", Lenient: true})
		for n := 0; n < len(theirs[i]); n++ {
			e, err := r.Next()
			if err != nil {
				t.Logf("%s: %v", filepath.Base(file), err)
				break
			}
			a, ok := entry.Read(e.Body, "http://x.example/feed")
			if !ok {
				a = &entry.Entry{XML: string(e.Body)}
			}
			ours := fieldsOf(a.Encode(e.ID))
			for name, want := range theirs[i][n] {
				clean := func(s string) string { return strings.Join(strings.Fields(s), " ") }
				all++
				if clean(want) == clean(ours[name]) {
					equal++
				} else {
					t.Logf("%s: %s is %q, feedparser has %q", filepath.Base(file), name, ours[name], want)
				}
			}
		}
	}
	t.Logf("%d of %d fields of %d documents are equal", equal, all, len(files))
	if 100*equal < 99*all || all == 0 {
		t.Errorf("only %d of %d fields are equal", equal, all)
	}
}
