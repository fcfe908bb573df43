package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/source/syndication"
)

// archives serves a subscription document and two archives; the older one has what head returns.
func archives(head func(base string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		base := "http://" + r.Host
		links := map[string]string{
			"/feed": `<link rel="prev-archive" href="/2"/>`,
			"/2":    `<fh:archive/><link rel="current" href="/feed"/><link rel="prev-archive" href="/1"/>`,
			"/1":    head(base),
		}[r.URL.Path]
		w.Header().Set("Content-Type", "application/atom+xml")
		fmt.Fprintf(w, `<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0">%s</feed>`, links)
	}
}

func TestArchivesAreProbed(t *testing.T) {
	const whole = `<fh:archive/><link rel="current" href="/feed"/><link rel="next-archive" href="/2"/>`
	for name, c := range map[string]struct {
		head, id string
		outcome  Outcome
		text     string
	}{
		"case 140: no flag":                 {`<link rel="current" href="/feed"/>`, "syndication/140", Failed, "no fh:archive"},
		"case 140: no current":              {`<fh:archive/>`, "syndication/45", Failed, "no link current"},
		"case 150: no next-archive":         {`<fh:archive/>`, "syndication/150", Failed, "no link next-archive"},
		"case 150: next-archive to another": {`<link rel="next-archive" href="/feed"/>`, "syndication/150", Failed, "leads to"},
		"a whole archive":                   {whole, "syndication/150", Passed, ""},
		"a whole archive is flagged":        {whole, "syndication/140", Passed, ""},
		"case 148: without Cache-Control":   {whole, "syndication/148", Failed, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReport("", "atom")
			r.Dialect = syndication.Archived
			r, _ = probeSite(t, r, archives(func(string) string { return c.head }), "/1", "/2", "/feed")
			r.want(t, c.id, c.outcome, c.text)
		})
	}
}

func TestConditionalRequestsOfDocuments(t *testing.T) {
	for name, c := range map[string]struct{ field, value, id string }{
		"case 146: a tag without 304":  {"ETag", `"a"`, "syndication/146"},
		"case 147: a date without 304": {"Last-Modified", old, "syndication/147"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := probeSite(t, NewReport("", "rss"), func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(c.field, c.value) }, "/feed")
			r.want(t, c.id, Failed, "answered with 200")
			if found := fmt.Sprint(r.of(t, c.id).Evidence); strings.Contains(found, `""`) || !strings.Contains(found, c.value) {
				t.Error(found)
			}
		})
	}
}

func TestHeadOfDocuments(t *testing.T) {
	t.Run("case 139: HEAD is refused", func(t *testing.T) {
		r, _ := probeSite(t, NewReport("", "rss"), func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				http.Error(w, "no", http.StatusForbidden)
			}
		}, "/feed")
		r.want(t, "syndication/139", Failed, "403")
		if len(r.Failures(false)) != 0 || len(r.Failures(true)) != 1 {
			t.Error("it is a SHOULD")
		}
	})
}
