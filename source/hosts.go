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

// Hosts has what the clients of a process share: the rate limit of each host, the feeds that a
// host refuses, and the connections. So a thousand feeds of one host cause no more
// requests than the limit for one. The zero Hosts is ready for use.
type Hosts struct {
	// Dial makes the connections, also to hosts that must have a public address, which it does
	// not check. Nil means a [net.Dialer]. It must be set before the first client is made.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// PageBudget bounds the memory of pages that are requested ahead of their turn. Nil means
	// no bound but that of each page. It must be set before the first client is made.
	PageBudget *readahead.Budget

	starts startPace

	mu         sync.Mutex // guards the fields below, and those of their values
	limiters   map[hostKey]*hostLimiter
	refusals   map[string]*refusals // by host
	transports map[transportKey]*http.Transport
	ahead      map[string]*limit.Limit // by host, of the pages that are requested ahead
	feeds      map[hostKey]hostFeeds   // all of the last call of SetFeeds
	members    int                     // of the fleet, then
	assigned   time.Time               // when that was
	dropAt     int                     // the number of limiters at which those that are idle are dropped
}

const (
	// turnTime is the time between the requests of two feeds that a host has refused. Most hosts
	// answer within it.
	turnTime = time.Second
	// turnCheck limits the wait for a turn, because the host may answer another feed meanwhile.
	turnCheck = time.Minute
)

// refusals has what a host that answers 429 asks for. It may mean one page, a few, or all, so a feed
// that the host has not refused makes its requests as always. The others ask one at a time after the
// longest of their waits, until the host answers any feed.
type refusals struct {
	worked bool      // the host has answered a feed
	until  time.Time // the end of the waits; zero if it has answered a feed since
	turn   time.Time // when the next feed may ask
}

// standing has what a feed may do after the last answers that it got. It is guarded by [Hosts].mu. The zero
// value is that of a feed that has made no request.
type standing struct {
	until   time.Time // the end of the wait that it was asked for
	refused bool      // it was answered 429, and nothing good since
	worked  bool      // it has got a good answer
}

// checkRefused returns an error if a feed must not make a request to the host now. It does not wait,
// because a feed that waits could not report the reason.
func (h *Hosts) checkRefused(host string, s *standing) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	left := s.until.Sub(now)
	if r := h.refusals[host]; s.refused && r != nil && !r.until.IsZero() {
		turn := max(r.until.Sub(now), r.turn.Sub(now))
		if left <= 0 && turn <= 0 {
			r.turn = now.Add(turnTime)
		}
		left = max(left, min(turn, turnCheck))
	}
	if left <= 0 {
		return nil
	}
	return feed.RetryAfter(fmt.Errorf("%w: %s asked to wait another %v (Retry-After or RateLimit)", feed.ErrNotRequested, host, left.Round(100*time.Millisecond)), left)
}

// hostAnswer is what an answer of a host shows about its limits.
type hostAnswer struct {
	status    int
	sent      time.Time     // when the request was
	refused   bool          // because there were too many requests
	wait      time.Duration // that the host asks for
	announced float64       // the rate that it asks for; zero if that is not known
}

// noteAnswer notes a host's answer to a feed. A shorter wait does not end a longer one. It returns the slowdown of the
// host, and whether it has become stronger or has ended.
func (h *Hosts) noteAnswer(key hostKey, s *standing, a hostAnswer) (slow slowdown, changed bool) {
	l := h.limiter(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	r := h.refusals[key.host]
	if r == nil {
		r = &refusals{}
		h.refusals[key.host] = r
	}
	until := now.Add(a.wait)
	// A feed that is refused again and again, whatever the rate is, must not slow down the others. Of those that
	// were refused at the same time one counts.
	if a.refused && !s.refused && a.sent.After(l.slow.changed) && key.rate == Defaults().Limits.Rate {
		l.slowDown(now, a.status, a.announced)
		changed = true
	}
	switch {
	case a.status/100 == 2, a.status == http.StatusNotModified:
		s.worked, s.refused = true, false
		r.worked, r.until = true, time.Time{}
		changed = l.ease(now)
	case a.refused, a.wait > 0 && a.status == http.StatusServiceUnavailable:
		if until.After(s.until) {
			s.until = until
		}
		s.refused = s.refused || a.refused
		// A feed that never worked shows nothing about a host that has answered others.
		if a.refused && a.wait > 0 && (s.worked || !r.worked) && until.After(r.until) {
			r.until = until
		}
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
