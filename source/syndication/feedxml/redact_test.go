package feedxml

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// An error quotes the text around a fault, but no secret of a URL there, whichever part
// of the URL the quoted text begins or ends in.
func TestErrorsQuoteNoSecret(t *testing.T) {
	t.Parallel()
	redact := safetext.NewRedactor("ticket")
	for _, url := range []string{
		"http://x.example/?ticket=" + strings.Repeat("s3cret", 10), "http://x.example/#token=" + strings.Repeat("s3cret", 10),
		"http://me:" + strings.Repeat("s3cret", 10) + "@x.example/", "http://me:" + strings.Repeat("s3cret", 30) + "@x.example/",
	} {
		for i := range len(url) {
			for _, link := range []string{url[:i] + "\x01" + url[i:], url + "&" + strings.Repeat(" ", i), strings.Repeat("x", i) + "& " + url} {
				doc := `<rss version="2.0"><channel><item><link>` + link + `</link></item></channel></rss>`
				_, err := read(NewReader(strings.NewReader(doc), Options{Redact: redact}))
				if err == nil || strings.Contains(redact.Text(err.Error()), "s3c") {
					t.Errorf("at %d: %v", i, err)
				}
			}
		}
	}
}
