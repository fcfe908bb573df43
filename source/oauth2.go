package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// newTokens returns the tokens of auth.oauth2.
func newTokens(cfg Config, transport http.RoundTripper) *credential.Tokens {
	settings := cfg.Auth.OAuth2
	late := &timeoutError{"no token arrived", cfg.connectTimeout() + cfg.Timeout, "timeout, and the time to connect", "check auth.oauth2.token_url, and the firewalls on the way"}
	secret := func() (credential.Secret, error) {
		return readSecret(settings.ClientSecret, "auth.oauth2.client_secret")
	}
	return credential.NewTokens(settings, secret, http.Client{Transport: transport}, func(ctx context.Context) (context.Context, func(error) error) {
		d := newDeadline(ctx)
		d.startWait(late)
		return d.ctx, func(err error) error {
			if reason := d.endReason(); err != nil && reason != nil {
				err = reason
			}
			d.endRequest()
			return err
		}
	})
}

// explainToken explains why there is no token.
func explainToken(err error, settings credential.OAuth2, redact *safetext.Redactor) error {
	const what = "fetching a token (auth.oauth2)"
	failed, ok := errors.AsType[*credential.TokenError](err)
	if !ok {
		return err // of the client's secret
	}
	if refused := failed.Response; refused != nil {
		status := &StatusError{Method: http.MethodPost, URL: redact.URL(settings.TokenURL), Status: refused.StatusCode, Excerpt: excerptBody(redact, failed.Text)}
		status.Wait = retryAfter(refused.Header, time.Now())
		if status.Status == http.StatusBadRequest || status.Status == http.StatusUnauthorized {
			status.note = "check client_id, the client's secret, and scopes"
		} else if !isTransientStatus(status.Status) {
			status.note = "check auth.oauth2.token_url"
		}
		return feed.RetryAfter(fmt.Errorf("%s: %w", what, status), status.Wait)
	}
	return fmt.Errorf("%s: POST %s: %w", what, redact.URL(settings.TokenURL), explainTransport(failed.Err))
}
