package source

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/readahead"
)

// Hosts has what the clients of a process share: the rate limit of each host and the connections. So a thousand
// feeds of one host cause no more requests than the limit for one. The zero Hosts is ready for use.
type Hosts struct {
	// Dial makes the connections, also to hosts that must have a public address, which it does
	// not check. Nil means a [net.Dialer]. It must be set before the first client is made.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// PageBudget bounds the memory of pages that are requested ahead of their turn. Nil means
	// no bound but that of each page. It must be set before the first client is made.
	PageBudget *readahead.Budget

	mu         sync.Mutex // guards the fields below, and those of their values
	limiters   map[hostKey]*hostLimiter
	transports map[transportKey]*renewedTransport
	ahead      map[string]*limit.Limit // by host, of the pages that are requested ahead
	feeds      map[hostKey]hostFeeds   // all of the last call of SetFeeds
	members    int                     // of the fleet, then
	assigned   time.Time               // when that was
	dropAt     int                     // the number of limiters at which those that are idle are dropped
}

// standing has what a feed may do after the last answers that it got. It is guarded by [Hosts].mu. The zero
// value is that of a feed that has made no request.
type standing struct {
	until   time.Time // the end of the wait that it was asked for
	refused bool      // it was answered 429, and nothing good since
}

// checkRefused returns an error if a feed must not make a request to the host now. It does not wait,
// because a feed that waits could not report the reason. The host may mean one page with 429, a few, or all, so
// other feeds make their requests, at the rate of the host.
func (h *Hosts) checkRefused(host string, s *standing) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := time.Until(s.until)
	if left <= 0 {
		return nil
	}
	return feed.RetryAfter(fmt.Errorf("%w: %s asked to wait another %v (Retry-After or X-RateLimit)", feed.ErrNotRequested, host, left.Round(100*time.Millisecond)), left)
}

// hostAnswer is what an answer of a host shows about its limits.
type hostAnswer struct {
	status  int
	sent    time.Time     // when the request was
	refused bool          // because there were too many requests
	wait    time.Duration // that the host asks for
}

// noteAnswer notes a host's answer to a feed. A shorter wait does not end a longer one. It returns the slowdown of the
// host, and whether it has become stronger or has ended.
func (h *Hosts) noteAnswer(key hostKey, s *standing, a hostAnswer) (slow slowdown, changed bool) {
	l := h.limiter(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	// A feed that is refused again and again, whatever the rate is, must not slow down the others. Of those that
	// were refused at the same time one counts.
	if a.refused && !s.refused && a.sent.After(l.slow.changed) && key.rate == Defaults().Limits.Rate {
		l.slowDown(now, a.status)
		changed = true
	}
	switch until := now.Add(a.wait); {
	case a.status/100 == 2, a.status == http.StatusNotModified:
		s.refused = false
		changed = l.ease(now)
	case a.refused, a.wait > 0 && a.status == http.StatusServiceUnavailable:
		if until.After(s.until) {
			s.until = until
		}
		s.refused = s.refused || a.refused
	}
	return l.slow, changed
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

// acquireAhead allows another page to be requested ahead from the host, unless it returns nil.
func (h *Hosts) acquireAhead(host string) *limit.Slot {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ahead == nil {
		h.ahead = make(map[string]*limit.Limit)
	}
	if h.ahead[host] == nil {
		h.ahead[host] = limit.New(limit.PagesOfHost, 0)
	}
	return h.ahead[host].TryAcquire()
}

// transportKey has the settings in which transports differ. Clients that agree
// in them share one, and its connections.
type transportKey struct {
	connect time.Duration
	tls     credential.ClientFiles
	guarded bool // only hosts with a public address
}

// idlePerHost limits the idle connections to one host that are kept for the next poll. A
// thousand feeds that are polled every ten seconds have a handful of requests under way at
// any time, and more if the host needs a second to answer. With fewer idle connections than their
// number varies by, each burst would make new ones.
const idlePerHost = 100
