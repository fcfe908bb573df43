package source_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Sent", r.Header.Get("Authorization")+"|"+strings.Join(r.Header["X-Api-Key"], ","))
	})
	file := writeFile(t, "from-a-file\n")
	for name, test := range map[string]struct {
		auth source.Auth
		want string
	}{
		"headers alone":       {source.Auth{}, ""},
		"bearer":              {source.Auth{Bearer: "abc"}, "Bearer abc"},
		"bearer file":         {source.Auth{Bearer: credential.Secret("file:" + file)}, "Bearer from-a-file"},
		"basic":               {source.Auth{Basic: source.Basic{Username: "al", Password: "open sesame"}}, "Basic YWw6b3BlbiBzZXNhbWU="},
		"basic password file": {source.Auth{Basic: source.Basic{Username: "al", Password: credential.Secret("file:" + file)}}, "Basic YWw6ZnJvbS1hLWZpbGU="},
	} {
		c := newClient(t, url+"/feed", func(c *source.Config) {
			c.Auth = test.auth
			c.Headers = append(c.Headers, "x-api-key: k1", "X-Api-Key:k2")
		})
		for _, method := range []string{"GET", "HEAD"} {
			t.Run("case 95: "+name+" on "+method, func(t *testing.T) {
				res, _, err := do(t, c, source.Request{Method: method, URL: url + "/pages/1"})
				must.Succeed(t, err)
				if got, want := res.Header.Get("X-Sent"), test.want+"|k1,k2"; got != want {
					t.Errorf("sent %q, want %q", got, want)
				}
			})
		}
	}
}

func TestBearerFileChanges(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Authorization")) })
	file := writeFile(t, "one")
	c := newClient(t, url, func(c *source.Config) { c.Auth.Bearer = credential.Secret("file:" + file) })
	for _, token := range []string{"one", "two", "six"} { // of one length, within one tick of the file's clock
		must.Succeed(t, os.WriteFile(file, []byte(token), 0o600))
		if _, got, err := get(t, c, url); err != nil || got != "Bearer "+token {
			t.Errorf("case 95: sent %q, %v; the file has %q", got, err, token)
		}
	}
	for text, want := range map[string]string{
		" \n":         "auth.bearer: " + file + " is empty",
		"hush\nthere": "auth.bearer: " + file + " has more than one line",
	} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		_, _, err := get(t, c, url)
		wantError(t, err, true, "GET "+url, want)
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("error %q shows the secret", err)
		}
	}
	must.Succeed(t, os.Remove(file))
	_, _, err := get(t, c, url)
	wantError(t, err, true, "auth.bearer: open "+file)
}

// A server that answers an error with the request it got, as some do, must not
// bring the credentials into the log.
func TestExcerptShowsNoSecret(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusBadRequest)
		// The padding puts a secret where the excerpt is cut.
		_, _ = fmt.Fprint(w, "who is ", r.Header.Get("Authorization"), "? ", strings.Repeat("-", 150), r.Header.Get("X-Api-Key"))
	})
	_, _, err := get(t, newClient(t, url, secrets), url)
	wantError(t, err, true, "who is ***?")
	for _, secret := range []string{"token-of-the-feed", "key-of"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("error %q shows a secret", err)
		}
	}
}

