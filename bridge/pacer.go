package bridge

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/feedbridge/feedbridge/internal/limit"
)

// A Pacer spreads over time what many bridges would do in the same moment: start, and go on after
// an outage of their bus. One after the other they get times that are 1/[limit.Starts] of a second
// apart. So a few feeds start at once, and no more first polls are made upstream in a second. At most
// [limit.Starting] of them are starting at a time: if they need longer than their times are apart,
// because of the bus or the limit of requests, the others wait without a goroutine. Before that, the
// feeds of one host get times of their own, so that the host does not get their first polls in a burst. It is
// safe for concurrent use.
type Pacer struct {
	starts   *rate.Limiter
	starting *limit.Limit

	mu   sync.Mutex           // guards next
	next map[string]time.Time // of the next start, by host; as many as were configured
}

// NewPacer returns a Pacer for the feeds of a process.
func NewPacer() *Pacer {
	return &Pacer{starts: rate.NewLimiter(limit.Starts, 1), starting: limit.New(limit.Starting, limit.SlowStart), next: map[string]time.Time{}}
}

// fullWait is the least time until a feed tries again to start when too many are starting.
const fullWait = time.Second

// delayStart reserves the start of a feed and returns the wait until it.
func (p *Pacer) delayStart(host string, gap time.Duration) time.Duration {
	if p == nil {
		return 0
	}
	ofHost, start := p.delayOfHost(host, gap), p.starts.Reserve()
	if wait := start.Delay(); ofHost <= wait {
		return wait
	}
	start.Cancel() // for others: feeds of a host that wait for each other are no burst
	return ofHost
}

// delayOfHost reserves the next start of a feed of a host and returns the wait until it. The starts are gap apart; the
// first [limit.HostStarts] do not wait, also after a time without starts.
func (p *Pacer) delayOfHost(host string, gap time.Duration) time.Duration {
	if gap <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, next := time.Now(), p.next[host]
	if first := now.Add(-(limit.HostStarts - 1) * gap); next.Before(first) {
		next = first
	}
	p.next[host] = next.Add(gap)
	return max(next.Sub(now), 0)
}

// delay reserves the next start and returns the wait until it. A nil Pacer does not delay.
func (p *Pacer) delay() time.Duration {
	if p == nil {
		return 0
	}
	return p.starts.Reserve().Delay()
}

// begin begins the start of a feed whose time has come: its first step, to the end of the first commit.
// The slot must be released; without a Pacer it is nil. If too many feeds are starting, begin reserves
// another start, and returns the time until it.
func (p *Pacer) begin() (start *limit.Slot, wait time.Duration) {
	if p == nil {
		return nil, 0
	}
	if start = p.starting.TryAcquire(); start == nil {
		wait = max(p.delay(), fullWait)
	}
	return start, wait
}
