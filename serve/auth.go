package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
)

// Auth is what who asks has to know: a bearer token, or a user name and its
// password. Give them to nobody without TLS.
type Auth struct {
	Bearer             string
	Username, Password string
}

func (a Auth) validate() []error {
	switch {
	case a.Bearer != "" && (a.Username != "" || a.Password != ""):
		return []error{errors.New("auth: bearer and basic exclude each other")}
	case (a.Username == "") != (a.Password == ""):
		return []error{errors.New("auth.basic: wants both a username and a password")}
	case strings.Contains(a.Username, ":"):
		return []error{errors.New("auth.basic.username: must not have a colon")}
	}
	return nil
}

func (a Auth) set() bool { return a != Auth{} }

// challenge is what a client is told that does not know it.
func (a Auth) challenge() string {
	if a.Bearer != "" {
		return `Bearer realm="feedbridge"`
	}
	return `Basic realm="feedbridge", charset="UTF-8"`
}

// allows says whether who asks knows what there is to know.
func (a Auth) allows(r *http.Request) bool {
	switch {
	case a.Bearer != "":
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		return strings.EqualFold(scheme, "Bearer") && same(strings.TrimSpace(token), a.Bearer)
	case a.set():
		name, password, ok := r.BasicAuth()
		// Both are compared, so that the time does not tell which is wrong.
		right := same(name, a.Username)
		return same(password, a.Password) && right && ok
	}
	return true
}

// same compares in a time that tells neither content nor length.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
