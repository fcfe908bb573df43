package safetext_test

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// The URL of a page of a snapshot may be long and signed. Wherever its excerpt is cut, the
// log can find the secret in it.
func TestExcerptShowsNoHalfOfASecret(t *testing.T) {
	t.Parallel()
	log := safetext.NewRedactor("ticket")
	for _, name := range []string{"X-Amz-Signature", "ticket"} {
		for before := range 200 {
			link := strings.Repeat("p", before) + "?a=1&" + name + "=" + strings.Repeat("S", 200)
			if shown := log.Clip(safetext.Excerpt(link), 1000); strings.Contains(shown, "SS") {
				t.Fatalf("%s is shown as %s", link, shown)
			}
		}
	}
}
