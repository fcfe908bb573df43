// Package secret has a string that does not show itself.
package credential

import (
	"log/slog"
)

// mask stands where a secret was set.
const mask = "***"

// String is a secret that was given in the configuration. However it is
// printed, logged or encoded, it shows as ***; only Reveal gives it away.
type String string

// Reveal returns the secret itself.
func (s String) Reveal() string { return string(s) }

func (s String) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString keeps %#v from showing what String hides.
func (s String) GoString() string { return s.String() }

// LogValue keeps structured logs from showing it.
func (s String) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides it from JSON and its like.
func (s String) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML hides it from YAML.
func (s String) MarshalYAML() (any, error) { return s.String(), nil }
