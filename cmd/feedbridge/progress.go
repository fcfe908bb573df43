package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// progress counts the copied entities for the status line. It is a [bridge.Observer]. For
// several feeds it only has sums, as the calls do not name the feed.
type progress struct {
	feeds int

	mu        sync.Mutex // guards the fields below
	pages     int
	page      string // of the last entity
	entities  int
	total     uint64 // entities of the only feed's topic
	bytes     int64
	left      int // duplicates
	status    bridge.Status
	processed bool // a batch was processed; more is its Batch.More
	more      bool
	newest    time.Time // upstream's
	reached   time.Time // ours
	// began and beganEntities are reached and entities at the first batch since the feed fell behind, and beganAt is the
	// time of that.
	began, beganAt time.Time
	beganEntities  int
}

// Polled implements bridge.Observer.
func (*progress) Polled(feed.Batch, error, time.Duration) {}

// Processed implements bridge.Observer.
func (p *progress) Processed(b feed.Batch, _ time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.Entities {
		if page := b.Entities[i].Page; page != p.page {
			p.pages++
			p.page = page
		}
	}
	if n := len(b.Entities); n > 0 {
		p.reached = b.Entities[n-1].Modified
	}
	published := len(b.Entities) - feed.CountDead(b.Entities)
	p.entities += published
	p.total += uint64(published)
	p.bytes += int64(b.Size())
	p.left += b.Duplicates
	p.newest = b.Newest
	if !b.More || p.beganAt.IsZero() && !p.reached.IsZero() {
		p.began, p.beganAt, p.beganEntities = p.reached, time.Now(), p.entities
	}
	p.processed, p.more = true, b.More
}

// Entered implements bridge.Observer.
func (p *progress) Entered(s bridge.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.total = s, s.Checkpoint.Count
}

// statusText returns the progress as a line of ASCII.
func (p *progress) statusText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if p.feeds > 1 {
		say("%d feeds", p.feeds)
	} else {
		say("%s", withNoun(p.pages, "page", "pages"))
	}
	say("%s", withNoun(p.entities, "entity", "entities"))
	if p.feeds == 1 && p.total > uint64(p.entities) {
		say("(%d in all)", p.total)
	}
	say("%.1f MB", float64(p.bytes)/1e6)
	if seconds := now.Sub(p.beganAt).Seconds(); p.feeds == 1 && p.entities > p.beganEntities && seconds > 0 {
		say("%s", formatRate(float64(p.entities-p.beganEntities)/seconds))
	}
	if p.left > 0 {
		say("%s left out", withNoun(p.left, "duplicate", "duplicates"))
	}
	if p.feeds == 1 {
		say("%s", p.stateText(now))
	}
	return strings.Join(words, "  ")
}

// stateText returns the state of the only feed in words.
func (p *progress) stateText(now time.Time) string {
	switch p.status.State {
	case bridge.Starting:
		return "waiting for the bus"
	case bridge.Standby:
		return "another copy publishes"
	case bridge.Paused:
		return "paused"
	case bridge.Retrying, bridge.Halted:
		return fmt.Sprintf("%s, next attempt in %s", p.status.State, max(p.status.Until.Sub(now), 0).Round(time.Second))
	case bridge.Stopped:
		return "stopped"
	}
	switch behind := p.newest.Sub(p.reached); {
	case p.processed && !p.more:
		return "caught up"
	case p.processed && p.entities == 0:
		return "searching the position to start at"
	case !p.reached.IsZero() && behind > 0:
		text := "lag " + behind.Round(time.Second).String()
		if left := timeLeft(behind.Seconds(), p.reached.Sub(p.began).Seconds()/now.Sub(p.beganAt).Seconds()); left != "" {
			text += ", " + left
		}
		return text
	}
	return "reading"
}

var formatRate, timeLeft = status.FormatRate, status.TimeLeft
