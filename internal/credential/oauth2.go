package credential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// OAuth2 is the client credentials grant of RFC 6749, section 4.4. Its yaml tags are keys of the
// configuration file.
type OAuth2 struct {
	TokenURL     string   `yaml:"token_url"`
	ClientID     string   `yaml:"client_id"`
	ClientSecret Secret   `yaml:"client_secret"`
	Scopes       []string `yaml:"scopes"`
}

// IsSet reports whether any key is set.
func (o OAuth2) IsSet() bool {
	return o.TokenURL != "" || o.ClientID != "" || o.ClientSecret != "" || len(o.Scopes) > 0
}

// Validate returns an error for each missing key but the URL. key is the configuration key of the grant; errors
// begin with it.
func (o OAuth2) Validate(key string) (errs []error) {
	if o.ClientID == "" {
		errs = append(errs, fmt.Errorf("%s.client_id: is missing", key))
	}
	if o.ClientSecret == "" {
		errs = append(errs, fmt.Errorf("%s.client_secret: is missing", key))
	}
	return errs
}

// Tokens fetches access tokens and caches the last one until it expires or is dropped. It may
// be used concurrently.
type Tokens struct {
	secret func() (Secret, error)
	client *http.Client
	bound  Bound

	mu     sync.Mutex                // held during a request, so that there is one at a time
	grant  *clientcredentials.Config // remembers how the server wants the secret
	cached *oauth2.Token
}

// Token is an access token.
type Token struct {
	// Type is the scheme of the Authorization header, such as Bearer.
	Type  string
	Value Secret
	// Fresh reports whether the token was requested for this call: if it is refused,
	// another one would be as well.
	Fresh bool

	token *oauth2.Token
}

// Bound bounds the time of a request. It returns the context of the request, and a function
// that is called at its end with its error, and returns the error to report for it.
type Bound func(ctx context.Context) (bounded context.Context, end func(error) error)

// NewTokens returns tokens that the client fetches. It follows no redirects: one would send
// the secret to another server. secret returns the client's secret, and is called for each request.
// bound may be nil, if the client has a timeout.
func NewTokens(o OAuth2, secret func() (Secret, error), client http.Client, bound Bound) *Tokens {
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if bound == nil {
		bound = func(ctx context.Context) (context.Context, func(error) error) {
			return ctx, func(err error) error { return err }
		}
	}
	return &Tokens{
		secret: secret, client: &client, bound: bound,
		grant: &clientcredentials.Config{ClientID: o.ClientID, TokenURL: o.TokenURL, Scopes: o.Scopes},
	}
}

// Get returns a valid token. The error is that of the secret, or else a [*TokenError].
func (t *Tokens) Get(ctx context.Context) (*Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cached.Valid() {
		return newToken(t.cached, false), nil
	}
	secret, err := t.secret()
	if err != nil {
		return nil, err
	}
	ctx, end := t.bound(ctx)
	t.grant.ClientSecret = secret.Reveal()
	fetched, err := t.grant.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	if err = end(err); err != nil {
		return nil, newTokenError(err, secret)
	}
	t.cached = fetched
	return newToken(fetched, true), nil
}

// Drop removes a token from the cache that its user has refused, unless a newer one has
// replaced it.
func (t *Tokens) Drop(refused *Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cached == refused.token {
		t.cached = nil
	}
}

func newToken(t *oauth2.Token, fresh bool) *Token {
	return &Token{Type: t.Type(), Value: Secret(t.AccessToken), Fresh: fresh, token: t}
}

// TokenError is the failure of a request for a token.
type TokenError struct {
	// Response is the answer of a server that refuses it; its body has been read. It is nil
	// if there was none.
	Response *http.Response
	// Text is the error that the server has written, without the secret, which it may have
	// repeated.
	Text string
	// Err is the error of the connection, without the URL; nil with a Response.
	Err error
}

func (e *TokenError) Error() string {
	if e.Response == nil {
		return e.Err.Error()
	}
	return strings.TrimSpace(e.Response.Status + " " + e.Text)
}

func (e *TokenError) Unwrap() error { return e.Err }

func newTokenError(err error, secret Secret) *TokenError {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		text := strings.TrimSpace(refused.ErrorCode + " " + refused.ErrorDescription)
		return &TokenError{Response: refused.Response, Text: Mask(text, secret.Reveal(), url.QueryEscape(secret.Reveal()))}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &TokenError{Err: err}
}

// Mask returns a text that another program has written as one line of printable characters,
// and without the secrets, which it may have repeated. They are masked after cleaning, because
// that may put the pieces of a secret together.
func Mask(text string, secrets ...string) string {
	text = safetext.Clean(text)
	for _, s := range secrets {
		for _, s := range []string{s, safetext.Clean(s)} {
			if s != "" {
				text = strings.ReplaceAll(text, s, mask)
			}
		}
	}
	return text
}
