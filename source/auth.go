package source

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/secret"
)

// credentials are the headers that only the feed's origin may see.
type credentials struct {
	headers http.Header // those of Config.Headers
	auth    Auth
	tokens  *tokens // for auth.oauth2, nil without it
}

// add sets the headers on a request. It returns the oauth2 token that it used,
// if any.
func (c *credentials) add(ctx context.Context, header http.Header) (*token, error) {
	for name, values := range c.headers {
		header[name] = values
	}
	value, used := "", (*token)(nil)
	switch {
	case c.auth.Bearer != "":
		value = "Bearer " + c.auth.Bearer.Reveal()
	case c.auth.BearerFile != "":
		bearer, err := readSecret("auth.bearer_file", c.auth.BearerFile)
		if err != nil {
			return nil, err
		}
		value = "Bearer " + bearer.Reveal()
	case c.auth.Basic.Username != "":
		password, err := oneOf(c.auth.Basic.Password, "auth.basic.password_file", c.auth.Basic.PasswordFile)
		if err != nil {
			return nil, err
		}
		value = "Basic " + base64.StdEncoding.EncodeToString([]byte(c.auth.Basic.Username+":"+password.Reveal()))
	case c.tokens != nil:
		var err error
		if used, err = c.tokens.get(ctx); err != nil {
			return nil, err
		}
		value = used.authorization()
	default:
		return nil, nil
	}
	header.Set("Authorization", value)
	return used, nil
}

// secrets returns the secrets that were sent to a server. They must not be shown in
// quotes of its answers.
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

func oneOf(value secret.String, key, file string) (secret.String, error) {
	if file == "" {
		return value, nil
	}
	return readSecret(key, file)
}

// readSecret reads the file at every call: it is small, and a rotated secret is used
// without a signal. key is its name in the configuration.
func readSecret(key, file string) (secret.String, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", feed.Permanent(fmt.Errorf("%s: %w", key, err))
	}
	s := strings.TrimSpace(string(data))
	switch {
	case s == "":
		return "", feed.Permanent(fmt.Errorf("%s: %s is empty", key, file))
	case !httpguts.ValidHeaderFieldValue(s):
		return "", feed.Permanent(fmt.Errorf("%s: %s has more than one line, or characters that a header cannot carry", key, file))
	}
	return secret.String(s), nil
}
