package conformance

import (
	"fmt"
	"net/http"
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
		"case 140: no flag":          {`<link rel="current" href="/feed"/>`, "syndication/140", Failed, "no fh:archive"},
		"case 140: no current":       {`<fh:archive/>`, "syndication/45", Failed, "no link current"},
		"case 140: no next-archive":  {`<fh:archive/>`, "syndication/131", Failed, "no link next-archive"},
		"next-archive to another":    {`<link rel="next-archive" href="/feed"/>`, "syndication/131", Failed, "leads to"},
		"a whole archive":            {whole, "syndication/131", Passed, ""},
		"a whole archive is flagged": {whole, "syndication/140", Passed, ""},
		"without Cache-Control":      {whole, "syndication/110", Failed, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReport("", "atom")
			r.Dialect = syndication.Archived
			r, _ = probeSite(t, r, archives(func(string) string { return c.head }), "/1", "/2", "/feed")
			r.want(t, c.id, c.outcome, c.text)
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
		if r.Failures(false) != 0 || r.Failures(true) != 1 {
			t.Error("it is a SHOULD")
		}
	})
}
