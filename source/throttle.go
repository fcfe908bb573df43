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

// addWait counts a wait for the limit of the host that has just ended.
func (t *throttle) addWait(host string, limit *hostLimiter, wait time.Duration) {
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
	if t.waited < throttleReport {
		return
	}
	t.hosts.mu.Lock()
	// That a host is slow has been logged, and limits.rate is not the reason.
	begins := now.Sub(limit.throttled) > throttleGap+wait && limit.slow.rate == 0
	limit.throttled = now
	t.hosts.mu.Unlock()
	if begins {
		t.log.Info("limits.rate slows feeds of a host down; raise it if the provider allows more requests", "host", host, "requests_per_second", float64(limit.Limit()))
	}
}
