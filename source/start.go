package source

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Start selects the first entity to read when a feed has no checkpoint yet. The zero Start
// is the beginning of the feed.
type Start struct {
	// Now starts behind the newest entity that there is at the first poll.
	Now bool
	// At starts with the first entity that was modified at that time, in
	// whole seconds, or later.
	At time.Time
	// ID starts behind the event of http-feeds with that id. With At, it starts behind the entity with that Content-ID, which was
	// modified at that time. It matches with or without one pair of angle
	// brackets.
	ID string
	// Snapshot starts with the snapshot whose index has that URL, and continues
	// with the feed from the snapshot's creation.
	Snapshot string
}

// IsEvent reports whether the start is behind an event of http-feeds, whose time is not known.
func (s Start) IsEvent() bool { return s.ID != "" && s.At.IsZero() }

// ParseStart reads a start position as the configuration writes it:
//
//	beginning
//	now
//	2026-01-01T00:00:00Z          (RFC 3339)
//	id:<content-id>@<time>        (the time in RFC 3339)
//	after:<id>                    (of an event of http-feeds)
//	snapshot:<url of its index>
func ParseStart(s string) (Start, error) {
	switch {
	case s == "" || s == "beginning":
		return Start{}, nil
	case s == "now":
		return Start{Now: true}, nil
	case strings.HasPrefix(s, "snapshot:"):
		index := strings.TrimPrefix(s, "snapshot:")
		if err := CheckURL(index); err != nil {
			return Start{}, fmt.Errorf("start: the url of the snapshot %w", err)
		}
		return Start{Snapshot: index}, nil
	case s == "after:":
		return Start{}, errors.New("start after: names no event of http-feeds; want after: and its id")
	case strings.HasPrefix(s, "after:"):
		return Start{ID: strings.TrimPrefix(s, "after:")}, nil
	case strings.HasPrefix(s, "id:"):
		// A Content-ID may have an @ of its own; the time has none.
		id, at, ok := cutLast(strings.TrimPrefix(s, "id:"), "@")
		if !ok || id == "" {
			return Start{}, fmt.Errorf("start %q: want id:<content-id>@<time>, such as id:<42@shop.example.com>@2026-01-01T00:00:00Z", s)
		}
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return Start{}, fmt.Errorf("start %q: the time after the last @ must look like 2026-01-01T00:00:00Z", s)
		}
		return Start{ID: id, At: t.UTC()}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return Start{}, fmt.Errorf("start %q: %s", s, Start{}.Expected())
	}
	return Start{At: t.UTC()}, nil
}

// String returns the form that [ParseStart] reads.
func (s Start) String() string {
	switch {
	case s.Snapshot != "":
		return "snapshot:" + s.Snapshot
	case s.Now:
		return "now"
	case s.IsEvent():
		return "after:" + s.ID
	case s.ID != "":
		return "id:" + s.ID + "@" + s.At.Format(time.RFC3339Nano)
	case !s.At.IsZero():
		return s.At.Format(time.RFC3339Nano)
	}
	return "beginning"
}

// Expected describes the values, for an error.
func (Start) Expected() string {
	return "want beginning, now, a time such as 2026-01-01T00:00:00Z, id:<content-id>@<time>, or snapshot:<url>"
}

// UnmarshalText is [ParseStart].
func (s *Start) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStart(string(text))
	return err
}

// MarshalText is [Start.String].
func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
