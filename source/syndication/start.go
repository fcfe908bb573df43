package syndication

import (
	"fmt"
	"time"
)

// Start is where the reading of a feed starts when there is no checkpoint yet.
// The zero Start is the beginning: everything that can be reached.
type Start struct {
	// Now publishes none of the entries that the feed has at the first poll.
	Now bool
	// At publishes the entries that were updated at that time or later. For
	// those that do not say, it uses their date of publication.
	At time.Time
}

// ParseStart reads a start position as the configuration writes it: beginning,
// now, or a time such as 2026-01-01T00:00:00Z.
func ParseStart(s string) (Start, error) {
	switch s {
	case "", "beginning":
		return Start{}, nil
	case "now":
		return Start{Now: true}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return Start{}, fmt.Errorf("start %q: want beginning, now, or a time such as 2026-01-01T00:00:00Z", s)
	}
	return Start{At: t.UTC()}, nil
}

// String returns the form that [ParseStart] reads.
func (s Start) String() string {
	switch {
	case s.Now:
		return "now"
	case !s.At.IsZero():
		return s.At.Format(time.RFC3339Nano)
	}
	return "beginning"
}

// UnmarshalText is [ParseStart].
func (s *Start) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStart(string(text))
	return err
}

// MarshalText is [Start.String].
func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
