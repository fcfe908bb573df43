package source

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/feedbridge/feedbridge/internal/credential"
)

// Validate returns everything that is wrong with c, each error starting with
// the key that it is about. It opens no file; [NewClient] does.
func (c Config) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := CheckURL(c.URL); err != nil {
		fail("url: %w", err)
	}
	authorization := false
	for i, line := range c.Headers {
		name, _, err := parseHeader(line)
		if err != nil {
			fail("headers[%d]: %w", i, err)
		}
		authorization = authorization || strings.EqualFold(name, "Authorization")
	}
	for i, host := range c.AllowHosts {
		if err := checkHost(host); err != nil {
			fail("allow_hosts[%d]: %w", i, err)
		}
	}
	kinds := c.Auth.authorizationKeys()
	if len(kinds) > 1 {
		fail("auth: %s exclude each other: keep one", strings.Join(kinds, " and "))
	}
	if len(kinds) > 0 && authorization {
		fail("headers: Authorization and auth.%s exclude each other: keep one", kinds[0])
	}
	errs = append(errs, c.Auth.validateAuth()...)

	for _, d := range []struct {
		key      string
		positive bool
	}{
		{"timeout", c.Timeout > 0},
		{"limits.entity", c.Limits.Entity > 0},
		{"limits.rate", c.Limits.Rate > 0 && !math.IsInf(c.Limits.Rate, 0)},
	} {
		if !d.positive {
			fail("%s: must be more than zero", d.key)
		}
	}
	return errs
}

// authorizationKeys lists the keys under auth that set an Authorization header.
func (a Auth) authorizationKeys() []string {
	var kinds []string
	for _, k := range []struct {
		key string
		set bool
	}{
		{"bearer", a.Bearer != ""},
		{"basic", a.Basic != Basic{}},
		{"oauth2", a.OAuth2.IsSet()},
	} {
		if k.set {
			kinds = append(kinds, k.key)
		}
	}
	return kinds
}

func (a Auth) validateAuth() []error {
	var errs []error
	fail := func(text string) { errs = append(errs, errors.New(text)) }

	if !httpguts.ValidHeaderFieldValue(a.Bearer.Reveal()) {
		fail("auth.bearer: has characters that a header cannot carry, such as a line break")
	}
	if b := a.Basic; b != (Basic{}) {
		switch {
		case b.Username == "":
			fail("auth.basic.username: is missing")
		case strings.Contains(b.Username, ":"):
			fail("auth.basic.username: must not contain a colon (RFC 7617)")
		}
		if b.Password == "" {
			fail("auth.basic.password: is missing")
		}
	}
	if o := a.OAuth2; o.IsSet() {
		if err := CheckURL(o.TokenURL); err != nil {
			errs = append(errs, fmt.Errorf("auth.oauth2.token_url: %w", err))
		}
		errs = append(errs, o.Validate("auth.oauth2")...)
	}
	switch t := a.TLS; {
	case t.CertFile != "" && t.KeyFile == "":
		fail("auth.tls.key_file: is missing beside cert_file")
	case t.CertFile == "" && t.KeyFile != "":
		fail("auth.tls.cert_file: is missing beside key_file")
	}
	return errs
}

// CheckURL wants an absolute http or https URL without credentials. Its errors
// do not repeat a URL that may hold a password.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	web := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	switch {
	case raw == "":
		return errors.New("is missing")
	case err == nil && u.User != nil:
		return errors.New("must not contain credentials: set auth.basic")
	case web && u.Hostname() == "":
		return fmt.Errorf("%q has no host", raw)
	case web && !hasValidPort(u):
		return fmt.Errorf("%q has the port %s; want one from 1 to 65535", raw, u.Port())
	case web:
		return nil
	case strings.Contains(raw, "@"):
		return errors.New("cannot be parsed; it must look like https://shop.example.com/feed, without credentials: set auth.basic")
	case !strings.Contains(raw, "://") && (err != nil || u.Scheme == "" || u.Opaque != ""):
		return fmt.Errorf("%q has no scheme: write https://%s", raw, strings.TrimPrefix(raw, "//"))
	case err != nil:
		return fmt.Errorf("%q cannot be parsed: %w", raw, parseError(err))
	}
	return fmt.Errorf("%q has the scheme %s: feeds are read over https and http", raw, u.Scheme)
}

// hasValidPort reports whether a connection can be opened to the port of a URL, if it has one.
func hasValidPort(u *url.URL) bool {
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && port > 0
}

// parseError returns the cause of an error about a URL, without the URL.
func parseError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func checkHost(host string) error {
	u, err := url.Parse("//" + host)
	if err != nil || host == "" || u.Host != host || u.Hostname() == "" || !hasValidPort(u) || strings.Contains(host, "*") {
		return fmt.Errorf("%q is not a host: write shop.example.com or shop.example.com:8443", host)
	}
	return nil
}

// reserved are the headers that the client sets by itself, or that would turn
// a whole page into something else.
var reserved = []string{
	"Connection", "Content-Length", "Host", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range",
	"If-Unmodified-Since", "Range", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
}

// parseHeader reads a line "Name: value". Its errors do not show the value.
func parseHeader(line credential.Secret) (name, value string, err error) {
	name, value, ok := strings.Cut(line.Reveal(), ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch {
	case !ok:
		return "", "", errors.New(`has no colon: write "Name: value"`)
	case !httpguts.ValidHeaderFieldName(name):
		return "", "", errors.New(`does not start with a header's name: write "Name: value"`)
	case !httpguts.ValidHeaderFieldValue(value):
		return name, "", fmt.Errorf("the value of %s has characters that a header cannot carry, such as a line break", name)
	}
	for _, r := range reserved {
		if strings.EqualFold(name, r) {
			return name, "", fmt.Errorf("%s is set by feedbridge itself", r)
		}
	}
	return name, value, nil
}
