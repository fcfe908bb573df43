package source

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/feedbridge/feedbridge/internal/limit"
)

const (
	// startRequests is the number of requests of a client that count as its start. It is enough
	// to find the format and the last page of a feed. A feed with a backlog needs more, and they
	// are not delayed.
	startRequests = 8
	// startIdle is the time without a request after which the next one of a client is another
	// poll.
	startIdle = time.Second
)

// startPace delays the requests of clients that start. As long as some of them wait, it delays
// the polls of the others too, so that together they are not more. It never delays the requests
// of a client that is past its start and reads on. The zero startPace is ready. It is safe for
// concurrent use.
type startPace struct {
	once    sync.Once
	limiter *rate.Limiter
	// turn is held by the only request that waits for limiter. If all of them did, each would
	// have its time, and after a moment in which the process gets no processor all whose times
	// have passed would be sent at once.
	turn    *limit.Limit
	waiting atomic.Int64 // the number of clients that wait for a request of their start
}

// clientStart has the requests of one client for a [startPace]. The zero value is one that has made no
// request. It is safe for concurrent use.
type clientStart struct {
	requests atomic.Int64 // that were made, up to startRequests
	last     atomic.Int64 // the time of the last request, in nanoseconds
}

// wait waits until the client may make its next request.
func (p *startPace) wait(ctx context.Context, c *clientStart) error {
	p.once.Do(func() {
		p.limiter, p.turn = rate.NewLimiter(limit.StartRequests, limit.StartBurst), limit.New(1, 0)
	})
	idle := time.Since(time.Unix(0, c.last.Load())) >= startIdle
	starting := c.requests.Load() < startRequests
	defer func() { c.last.Store(time.Now().UnixNano()) }()
	switch {
	case starting:
		c.requests.Add(1)
		p.waiting.Add(1)
		defer p.waiting.Add(-1)
	case !idle || p.waiting.Load() == 0:
		return nil
	}
	if err := p.waitTurn(ctx); err != nil {
		return fmt.Errorf("waiting for the requests of other feeds that start: %w", err)
	}
	return nil
}

// waitTurn waits until another request may be sent.
func (p *startPace) waitTurn(ctx context.Context) error {
	slot, err := p.turn.Acquire(ctx)
	if err != nil {
		return err
	}
	defer slot.Release()
	return p.limiter.Wait(ctx)
}
