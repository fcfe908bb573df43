package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
)

// Auth is the credentials that a request must carry: a bearer token, or a user name
// and its password. Use them only with TLS.
type Auth struct {
	Bearer             string
	Username, Password string
}

func (a Auth) hasCredentials() bool { return a != Auth{} }

// challenge returns the WWW-Authenticate of an answer to a request without them.
func (a Auth) challenge() string {
	if a.Bearer != "" {
		return `Bearer realm="feedbridge"`
	}
	return `Basic realm="feedbridge", charset="UTF-8"`
}

// authorizes reports whether the request carries valid credentials.
func (a Auth) authorizes(r *http.Request) bool {
	switch {
	case a.Bearer != "":
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		return strings.EqualFold(scheme, "Bearer") && equalSecrets(strings.TrimSpace(token), a.Bearer)
	case a.hasCredentials():
		name, password, ok := r.BasicAuth()
		// Both are compared, so that the time does not reveal which one is wrong.
		right := equalSecrets(name, a.Username)
		return equalSecrets(password, a.Password) && right && ok
	}
	return true
}

// credentials are those of a served feed. It logs once that they cannot be read, until they can.
type credentials struct {
	cfg     *Config
	missing atomic.Bool
}

// read returns the credentials of now.
func (c *credentials) read() (Auth, error) {
	if c.cfg.ReadAuth == nil {
		return Auth{}, nil
	}
	auth, err := c.cfg.ReadAuth()
	if err == nil && !auth.hasCredentials() {
		err = errors.New("the credentials are empty")
	}
	switch was := c.missing.Swap(err != nil); {
	case err != nil && !was:
		c.cfg.Log.Error("the credentials of a served feed cannot be read; clients get 503", "error", err)
	case err == nil && was:
		c.cfg.Log.Info("the credentials of a served feed can be read again")
	}
	return auth, err
}

// equalSecrets compares in a time that depends on neither content nor length.
func equalSecrets(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
