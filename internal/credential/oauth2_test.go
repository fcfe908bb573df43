package credential_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/feedbridge/feedbridge/internal/credential"
)

// tokenServer gives out tokens 1, 2 and so on, which are valid for an hour.
func tokenServer(t *testing.T) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refuse":
			_ = r.ParseForm()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error": "invalid_client", "error_description": "it is not hunter\u00012, nor hunter%%012"}`)
		case "/move":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/elsewhere":
			t.Error("the secret is sent to where a redirect leads")
		case "/":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token": "token%d", "token_type": "bearer", "expires_in": 3600}`, requests.Add(1))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func secret() (credential.Secret, error) { return "hunter\x012", nil }

func TestTokensAreCachedUntilTheyAreDropped(t *testing.T) {
	t.Parallel()
	url, requests := tokenServer(t)
	tokens := credential.NewTokens(credential.OAuth2{TokenURL: url + "/", ClientID: "me"}, secret, http.Client{}, nil)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if token, err := tokens.Get(t.Context()); err != nil || token.Value != "token1" || token.Type != "Bearer" {
				t.Errorf("got %+v, %v", token, err)
			}
		})
	}
	group.Wait()
	old, err := tokens.Get(t.Context())
	if err != nil || old.Fresh || requests.Load() != 1 {
		t.Fatalf("got %+v, %v after %d requests", old, err, requests.Load())
	}
	for range 2 { // the second time the cache has another token already
		tokens.Drop(old)
		token, err := tokens.Get(t.Context())
		if err != nil || token.Value != "token2" {
			t.Errorf("after the token was dropped: %+v, %v", token, err)
		}
	}
	if requests.Load() != 2 {
		t.Errorf("%d requests, want 2", requests.Load())
	}
}

func TestTokenErrors(t *testing.T) {
	t.Parallel()
	url, _ := tokenServer(t)
	get := func(path string, secret func() (credential.Secret, error), bound credential.Bound) error {
		tokens := credential.NewTokens(credential.OAuth2{TokenURL: url + path, ClientID: "me"}, secret, http.Client{}, bound)
		_, err := tokens.Get(t.Context())
		return err
	}
	refused, ok := errors.AsType[*credential.TokenError](get("/refuse", secret, nil))
	if !ok || refused.Response == nil || refused.Response.Header.Get("Retry-After") != "7" {
		t.Fatalf("refused: %#v", refused)
	}
	if text := refused.Error(); strings.Contains(text, "hunter") || text != "401 Unauthorized invalid_client it is not ***, nor ***" {
		t.Errorf("refused: %q", text)
	}
	if moved, ok := errors.AsType[*credential.TokenError](get("/move", secret, nil)); !ok || moved.Response == nil || moved.Response.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("a redirect: %v", moved)
	}
	missing := errors.New("no secret")
	if err := get("/", func() (credential.Secret, error) { return "", missing }, nil); err != missing { //nolint:errorlint // the very error
		t.Errorf("without a secret: %v", err)
	}
	late := errors.New("too late")
	err := get("/", secret, func(ctx context.Context) (context.Context, func(error) error) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, func(err error) error {
			if err == nil {
				t.Error("a request of an ended context succeeds")
			}
			return late
		}
	})
	if failed, ok := errors.AsType[*credential.TokenError](err); !ok || failed.Response != nil || !errors.Is(err, late) {
		t.Errorf("a bounded request: %v", err)
	}
}
