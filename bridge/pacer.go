package bridge

import (
	"sync"
	"time"
)

// A Pacer spreads over time what many bridges would do in the same moment: start, and go on after
// an outage of their bus. One after the other they get places that are 1/150 of a second apart.
// So a few feeds start at once, and 10,000 within 67 seconds, with at most 150 first polls a
// second upstream. At most 400 of them are starting at a time: if they need longer than their
// places are apart, because of the bus or the limit of requests, the others wait without a
// goroutine. The zero Pacer is ready. It is safe for concurrent use.
type Pacer struct {
	mu       sync.Mutex
	next     time.Time
	starting int // the number of feeds whose start has begun and not ended
}

// pace is the number of places of a Pacer in a second. It is less than the 200 requests a second
// that the sources of a process send upstream while feeds start.
const pace = 150

const (
	// maxStarting limits the feeds that start at a time.
	maxStarting = 400
	// slowStart is the time after which a feed does not count against maxStarting any more. It may
	// have a backlog of hours, or a server that does not answer.
	slowStart = 5 * time.Second
	// slowCommit is the same for a feed that makes its first commit. The bus may need seconds for
	// the commits of all feeds that start, and more feeds would only wait for it, too. It may also
	// not answer, and others may have another bus.
	slowCommit = 30 * time.Second
	// fullWait is the least time until a feed tries again to start when too many are starting.
	fullWait = time.Second
)

// delay reserves the next start and returns the wait until it. A nil Pacer does not delay.
func (p *Pacer) delay() time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	d := p.next.Sub(now)
	p.next = p.next.Add(time.Second / pace)
	return d
}

// feedStart is the start of one feed: its first step, to the end of the first commit. Nil is that of
// a feed without a Pacer, or one that has started. It is safe for concurrent use.
type feedStart struct {
	once  sync.Once
	pacer *Pacer
	slow  *time.Timer
}

// beginCommit is called before the first commit.
func (s *feedStart) beginCommit() {
	if s != nil && s.slow.Stop() {
		s.slow.Reset(slowCommit)
	}
}

// end is called after the first commit, and after the first step.
func (s *feedStart) end() {
	if s == nil {
		return
	}
	s.slow.Stop()
	s.release()
}

func (s *feedStart) release() {
	s.once.Do(func() {
		s.pacer.mu.Lock()
		defer s.pacer.mu.Unlock()
		s.pacer.starting--
	})
}

// begin begins the start of a feed whose place has come. Its end must be called. If too many feeds are
// starting, begin takes another place, and returns the time until it.
func (p *Pacer) begin() (s *feedStart, wait time.Duration) {
	if p == nil {
		return nil, 0
	}
	p.mu.Lock()
	full := p.starting >= maxStarting
	if !full {
		p.starting++
	}
	p.mu.Unlock()
	if full {
		return nil, max(p.delay(), fullWait)
	}
	s = &feedStart{pacer: p}
	s.slow = time.AfterFunc(slowStart, s.release)
	return s, 0
}
