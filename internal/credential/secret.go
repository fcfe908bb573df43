package credential

import (
	"log/slog"
	"strings"
)

// mask is shown in place of a secret that is set.
const mask = "***"

// Secret is a secret from the configuration. However it is printed, logged or
// encoded, it shows as ***; only Reveal returns it.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// File returns the path of the file that has the secret, if the configured value is file:PATH.
func (s Secret) File() (path string, ok bool) { return strings.CutPrefix(string(s), "file:") }

// String returns ***, or nothing if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the secret from structured logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from JSON and similar encodings.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML hides the secret from YAML.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
