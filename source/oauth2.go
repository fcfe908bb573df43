package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/feedbridge/feedbridge/safetext"
)

// token is an access token on its way into a request.
type token struct {
	*oauth2.Token
	// fresh reports that it was fetched for this request: if it is refused, another one
	// would be too.
	fresh bool
}

func (t *token) authorization() string { return t.Type() + " " + t.AccessToken }

// tokens fetches access tokens by the client credentials grant and keeps the
// last one until it expires or is dropped.
type tokens struct {
	settings OAuth2
	limits   Limits
	client   *http.Client
	timeout  *timeoutError
	redact   *safetext.Redactor

	mu     sync.Mutex                // held during a fetch, so that there is one at a time
	grant  *clientcredentials.Config // remembers how the server wants the secret
	cached *oauth2.Token
}

func newTokens(cfg Config, transport http.RoundTripper, redact *safetext.Redactor) *tokens {
	settings := cfg.Auth.OAuth2
	return &tokens{
		settings: settings,
		limits:   cfg.Limits,
		redact:   redact,
		client: &http.Client{
			Transport: transport,
			// A redirect would carry the secret to wherever it leads.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		timeout: &timeoutError{"no token came", cfg.Timeouts.Connect + cfg.Timeouts.Header, "timeouts.connect and timeouts.header", "check auth.oauth2.token_url, and the firewalls on the way"},
		grant:   &clientcredentials.Config{ClientID: settings.ClientID, TokenURL: settings.TokenURL, Scopes: settings.Scopes},
	}
}

func (t *tokens) get(ctx context.Context) (*token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cached.Valid() {
		return &token{t.cached, false}, nil
	}
	secret, err := oneOf(t.settings.ClientSecret, "auth.oauth2.client_secret_file", t.settings.ClientSecretFile)
	if err != nil {
		return nil, err
	}
	d := newDeadline(ctx)
	defer d.close()
	d.start(t.timeout)
	t.grant.ClientSecret = secret.Reveal()
	fetched, err := t.grant.Token(context.WithValue(d.ctx, oauth2.HTTPClient, t.client))
	if err != nil {
		if reason := d.reason(); reason != nil {
			err = reason
		}
		return nil, t.explain(err, secret.Reveal())
	}
	t.cached = fetched
	return &token{fetched, true}, nil
}

// drop forgets a token that the feed has refused, unless a newer one has taken
// its place.
func (t *tokens) drop(refused *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cached == refused.Token {
		t.cached = nil
	}
}

// explain describes an error of the token's server. Its answer is quoted without the
// secret, which it may have repeated.
func (t *tokens) explain(err error, secret string) error {
	const what = "fetching a token (auth.oauth2)"
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		text := strings.TrimSpace(refused.ErrorCode + " " + refused.ErrorDescription)
		status := &StatusError{Method: http.MethodPost, URL: t.redact.URL(t.settings.TokenURL), Status: refused.Response.StatusCode, Excerpt: excerpt(t.redact, text, secret, url.QueryEscape(secret))}
		status.Wait = retryAfter(refused.Response.Header, time.Now())
		if status.Status == http.StatusBadRequest || status.Status == http.StatusUnauthorized {
			status.note = "check client_id, the client's secret, and scopes"
		} else if !passes(status.Status) {
			status.note = "check auth.oauth2.token_url"
		}
		return fmt.Errorf("%s: %w", what, status)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s: POST %s: %w", what, t.redact.URL(t.settings.TokenURL), explain(err, t.limits))
}