// tokenServer gives out token-1, token-2 and so on, and counts in *given.
func tokenServer(t *testing.T, given *int, expires string) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "bridge" || secret != "open-sesame" || r.FormValue("scope") != "feed read" || r.FormValue("grant_type") != "client_credentials" {
			t.Errorf("token request: %s:%s %v", id, secret, r.Form)
		}
		*given++
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"bearer"%s}`, *given, expires)
	})
}

func withOAuth2(tokenURL string) func(*source.Config) {
	return func(c *source.Config) {
		c.Auth.OAuth2 = credential.OAuth2{TokenURL: tokenURL, ClientID: "bridge", ClientSecret: "open-sesame", Scopes: []string{"feed", "read"}}
	}
}

func TestOAuth2(t *testing.T) {
	t.Parallel()
	revoked := ""
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization")
		if sent == revoked || revoked == "all" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, sent)
	})
	wantSent := func(t *testing.T, c *source.Client, want string) {
		t.Helper()
		if _, got, err := get(t, c, url); err != nil || got != want {
			t.Fatalf("sent %q, %v; want %q", got, err, want)
		}
	}
	t.Run("a token serves until it expires", func(t *testing.T) {
		given := 0
		c := newClient(t, url, withOAuth2(tokenServer(t, &given, `,"expires_in":3600`)))
		wantSent(t, c, "Bearer token-1")
		wantSent(t, c, "Bearer token-1")

		given = 0
		c = newClient(t, url, withOAuth2(tokenServer(t, &given, `,"expires_in":1`))) // less than the safety margin
		wantSent(t, c, "Bearer token-1")
		wantSent(t, c, "Bearer token-2")
	})
	t.Run("a token that is refused is replaced at the next request", func(t *testing.T) {
		given := 0
		c := newClient(t, url, withOAuth2(tokenServer(t, &given, "")))
		wantSent(t, c, "Bearer token-1")
		revoked = "Bearer token-1"
		_, _, err := get(t, c, url)
		wantError(t, err, false, "401 Unauthorized (the token was dropped")
		wantSent(t, c, "Bearer token-2")
		revoked = "all"
		_, _, err = get(t, c, url)
		wantError(t, err, false, "401 Unauthorized (the token was dropped")
		// A token that is refused at once is not the cause.
		_, _, err = get(t, c, url)
		wantError(t, err, true, "401 Unauthorized (check auth and headers of the feed)")
		revoked = ""
		wantSent(t, c, "Bearer token-4")
	})
	t.Run("the secret may be in a file", func(t *testing.T) {
		given := 0
		tokens := tokenServer(t, &given, "")
		c := newClient(t, url, withOAuth2(tokens), func(c *source.Config) {
			c.Auth.OAuth2.ClientSecret = credential.Secret("file:" + writeFile(t, "open-sesame\n"))
		})
		wantSent(t, c, "Bearer token-1")
	})
	t.Run("the token's exchange is observed", func(t *testing.T) {
		var seen []source.Exchange
		given := 0
		opts := source.Options{Observe: func(e source.Exchange) { seen = append(seen, e) }}
		wantSent(t, newClientWith(t, opts, url, withOAuth2(tokenServer(t, &given, ""))), "Bearer token-1")
		if len(seen) != 2 || seen[0].Method != "POST" || seen[1].Method != "GET" {
			t.Errorf("observed %+v", seen)
		}
	})
}

func TestOAuth2Refused(t *testing.T) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the feed was asked without a token") })
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the secret was sent on") })
	tokens := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/401":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"open-sesame is wrong"}`)
		case "/503":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/307":
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		case "/html":
			_, _ = io.WriteString(w, "<html>")
		}
	})
	for name, test := range map[string]struct {
		path      string
		permanent bool
		texts     []string
	}{
		"refused":                 {"/401", true, []string{"401 Unauthorized (check client_id, the client's secret, and scopes)", "invalid_client *** is wrong"}},
		"down for a while":        {"/503", false, []string{"503 Service Unavailable", "asks to wait 7s"}},
		"a redirect is not taken": {"/307", true, []string{"307 Temporary Redirect"}},
		"no token":                {"/html", false, []string{"cannot parse json"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := get(t, newClient(t, url, withOAuth2(tokens+test.path)), url)
			wantError(t, err, test.permanent, append(test.texts, "GET "+url+": fetching a token (auth.oauth2): POST "+tokens+test.path)...)
			if strings.Contains(err.Error(), "open-sesame") {
				t.Errorf("error %q shows the secret", err)
			}
		})
	}
}

func TestOAuth2Timeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(t *testing.T, hosts *source.Hosts) {
		c := newClientWith(t, source.Options{Hosts: hosts}, feedURL, withOAuth2("http://login.example.com/token"))
		defer c.CloseIdle()
		_, _, err := get(t, c, feedURL)
		wantError(t, err, false, "POST http://login.example.com/token: no token arrived for 40s (timeout, and the time to connect)")
		wantTimeout(t, err)
	})
}

// Cleaning a text must not put the pieces of a secret together.
func TestExcerptIsMaskedAfterCleaning(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusBadRequest)
		key := r.Header.Get("X-Api-Key")
		_, _ = fmt.Fprint(w, "no ", strings.ReplaceAll(key, " ", " \n "), " at ", r.URL)
	})
	c := newClient(t, url, func(cfg *source.Config) {
		cfg.Headers = []credential.Secret{"X-Api-Key: one two three"}
	})
	_, _, err := get(t, c, url+"/feed?token=of-the-feed")
	wantError(t, err, true, `"no *** at /feed?token=***"`)
}
