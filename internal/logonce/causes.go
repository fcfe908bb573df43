// Package logonce decides which failures are logged when the same one repeats.
package logonce

import (
	"regexp"
	"sync"
	"time"
)

// Reminder is the time after which a cause that lasts is logged again.
const Reminder = 10 * time.Minute

// mostCauses bounds the memory, and the lines that are logged, for causes whose texts differ each time.
const mostCauses = 1000

// Causes remembers the causes of failures that were logged. It promises:
//   - a cause is logged when it occurs first, and again only after [Reminder] or [Causes.End];
//   - failures whose texts differ only in numbers, such as ports, sizes and times, have one cause;
//   - no more than 1000 causes are remembered, and others are not logged meanwhile.
//
// The zero Causes is ready. It is safe for concurrent use.
type Causes struct {
	mu     sync.Mutex // guards logged
	logged map[string]*cause
}

type cause struct {
	at      time.Time // when it was logged
	repeats int       // since then
}

// Add records a failure. It reports whether to log it, and how many of its cause were not logged before.
func (c *Causes) Add(text string) (isNew bool, repeats int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, now := WithoutNumbers(text), time.Now()
	if was := c.logged[key]; was != nil {
		if was.repeats++; !was.isOver(now) {
			return false, 0
		}
		repeats = was.repeats - 1
	}
	if len(c.logged) >= mostCauses {
		for key, was := range c.logged {
			if was.isOver(now) {
				delete(c.logged, key)
			}
		}
		if len(c.logged) >= mostCauses {
			return false, 0
		}
	}
	if c.logged == nil {
		c.logged = map[string]*cause{}
	}
	c.logged[key] = &cause{at: now}
	return true, repeats
}

func (c *cause) isOver(now time.Time) bool { return now.Sub(c.at) >= Reminder }

// End forgets all causes after a success, and reports whether there was one.
func (c *Causes) End() (had bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had = len(c.logged) > 0
	clear(c.logged)
	return had
}

var digits = regexp.MustCompile(`[0-9]+`)

// WithoutNumbers returns a text with 0 in place of each number.
func WithoutNumbers(text string) string { return digits.ReplaceAllString(text, "0") }
