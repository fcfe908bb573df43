package source

import (
	"time"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/setting"
)

// Config configures the requests to the upstream of one feed. Its yaml tags are the
// keys of the configuration file. Start from [Defaults]: a limit or a timeout of zero
// is refused, and does not mean "none".
type Config struct {
	// URL is the feed's entry point: http or https, and absolute. Its scheme,
	// host and port are the origin that headers and credentials go to.
	URL string `yaml:"url"`
	// Headers are added to every request to the origin, each "Name: value".
	// All of their values count as secrets. They may replace User-Agent and
	// Accept-Encoding ("Accept-Encoding: identity" turns compression off).
	Headers []credential.Secret `yaml:"headers"`
	// Auth has the credentials for the origin.
	Auth Auth `yaml:"auth" doc:"Credentials that are sent to the feed's origin."`
	// AllowHosts names other hosts to which links and redirects may lead:
	// "host" for the port that belongs to the scheme, or "host:port". They never
	// get Headers or Auth.
	AllowHosts []string `yaml:"allow_hosts"`
	// Timeout bounds the wait from the connection to the end of the response's header, and then
	// each wait for the next bytes of the body; a body that keeps coming may take as
	// long as it likes. Name resolution, connecting and the TLS handshake, the proxy's part
	// included, may take as long, and 10 seconds at most. Default 30s.
	Timeout time.Duration `yaml:"timeout" default:"30s"`
	// Limits bound the memory that the upstream can take.
	Limits Limits `yaml:"limits" doc:"Limits for responses and the request rate."`
	// PagesAhead limits the number of pages that are requested while the page before them is read,
	// when the feed has a backlog; see [PagesAhead]. Zero means 16, and less requests one page after the other.
	PagesAhead int `yaml:"-"`
	// LargestPage is the largest page, in bytes, compressed and decompressed. Zero means 1 GiB: pages are read as a
	// stream and never held whole.
	LargestPage int64 `yaml:"-"`
}

// Auth has the credentials: at most one of Bearer, Basic and OAuth2, and a
// client certificate in TLS beside any of them.
type Auth struct {
	// Bearer is a token for "Authorization: Bearer".
	Bearer credential.Secret      `yaml:"bearer"`
	Basic  Basic                  `yaml:"basic" doc:"User name and password."`
	OAuth2 credential.OAuth2      `yaml:"oauth2" doc:"Tokens from a token endpoint (client credentials grant)."`
	TLS    credential.ClientFiles `yaml:"tls" doc:"TLS with the feed's origin."`
}

// Basic is a user name with its password.
type Basic struct {
	Username string            `yaml:"username"`
	Password credential.Secret `yaml:"password"`
}

// connectTimeout is how long the upstream may take to accept a connection.
func (c *Config) connectTimeout() time.Duration { return min(c.Timeout, 10*time.Second) }

// Limits bound the memory and the work that the upstream can cause.
type Limits struct {
	// Entity is the largest entity, in bytes, body and headers. Default 8 MiB.
	Entity int64 `yaml:"entity" default:"8388608"`
	// Rate is the number of requests a second to one host, over all feeds of
	// the process that name the same number. A HEAD counts like a GET. Default 200.
	Rate float64 `yaml:"rate" default:"200"`
}

// Defaults returns a Config with every default set.
func Defaults() Config { return setting.Defaults[Config]() }
