package source_test

import (
	"math"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(*source.Config)
		want []string
	}{
		"good": {func(c *source.Config) {
			c.Headers = []credential.Secret{"X-Api-Key: a:b", "Accept:"}
			c.AllowHosts = []string{"cdn.example.com", "cdn.example.com:8443", "[::1]:80"}
		}, nil},
		"no url":             {func(c *source.Config) { c.URL = "" }, []string{"url: is missing"}},
		"no scheme":          {func(c *source.Config) { c.URL = "shop.example.com/feed" }, []string{`url: "shop.example.com/feed" has no scheme: write https://shop.example.com/feed`}},
		"a typo":             {func(c *source.Config) { c.URL = "htp:/typo" }, []string{`url: "htp:/typo" has the scheme htp: feeds are read over https and http`}},
		"a port too large":   {func(c *source.Config) { c.URL = "https://a.example.com:99999/" }, []string{`url: "https://a.example.com:99999/" has the port 99999; want one from 1 to 65535`}},
		"port 0":             {func(c *source.Config) { c.URL = "https://a.example.com:0/" }, []string{`url: "https://a.example.com:0/" has the port 0; want one from 1 to 65535`}},
		"a port, no scheme":  {func(c *source.Config) { c.URL = "localhost:8080/feed" }, []string{`url: "localhost:8080/feed" has no scheme: write https://localhost:8080/feed`}},
		"an address, a port": {func(c *source.Config) { c.URL = "127.0.0.1:8080" }, []string{`url: "127.0.0.1:8080" has no scheme: write https://127.0.0.1:8080`}},
		"another scheme":     {func(c *source.Config) { c.URL = "ftp://shop.example.com" }, []string{`url: "ftp://shop.example.com" has the scheme ftp: feeds are read over https and http`}},
		"no host":            {func(c *source.Config) { c.URL = "https:///feed" }, []string{`url: "https:///feed" has no host`}},
		"a bad port":         {func(c *source.Config) { c.URL = "https://shop:x/" }, []string{`url: "https://shop:x/" cannot be parsed: invalid port ":x" after host`}},
		"credentials":        {func(c *source.Config) { c.URL = "https://al:hush@shop.example.com" }, []string{"url: must not contain credentials: set auth.basic"}},
		"bad credentials": {func(c *source.Config) { c.URL = "https://al:hu#sh@shop.example.com" }, []string{
			"url: cannot be parsed; it must look like https://shop.example.com/feed, without credentials: set auth.basic",
		}},
		"headers": {func(c *source.Config) {
			c.Headers = []credential.Secret{"hush", "X Y: hush", ": hush", "X: hu\nsh", "host: hush", "If-None-Match: hush"}
		}, []string{
			`headers[0]: has no colon: write "Name: value"`,
			`headers[1]: does not start with a header's name: write "Name: value"`,
			`headers[2]: does not start with a header's name: write "Name: value"`,
			"headers[3]: the value of X has characters that a header cannot carry, such as a line break",
			"headers[4]: Host is set by feedbridge itself",
			"headers[5]: If-None-Match is set by feedbridge itself",
		}},
		"allow_hosts": {func(c *source.Config) { c.AllowHosts = []string{"", "https://a", "a/b", "*.a", "al@a"} }, []string{
			`allow_hosts[0]: "" is not a host: write shop.example.com or shop.example.com:8443`,
			`allow_hosts[1]: "https://a" is not a host: write shop.example.com or shop.example.com:8443`,
			`allow_hosts[2]: "a/b" is not a host: write shop.example.com or shop.example.com:8443`,
			`allow_hosts[3]: "*.a" is not a host: write shop.example.com or shop.example.com:8443`,
			`allow_hosts[4]: "al@a" is not a host: write shop.example.com or shop.example.com:8443`,
		}},
		"two kinds of auth": {func(c *source.Config) {
			c.Auth.Bearer, c.Auth.Basic = "hush", source.Basic{Username: "me", Password: "hush"}
			c.Headers = []credential.Secret{"authorization: hush"}
		}, []string{
			"auth: bearer and basic exclude each other: keep one",
			"headers: Authorization and auth.bearer exclude each other: keep one",
		}},
		"bearer": {func(c *source.Config) { c.Auth.Bearer = "hu\rsh" }, []string{"auth.bearer: has characters that a header cannot carry, such as a line break"}},
		"basic":  {func(c *source.Config) { c.Auth.Basic = source.Basic{Password: "hush"} }, []string{"auth.basic.username: is missing"}},
		"basic, a colon": {func(c *source.Config) { c.Auth.Basic.Username = "a:b" }, []string{
			"auth.basic.username: must not contain a colon (RFC 7617)", "auth.basic.password: is missing",
		}},
		"oauth2": {func(c *source.Config) { c.Auth.OAuth2.Scopes = []string{"x"} }, []string{
			"auth.oauth2.token_url: is missing", "auth.oauth2.client_id: is missing", "auth.oauth2.client_secret: is missing",
		}},
		"a certificate without key": {func(c *source.Config) { c.Auth.TLS.CertFile = "f" }, []string{"auth.tls.key_file: is missing beside cert_file"}},
		"a key without certificate": {func(c *source.Config) { c.Auth.TLS.KeyFile = "f" }, []string{"auth.tls.cert_file: is missing beside key_file"}},
		"numbers": {func(c *source.Config) {
			c.Timeout, c.Limits = -1, source.Limits{Rate: math.NaN()}
		}, []string{
			"timeout: must be more than zero",
			"limits.entity: must be more than zero",
			"limits.rate: must be more than zero",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := source.Defaults()
			cfg.URL = "https://shop.example.com/feed"
			test.edit(&cfg)
			var got []string
			for _, err := range cfg.Validate() {
				got = append(got, err.Error())
			}
			must.Match(t, "errors", test.want, got)
			if text := strings.Join(got, "\n"); strings.Contains(text, "hush") || strings.Contains(text, "hu\\nsh") {
				t.Errorf("the errors show a secret:\n%s", text)
			}
			_, err := source.NewClient(cfg, source.Options{})
			if test.want == nil {
				if err != nil {
					t.Errorf("NewClient: %v", err)
				}
				return
			}
			wantError(t, err, true, test.want...)
		})
	}
}
