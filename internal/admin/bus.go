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

	mu      sync.Mutex    // protects the fields below
	at      time.Time     // of the last answer
	err     error         // the last answer
	ever    bool          // it has answered
	running chan struct{} // is closed by the check that is running; nil if none is
}

func (c *busCheck) name() string { return c.Name }

// isDown reports whether the last check has failed.
func (c *busCheck) isDown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// counts reports whether the bus counts for readiness.
func (c *busCheck) counts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ServedOnly || !c.ever
}

// checkBuses asks all buses concurrently.
func checkBuses(ctx context.Context, buses []*busCheck, redact *safetext.Redactor) []status.Bus {
	return askAll(buses, func(c *busCheck) status.Bus { return c.status(ctx, true, redact) })
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

// status returns an answer that is at most checkAge old if it is to be fresh, and the last one if not. It waits no
// longer than checkTimeout, even for a check that overruns its context: a second one is not started beside it.
func (c *busCheck) status(ctx context.Context, fresh bool, redact *safetext.Redactor) status.Bus {
	c.mu.Lock()
	if c.running == nil && time.Since(c.at) >= checkAge {
		c.running = make(chan struct{})
		// The answer is for everyone, so it does not end with the request that happened to ask first.
		go c.check(context.WithoutCancel(ctx), c.running)
	}
	at, err, running := c.at, c.err, c.running
	c.mu.Unlock()
	if running != nil && (fresh || at.IsZero()) {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		select {
		case <-running:
			c.mu.Lock()
			at, err = c.at, c.err
			c.mu.Unlock()
		case <-ctx.Done():
			at, err = time.Now(), errNoAnswer
		}
	}
	b := status.Bus{Bus: c.Name, Kind: c.Kind, OK: err == nil, CheckedAt: formatTime(at)}
	if err != nil {
		b.Error = redact.Clip(err.Error(), longestError)
	}
	return b
}

// check asks the bus, and closes done.
func (c *busCheck) check(ctx context.Context, done chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.Check(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errNoAnswer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.err, c.ever, c.running = time.Now(), err, c.ever || err == nil, nil
	close(done)
}
