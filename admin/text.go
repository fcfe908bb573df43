package admin

import (
	"fmt"
	"time"
)

const (
	// longestError limits the length of a stored error, in characters. An error ends with
	// its cure, and the URLs of a feed fit in front of it.
	longestError = 600
	// longestDetail limits the length of a violation's page and of its detail, in
	// characters.
	longestDetail = 300
	// longestText limits the length of each text in an answer, in characters. Sentences
	// that quote an error are longer than it.
	longestText = 1000
)

type errorStatus struct {
	At   *time.Time `json:"at"`
	Text string     `json:"text"`
}

// formatDuration writes a duration in the one or two units that matter: 350ms, 12s,
// 4m30s, 3h, 5d2h.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d = max(d, 0); d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	units := []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units[:3] {
		if d < u.size {
			continue
		}
		smaller := units[i+1]
		text := fmt.Sprintf("%d%s", d/u.size, u.name)
		if rest := d % u.size / smaller.size; rest > 0 {
			text += fmt.Sprintf("%d%s", rest, smaller.name)
		}
		return text
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// formatTime returns a time as answers show it: in UTC, to the millisecond; nil for the zero time.
func formatTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}
