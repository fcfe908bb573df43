package kafka

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/feedbridge/feedbridge/credential"
)

// newToken returns a function that returns an access token of the client credentials grant.
func newToken(settings OAuth2, timeout time.Duration) func(context.Context) (credential.Secret, error) {
	tokens := credential.NewTokens(credential.ClientCredentials{
		TokenURL: settings.TokenURL, ClientID: settings.ClientID, Scopes: settings.Scopes, Secret: settings.readSecret,
	}, http.Client{Timeout: timeout}, nil)
	return func(ctx context.Context) (credential.Secret, error) {
		token, err := tokens.Get(ctx)
		if failed, ok := errors.AsType[*credential.TokenError](err); ok {
			return "", &tokenError{settings.TokenURL, failed}
		}
		if err != nil {
			return "", err
		}
		return token.Value, nil
	}
}

// readSecret returns the client's secret, or what its file has now.
func (o OAuth2) readSecret() (credential.Secret, error) {
	return credential.Read(o.ClientSecret, "sasl.oauth2.client_secret_file", o.ClientSecretFile)
}

// tokenError is the failure to get a token for the brokers.
type tokenError struct {
	url string
	err error
}

func (e *tokenError) Error() string {
	return fmt.Sprintf("fetching a token (sasl.oauth2) from %s: %v; check token_url, client_id, the client's secret, and scopes", e.url, e.err)
}

func (e *tokenError) Unwrap() error { return e.err }
