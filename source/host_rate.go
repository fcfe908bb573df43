package source

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/feedbridge/feedbridge/internal/limit"
)

// hostKey names the feeds of a host with the same limits.rate. They share the limit.
type hostKey struct {
	host string
	rate float64
}

// hostLimiter is the rate limit of a [hostKey], as far as this copy has a share of it. Its fields are guarded by
// [Hosts].mu; the methods of rate.Limiter need no lock.
type hostLimiter struct {
	*rate.Limiter
	configured float64 // limits.rate
	share      float64 // this copy's part of the rate, of all members of a fleet
	slow       slowdown
	turn       *limit.Limit // of the request that waits for the Limiter
	used       time.Time    // when a client last used it
}

// A HostFeed is a feed of the configuration, as [Hosts.SetFeeds] counts it.
type HostFeed struct {
	URL  string
	Rate float64 // limits.rate
	Own  bool    // this copy runs it
}

// hostFeeds counts the feeds of a host with the same limits.rate: those of all members, and of this copy.
type hostFeeds struct{ all, own int }

// shareDelay is the time after an assignment from which on a share that has grown counts. By then members
// that have the same report of the bus have reduced theirs.
const shareDelay = 2 * time.Second

// SetFeeds divides the rate of each host among the members of a fleet: this copy has rate × own feeds of the host /
// all feeds of it. It is called for each assignment; members is 1 without a fleet. Nothing is exchanged,
// since all members compute the same owners from the same feeds.
//
// The shares add up to 1, so members that act on the same assignment keep to the rate together. While the assignment
// changes, a share that shrinks counts at once and one that grows 2 s later. A member that had no feed of the host
// begins without a burst: its first request comes after 1/(rate × share). The sum can be larger by the
// share that has moved while a member is cut off from the bus and continues with its last assignment, and while
// members have different feeds. Each restart may also add a request, since a limit has no memory.
//
// A host that no feed's URL names, as the target of a redirect or of a link, gives each member the same share. If
// only feeds of other members name it, this copy has the share of one feed; the sum is larger by that.
func (h *Hosts) SetFeeds(feeds []HostFeed, members int) {
	counts := make(map[hostKey]hostFeeds, len(feeds))
	for _, f := range feeds {
		if u, err := url.Parse(f.URL); err == nil {
			key := hostKey{hostPort(u), f.Rate}
			n := counts[key]
			n.all++
			if f.Own {
				n.own++
			}
			counts[key] = n
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.feeds, h.members, h.assigned = counts, members, time.Now()
}

// shareOf returns this copy's part of the rate of a host. The caller holds h.mu.
func (h *Hosts) shareOf(key hostKey) float64 {
	n := h.feeds[key]
	switch {
	case h.members <= 1:
		return 1
	case n.all == 0:
		return 1 / float64(h.members)
	}
	return float64(max(n.own, 1)) / float64(n.all)
}

// startGap is the time between the starts of two feeds of a host, unless more are needed.
const startGap = time.Second

// StartGap returns the host of a URL, and the time between the starts of two of its feeds: a second for all
// members of a fleet together, or as much less as makes the feeds of this copy start within every. It is zero for feeds
// with a limits.rate other than the default.
func (h *Hosts) StartGap(feedURL string, rate float64, every time.Duration) (host string, gap time.Duration) {
	u, err := url.Parse(feedURL)
	if err != nil || rate != Defaults().Limits.Rate {
		return "", 0
	}
	key := hostKey{hostPort(u), rate}
	h.mu.Lock()
	defer h.mu.Unlock()
	return key.host, min(time.Duration(float64(startGap)/h.shareOf(key)), every/time.Duration(max(h.feeds[key].own, 1)))
}

// limiterIdle is the time after which the limit of a host that no client uses is dropped. It is longer than any
// wait that a host can ask for.
const limiterIdle = 2 * maxWait

// limiter returns the rate limit of a host.
func (h *Hosts) limiter(key hostKey) *hostLimiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, share := time.Now(), h.shareOf(key)
	l := h.limiters[key]
	if l == nil {
		h.dropIdle(now)
		l = &hostLimiter{Limiter: rate.NewLimiter(0, 0), configured: key.rate, share: share, turn: limit.New(1, 0)}
		l.apply()
		if share == 1 {
			l.Limiter = rate.NewLimiter(l.Limit(), l.Burst()) // full
		}
		h.limiters[key] = l
	}
	if share < l.share || now.Sub(h.assigned) >= shareDelay {
		l.share = share
		l.apply()
	}
	l.used = now
	return l
}

// dropIdle makes room for another host. Redirects lead to any number of hosts in time, so the limits of
// those that no client uses any more are dropped. It looks at all of them when their number has doubled.
func (h *Hosts) dropIdle(now time.Time) {
	if h.limiters == nil {
		h.limiters = make(map[hostKey]*hostLimiter)
	}
	if len(h.limiters) < h.dropAt {
		return
	}
	maps.DeleteFunc(h.limiters, func(_ hostKey, l *hostLimiter) bool { return now.Sub(l.used) > limiterIdle })
	h.dropAt = 2*len(h.limiters) + 100
}

// apply makes the rate of the limiter that of its fields.
func (l *hostLimiter) apply() {
	requests := l.share * cmp.Or(l.slow.rate, l.configured)
	if l.Limit() == rate.Limit(requests) {
		return
	}
	l.SetLimit(rate.Limit(requests))
	// The burst is the number of requests of a tenth of a second. It hides scheduling
	// jitter, and is too small to be a load for the host.
	l.SetBurst(max(1, int(math.Min(requests/10, 100))))
}

// waitForRate waits until the rate of a host allows a request. One of the requests that wait has a reservation, so the
// others wait by the rate at the time when it is their turn.
func (h *Hosts) waitForRate(ctx context.Context, key hostKey) error {
	l := h.limiter(key)
	if l.Allow() {
		return nil
	}
	turn, err := l.turn.Acquire(ctx)
	if err == nil {
		defer turn.Release()
		l = h.limiter(key)
		err = l.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("waiting for the rate limit of %.3g requests a second (limits.rate): %w", float64(l.Limit()), err)
	}
	return nil
}

// slowdown is the rate of a host that has answered 429 to feeds with the default of limits.rate. The first 429 makes
// it one request a minute: some hosts want that, and announce nothing. Without a 429 for the time calm the rate doubles,
// until it is the configured one again. Another 429 halves it, to one request a minute at least, and doubles calm. So a
// host that stays strict is asked too often only once a day in the end. The zero slowdown is none.
type slowdown struct {
	rate           float64 // requests per second; zero if there is none
	calm           time.Duration
	status         int       // of the last refusal
	since, changed time.Time // the beginning, and the last change of the rate
}

const (
	slowestRate       = 1.0 / 60
	leastCalm         = time.Hour
	mostCalm          = 24 * time.Hour
	mostRefusalsShown = 100
)

// slowDown reduces the rate after a refusal.
func (l *hostLimiter) slowDown(now time.Time, status int) {
	s := &l.slow
	if s.rate == 0 {
		*s = slowdown{rate: slowestRate, calm: leastCalm, since: now}
	} else {
		s.rate, s.calm = max(s.rate/2, slowestRate), min(2*s.calm, mostCalm)
	}
	s.status, s.changed = status, now
	l.apply()
	l.AllowN(now, l.Burst()) // the request that was refused was one
}

// ease raises the rate after a good answer if there was no refusal for long enough, and reports whether that ends
// the slowdown.
func (l *hostLimiter) ease(now time.Time) (ended bool) {
	if l.slow.rate == 0 || now.Sub(l.slow.changed) < l.slow.calm {
		return false
	}
	l.slow.rate, l.slow.changed = 2*l.slow.rate, now
	if ended = l.slow.rate >= l.configured; ended {
		l.slow = slowdown{}
	}
	l.apply()
	return ended
}

// A SlowHost is a host that is asked less often than limits.rate allows, because it has refused requests.
type SlowHost struct {
	Host   string  // with its port
	Rate   float64 // requests per second, of all members of a fleet together
	Share  float64 // this copy's part of it
	Status int     // of the last refusal
	// Since is the first refusal, and Eases when the rate is doubled next, if the host refuses none until then.
	Since, Eases time.Time
}

// SlowHosts returns the hosts that are slowed down, at most 100 of them, in order.
func (h *Hosts) SlowHosts() (slow []SlowHost) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.limiters {
		if s := l.slow; s.rate > 0 {
			slow = append(slow, SlowHost{key.host, s.rate, l.share, s.status, s.since, s.changed.Add(s.calm)})
		}
	}
	slices.SortFunc(slow, func(a, b SlowHost) int { return cmp.Compare(a.Host, b.Host) })
	return slow[:min(len(slow), mostRefusalsShown)]
}

// spacing returns the time between two polls of a feed with which the feeds of its host need no more requests than
// a host that refused some allows; zero for any other host.
func (h *Hosts) spacing(key hostKey) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.limiters[key]; l != nil && l.slow.rate > 0 {
		return time.Duration(float64(max(h.feeds[key].all, 1)) / l.slow.rate * float64(time.Second))
	}
	return 0
}
