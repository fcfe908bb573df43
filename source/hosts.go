package source

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/feedbridge/feedbridge/feed"
)

// Hosts has what the clients of a process share: the rate limit of each host, the pause that
// a host has asked for, and the connections. So a thousand feeds of one host cause no more
// requests than the limit for one. The zero Hosts is ready for use.
type Hosts struct {
	// Dial makes the connections. Nil means a [net.Dialer]. It must be set before the
	// first client is made.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu         sync.Mutex // guards the fields below
	limiters   map[limiterKey]*rate.Limiter
	pauses     map[string]time.Time // by host, the end of the pause that it asked for
	transports map[transportKey]*http.Transport
}

type limiterKey struct {
	host string
	rate float64
}

// waitForHost waits until the rate limit allows a request to the host. If the host has asked
// for a pause, it returns an error at once, because a feed that waits here could not report
// the reason.
func (h *Hosts) waitForHost(ctx context.Context, host string, perSecond float64) error {
	h.mu.Lock()
	left := time.Until(h.pauses[host])
	if left <= 0 {
		delete(h.pauses, host)
	}
	key := limiterKey{host, perSecond}
	limiter := h.limiters[key]
	if limiter == nil {
		if h.limiters == nil {
			h.limiters = make(map[limiterKey]*rate.Limiter)
		}
		// The burst is the number of requests of a tenth of a second. It hides scheduling
		// jitter, and is too small to be a load for the host.
		limiter = rate.NewLimiter(rate.Limit(perSecond), max(1, int(math.Min(perSecond/10, 100))))
		h.limiters[key] = limiter
	}
	h.mu.Unlock()

	if left > 0 {
		return feed.RetryAfter(fmt.Errorf("not requested: %s asked to wait another %v (Retry-After)", host, left.Round(100*time.Millisecond)), left)
	}
	if err := limiter.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the rate limit of %v requests a second (limits.rate): %w", perSecond, err)
	}
	return nil
}

// pauseHost keeps requests away from host for d. A shorter pause does not end a
// longer one.
func (h *Hosts) pauseHost(host string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pauses == nil {
		h.pauses = make(map[string]time.Time)
	}
	if until := time.Now().Add(d); until.After(h.pauses[host]) {
		h.pauses[host] = until
	}
}

// hostPort returns the host and port of u, in lower case and with the default port of its
// scheme, so that two hosts can be compared.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
