package source_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source"
)

// Errors hide the parameters that the user has named, in the URL of the request, in
// those that redirects lead to, and in texts of the server.
func TestErrorsHideTheParametersOfTheUser(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		location := ""
		switch r.URL.Path {
		case "/foreign":
			location = "https://elsewhere.example/?ticket=s3cret"
		case "/broken":
			location = "https://x.example:port/?ticket=s3cret"
		case "/credentials":
			location = "https://me:w0rd@x.example/?ticket=s3cret"
		default:
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, "not %s, or %s", r.URL, strings.Repeat("=", 4000)+"&ticket=s3cret")
			return
		}
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
	})
	c := newClientWith(t, source.Options{Redact: safetext.NewRedactor("ticket")}, url, withOAuth2(url+"/token?ticket=s3cret"))
	plain := newClientWith(t, source.Options{Redact: safetext.NewRedactor("ticket")}, url)
	for _, at := range []string{"/", "/foreign", "/broken", "/credentials", "/%zz"} {
		for _, c := range []*source.Client{c, plain} {
			_, _, err := get(t, c, url+at+"?ticket=s3cret")
			if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "w0rd") || !strings.Contains(err.Error(), "ticket=***") {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
}

// A secret that the server repeats where the reading of its answer ends is not shown
// in part.
func TestExcerptShowsNoHalfOfASecret(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, strings.Repeat(".", 4<<10-10), r.Header.Get("X-Api-Key"))
	})
	_, _, err := get(t, newClient(t, url, func(cfg *source.Config) { cfg.Headers = []credential.Secret{"X-Api-Key: s3cret-s3cret-s3cret"} }), url)
	if wantError(t, err, true, "400 Bad Request"); strings.Contains(err.Error(), "s3c") {
		t.Errorf("error %q shows a part of the secret", err)
	}
}
