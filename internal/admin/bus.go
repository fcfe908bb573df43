package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// Bus is a bus that feeds are copied to, or topics are served from.
type Bus struct {
	// Name is the configured name, and Kind the kind of bus, such as "nats".
	Name, Kind string
	// ServedOnly reports that no feed is copied to the bus. Such a bus counts for readiness
	// until it has answered once, which rules out a wrong address. When it fails later,
	// the server still answers readers and gives the reason. Without a ready backend they
	// would get only the load balancer's error.
	ServedOnly bool
	// Check returns nil if the bus answers. Its context ends after 2s.
	Check func(ctx context.Context) error
}

const (
	checkTimeout = 2 * time.Second
	// checkAge limits the age of a cached check of a bus. However many probes arrive, the
	// bus is asked once in that time.
	checkAge = time.Second
)

var errNoAnswer = fmt.Errorf("no answer within %v", checkTimeout)

// busCheck checks a bus, and caches the result.
type busCheck struct {
	Bus

	mu      sync.Mutex // protects at, err, ever and running
	at      time.Time  // of the last answer
	err     error      // the last answer
	ever    bool       // it has answered
	running chan struct{}
}

func (c *busCheck) name() string { return c.Name }

// isDown reports whether the last check has failed.
func (c *busCheck) isDown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

type busStatus struct {
	status.Bus
	unready bool
}

// checkBuses asks all buses concurrently.
func checkBuses(ctx context.Context, buses []*busCheck, redact *safetext.Redactor) []busStatus {
	return askAll(buses, func(c *busCheck) busStatus {
		at, ever, err := c.latestResult(ctx)
		return busStatus{Bus: c.describe(at, err, redact), unready: err != nil && (!c.ServedOnly || !ever)}
	})
}

// askAll calls ask for all concurrently, and returns the answers in the same order.
func askAll[T, A any](all []T, ask func(T) A) []A {
	answers := make([]A, len(all))
	var asked sync.WaitGroup
	for i, each := range all {
		asked.Go(func() { answers[i] = ask(each) })
	}
	asked.Wait()
	return answers
}

// describe returns the status of the bus after a check.
func (c *busCheck) describe(at time.Time, err error, redact *safetext.Redactor) status.Bus {
	b := status.Bus{Bus: c.Name, Kind: c.Kind, OK: err == nil, CheckedAt: formatTime(at)}
	if err != nil {
		b.Error = redact.Clip(err.Error(), longestError)
	}
	return b
}

// lastStatus returns the answer of the last check. It waits for an answer only if there has
// been none; if the last one is older than checkAge, it starts another check.
func (c *busCheck) lastStatus(ctx context.Context, redact *safetext.Redactor) status.Bus {
	c.mu.Lock()
	at, err := c.at, c.err
	if !at.IsZero() {
		c.startCheck(ctx)
	}
	c.mu.Unlock()
	if at.IsZero() {
		at, _, err = c.latestResult(ctx)
	}
	return c.describe(at, err, redact)
}

// startCheck starts a check unless one is running or the last answer is recent. c.mu is held.
func (c *busCheck) startCheck(ctx context.Context) {
	if c.running == nil && time.Since(c.at) >= checkAge {
		c.running = make(chan struct{})
		// The answer is for everyone, so it does not end with the request
		// that happened to ask first.
		go c.checkBus(context.WithoutCancel(ctx), c.running)
	}
}

// latestResult returns an answer that is at most checkAge old, and whether there has ever been
// a good one. It waits no longer than
// checkTimeout, even for a check that overruns its context: a second one is not
// started beside it.
func (c *busCheck) latestResult(ctx context.Context) (at time.Time, ever bool, err error) {
	c.mu.Lock()
	c.startCheck(ctx)
	running, ever := c.running, c.ever
	c.mu.Unlock()
	if running != nil {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		select {
		case <-running:
		case <-ctx.Done():
			return time.Now(), ever, errNoAnswer
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.ever, c.err
}

func (c *busCheck) checkBus(ctx context.Context, done chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.Check(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errNoAnswer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.err, c.running = time.Now(), err, nil
	c.ever = c.ever || err == nil
	close(done)
}
