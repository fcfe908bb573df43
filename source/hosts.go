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
	"github.com/feedbridge/feedbridge/readahead"
)

// Hosts has what the clients of a process share: the rate limit of each host, the pause that
// a host has asked for, and the connections. So a thousand feeds of one host cause no more
// requests than the limit for one. The zero Hosts is ready for use.
type Hosts struct {
	// Dial makes the connections. Nil means a [net.Dialer]. It must be set before the
	// first client is made.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// PageBudget bounds the memory of pages that are requested ahead of their turn. Nil means
	// no bound but that of each page. It must be set before the first client is made.
	PageBudget *readahead.Budget

	starts startPace

	mu         sync.Mutex // guards the fields below
	limiters   map[limiterKey]*rate.Limiter
	throttled  map[limiterKey]time.Time // when the limit last slowed a feed down
	pauses     map[string]time.Time     // by host, the end of the pause that it asked for
	transports map[transportKey]*http.Transport
	ahead      map[string]int // by host, the number of pages that are requested ahead
}

type limiterKey struct {
	host string
	rate float64
}

// waitForHost waits until the rate limit allows a request to the host, and returns how long. If the host has asked
// for a pause, it returns an error at once, because a feed that waits here could not report
// the reason.
func (h *Hosts) waitForHost(ctx context.Context, host string, perSecond float64) (time.Duration, error) {
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
		return 0, feed.RetryAfter(fmt.Errorf("not requested: %s asked to wait another %v (Retry-After)", host, left.Round(100*time.Millisecond)), left)
	}
	if limiter.Allow() {
		return 0, nil
	}
	start := time.Now()
	if err := limiter.Wait(ctx); err != nil {
		return 0, fmt.Errorf("waiting for the rate limit of %v requests a second (limits.rate): %w", perSecond, err)
	}
	return time.Since(start), nil
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

// acquireAhead allows another page to be requested ahead from the host, unless aheadPerHost are.
func (h *Hosts) acquireAhead(host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ahead[host] >= aheadPerHost {
		return false
	}
	if h.ahead == nil {
		h.ahead = make(map[string]int)
	}
	h.ahead[host]++
	return true
}

func (h *Hosts) releaseAhead(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ahead[host]--; h.ahead[host] == 0 {
		delete(h.ahead, host)
	}
}

// transportKey has the settings in which transports differ. Clients that agree
// in them share one, and its connections.
type transportKey struct {
	connect time.Duration
	header  int64
	tls     TLS
}

// idlePerHost limits the idle connections to one host that are kept for the next poll. A
// thousand feeds that are polled every ten seconds have a handful of requests under way at
// any time, and more if the host needs a second to answer. With fewer idle connections than their
// number varies by, each burst would make new ones.
const idlePerHost = 100

// aheadPerHost limits the pages that all feeds of a process request ahead from one host at a time,
// so that its connections can be reused.
const aheadPerHost = 16
