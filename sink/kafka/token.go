package kafka

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

	"github.com/feedbridge/feedbridge/credential"
)

// tokens fetches access tokens by the client credentials grant and keeps the
// last one until it expires.
type tokens struct {
	settings OAuth2
	client   *http.Client

	mu     sync.Mutex                // held during a fetch, so that there is one at a time
	grant  *clientcredentials.Config // remembers how the server wants the secret
	cached *oauth2.Token
}

func newTokens(settings OAuth2, timeout time.Duration) *tokens {
	return &tokens{
		settings: settings,
		client: &http.Client{
			Timeout: timeout,
			// A redirect would carry the secret to wherever it leads.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		grant: &clientcredentials.Config{ClientID: settings.ClientID, TokenURL: settings.TokenURL, Scopes: settings.Scopes},
	}
}

// readable reads the secret, to see that it can be.
func (o OAuth2) readable() error {
	_, err := secretOrFile(o.ClientSecret, "sasl.oauth2.client_secret_file", o.ClientSecretFile)
	return err
}

func (t *tokens) get(ctx context.Context) (credential.Secret, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.cached.Valid() {
		clientSecret, err := secretOrFile(t.settings.ClientSecret, "sasl.oauth2.client_secret_file", t.settings.ClientSecretFile)
		if err != nil {
			return "", err
		}
		t.grant.ClientSecret = clientSecret.Reveal()
		fetched, err := t.grant.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client))
		if err != nil {
			return "", &tokenError{t.settings.TokenURL, masked(err, clientSecret.Reveal())}
		}
		t.cached = fetched
	}
	return credential.Secret(t.cached.AccessToken), nil
}

// tokenError says that there is no token to show to the brokers.
type tokenError struct {
	url string
	err error
}

func (e *tokenError) Error() string {
	return fmt.Sprintf("fetching a token (sasl.oauth2) from %s: %v; check token_url, client_id, the client's secret, and scopes", e.url, e.err)
}

func (e *tokenError) Unwrap() error { return e.err }

// masked returns what the token's server said without the secret, which it may
// have repeated.
func masked(err error, clientSecret string) error {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		text := strings.TrimSpace(refused.ErrorCode + " " + refused.ErrorDescription)
		for _, s := range []string{clientSecret, url.QueryEscape(clientSecret)} {
			text = strings.ReplaceAll(text, s, "***")
		}
		return errors.New(strings.TrimSpace(refused.Response.Status + " " + text))
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
