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

// throttle logs that limits.rate slows a feed down, or that a host does. The feeds that share a limit log that once for
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

// noteAnswer is [Hosts.noteAnswer], and logs when the host is slowed down more, and when that has ended.
func (t *throttle) noteAnswer(key hostKey, s *standing, a hostAnswer) {
	slow, changed := t.hosts.noteAnswer(key, s, a)
	switch {
	case changed && slow.rate > 0:
		t.log.Warn("a host has refused requests, so its feeds make fewer; set limits.rate to what the provider allows", "host", key.host, "status", a.status, "requests_per_minute", 60*slow.rate, "for", slow.calm)
	case changed:
		t.log.Info("a host has refused no requests for long, so its feeds make as many as before", "host", key.host)
	}
}
