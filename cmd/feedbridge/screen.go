package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
)

// screen is standard error. On a terminal its last line tells what goes on, and
// other lines, such as the log's, scroll by above it.
type screen struct {
	terminal bool
	fd       interface{ Fd() uintptr } // nil unless a terminal

	mu       sync.Mutex
	w        io.Writer
	line     string // the last line as it is shown
	drawn    time.Time
	started  time.Time
	pages    int
	lastPage string
	entities int
	bytes    int64
	left     int // duplicates
	recent   rate
	newest   time.Time // upstream's
	reached  time.Time // ours
	more     bool
}

// refresh is how often the live line is drawn at most.
const refresh = 100 * time.Millisecond

func newScreen(w io.Writer) *screen {
	s := &screen{w: w, started: time.Now()}
	if isTerminal(w) {
		s.terminal = true
		s.fd = w.(interface{ Fd() uintptr })
	}
	return s
}

// Fd lets the log see that it writes to a terminal.
func (s *screen) Fd() uintptr {
	if s.fd == nil {
		return ^uintptr(0)
	}
	return s.fd.Fd()
}

// Write writes whole lines above the live line.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	n, err := s.w.Write(p)
	s.draw()
	return n, err
}

// close leaves the live line standing.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		s.compose()
		s.erase()
		s.draw()
		fmt.Fprintln(s.w)
		s.line = ""
	}
}

func (s *screen) erase() {
	if s.line != "" {
		fmt.Fprint(s.w, "\r\x1b[K")
	}
}

func (s *screen) draw() {
	if s.line != "" {
		fmt.Fprint(s.w, s.line)
	}
}

// Polled implements bridge.Observer.
func (s *screen) Polled(feed.Batch, error, time.Duration) { s.show() }

// Settled implements bridge.Observer.
func (s *screen) Settled(b feed.Batch, _ time.Duration) {
	s.mu.Lock()
	for i := range b.Entities {
		if page := b.Entities[i].Page; page != s.lastPage {
			s.pages++
			s.lastPage = page
		}
	}
	if n := len(b.Entities); n > 0 {
		s.reached = b.Entities[n-1].Modified
	}
	s.entities += len(b.Entities)
	s.bytes += int64(b.Size())
	s.left += b.Duplicates
	s.recent.add(time.Now(), len(b.Entities))
	if s.newest.Before(b.Newest) {
		s.newest = b.Newest
	}
	s.more = b.More
	s.mu.Unlock()
	s.show()
}

// Entered implements bridge.Observer.
func (s *screen) Entered(bridge.Status) { s.show() }

// show draws the live line, if that was not done a moment ago.
func (s *screen) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal || s.more && time.Since(s.drawn) < refresh {
		return
	}
	s.drawn = time.Now()
	s.erase()
	s.compose()
	s.draw()
}

func (s *screen) compose() {
	lag := "caught up"
	if behind := s.newest.Sub(s.reached); s.more && behind > 0 {
		lag = "lag " + behind.Round(time.Second).String()
	} else if s.more {
		lag = "reading"
	}
	s.line = fmt.Sprintf("%d pages  %d entities  %.1f MB  %.0f/s  %s", s.pages, s.entities, float64(s.bytes)/1e6, s.recent.perSecond(time.Now()), lag)
	if s.left > 0 {
		s.line += fmt.Sprintf("  %d duplicates left out", s.left)
	}
}

// rate is a number of events a second over the last few seconds.
type rate struct {
	slots [rateSlots]struct {
		second int64
		n      int
	}
}

const rateSlots = 6

func (r *rate) add(now time.Time, n int) {
	slot := &r.slots[now.Unix()%rateSlots]
	if slot.second != now.Unix() {
		slot.second, slot.n = now.Unix(), 0
	}
	slot.n += n
}

func (r *rate) perSecond(now time.Time) float64 {
	sum, oldest := 0, now.Unix()
	for _, slot := range r.slots {
		if slot.n > 0 && now.Unix()-slot.second < rateSlots {
			sum += slot.n
			oldest = min(oldest, slot.second)
		}
	}
	return float64(sum) / float64(now.Unix()-oldest+1)
}
