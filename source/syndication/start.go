package syndication

import (
	"fmt"
	"time"
)

// Start selects the first entries to publish of a feed that has no checkpoint yet. The
// zero Start is the beginning: all documents that can be reached.
type Start struct {
	// Now skips the entries that the feed has at the first poll.
	Now bool
	// At skips the entries that were updated before that time. For entries without an
	// update time, it uses their date of publication.
	At time.Time
}

// ParseStart parses a start position of the configuration: beginning, now, or a time
// such as 2026-01-01T00:00:00Z.
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

// String returns the form that [ParseStart] parses.
func (s Start) String() string {
	switch {
	case s.Now:
		return "now"
	case !s.At.IsZero():
		return s.At.Format(time.RFC3339Nano)
	}
	return "beginning"
}

// UnmarshalText calls [ParseStart].
func (s *Start) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStart(string(text))
	return err
}

// MarshalText returns [Start.String].
func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
