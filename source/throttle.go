package source

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// throttleReport is how long the requests of a feed wait for limits.rate in total before
	// that is logged.
	throttleReport = time.Second
	// throttleGap is the time without such a wait after which another stretch begins.
	throttleGap = time.Minute
)

// throttle logs that limits.rate slows a feed down. The feeds that share a limit log that once for
// each stretch of time in which it slows any of them down. It is safe for concurrent use.
type throttle struct {
	log   *slog.Logger
	hosts *Hosts

	mu     sync.Mutex // guards the fields below
	last   time.Time  // end of the last wait
	waited time.Duration
}

// addWait counts a wait for the limit that has just ended.
func (t *throttle) addWait(host string, perSecond float64, wait time.Duration) {
	if wait <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.last) > throttleGap+wait {
		t.waited = 0
	}
	t.last = now
	t.waited += wait
	if t.waited >= throttleReport && t.hosts.beginsThrottling(limiterKey{host, perSecond}, wait) {
		t.log.Info("limits.rate slows feeds of a host down; raise it if the provider allows more requests", "host", host, "requests_per_second", perSecond)
	}
}

// beginsThrottling records that a limit slows a feed down, and reports whether it slowed no feed
// down for a while before this wait.
func (h *Hosts) beginsThrottling(key limiterKey, wait time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.throttled == nil {
		h.throttled = make(map[limiterKey]time.Time)
	}
	now := time.Now()
	begins := now.Sub(h.throttled[key]) > throttleGap+wait
	h.throttled[key] = now
	return begins
}
