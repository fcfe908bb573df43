package source

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// credentials are the headers that only the feed's origin may see.
type credentials struct {
	cfg     *Config
	headers http.Header        // those of Config.Headers
	tokens  *credential.Tokens // for auth.oauth2, nil without it
	redact  *safetext.Redactor
}

// setHeaders sets the headers on a request. It returns the oauth2 token that it used,
// if any.
func (c *credentials) setHeaders(ctx context.Context, header http.Header) (*credential.Token, error) {
	for name, values := range c.headers {
		header[name] = values
	}
	value, used := "", (*credential.Token)(nil)
	switch {
	case c.cfg.Auth.Bearer != "":
		bearer, err := readSecret(c.cfg.Auth.Bearer, "auth.bearer")
		if err != nil {
			return nil, err
		}
		value = "Bearer " + bearer.Reveal()
	case c.cfg.Auth.Basic.Username != "":
		password, err := readSecret(c.cfg.Auth.Basic.Password, "auth.basic.password")
		if err != nil {
			return nil, err
		}
		value = "Basic " + base64.StdEncoding.EncodeToString([]byte(c.cfg.Auth.Basic.Username+":"+password.Reveal()))
	case c.tokens != nil:
		var err error
		if used, err = c.tokens.Get(ctx); err != nil {
			return nil, explainToken(err, c.cfg.Auth.OAuth2, c.redact)
		}
		value = used.Type + " " + used.Value.Reveal()
	default:
		return nil, nil
	}
	header.Set("Authorization", value)
	return used, nil
}

// secrets returns the secrets that were sent to a server and must not appear in texts of
// that server.
func (c *credentials) secrets(sent http.Header) (secrets []string) {
	for name := range sent {
		if _, ours := c.headers[name]; !ours && name != "Authorization" {
			continue
		}
		for _, value := range sent[name] {
			// The value as a whole, and without a scheme such as Bearer.
			secrets = append(secrets, value, value[strings.LastIndexByte(value, ' ')+1:])
		}
	}
	return secrets
}

// readSecret returns value, or the present content of the file if it names one. key is the
// configuration key of the value.
func readSecret(value credential.Secret, key string) (credential.Secret, error) {
	s, err := credential.ReadTrimmed(value, key)
	file, isFile := value.File()
	switch {
	case err != nil:
		return "", feed.Permanent(err)
	case isFile && !httpguts.ValidHeaderFieldValue(s.Reveal()):
		return "", feed.Permanent(fmt.Errorf("%s: %s has more than one line, or characters that a header cannot carry", key, file))
	}
	return s, nil
}
