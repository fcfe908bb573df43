package kafka

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
)

const (
	// probeEvery is the interval at which an unreachable broker is probed.
	probeEvery = time.Second
	// probeTimeout is the time limit of one probe.
	probeTimeout = 2 * time.Second
)

// reconnects detects when a broker is reachable again after it was not. A Kafka client
// connects only for a request, and while all feeds wait there is none. So a broker to
// which a connection or a request failed is probed until it answers.
type reconnects struct {
	ctx context.Context // ends when the connection is closed
	// ping returns nil if a broker answers, and errGone if the cluster no longer has it. An
	// error that matches feed.ErrPermanent means that it answers and refuses the connection.
	ping func(ctx context.Context, broker int32) error

	mu       sync.Mutex
	next     context.Context // ended by announce when a broker is next found reachable again
	announce context.CancelFunc
	// suspects are the brokers to probe, by ID, each by a goroutine. The value is true if the
	// broker was found unreachable, and false if it is only known that a request has failed.
	suspects map[int32]bool
}

var errGone = errors.New("the cluster no longer has this broker")

func newReconnects(ctx context.Context, ping func(context.Context, int32) error) *reconnects {
	r := &reconnects{ctx: ctx, ping: ping, suspects: map[int32]bool{}}
	r.next, r.announce = context.WithCancel(context.Background())
	return r
}

// announced returns a context that ends when a broker that was unreachable is next
// found reachable again. Each call after that returns a new one.
func (r *reconnects) announced() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// anyUnreachable reports whether a broker was found unreachable and has not answered since.
func (r *reconnects) anyUnreachable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(r.suspects)), true)
}

// OnBrokerConnect is called when a connection is ready for use, or failed.
func (r *reconnects) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && !timedOut(err) {
		r.suspect(meta.NodeID, true)
	}
}

// OnBrokerE2E is called for every request, once it is answered or has failed.
func (r *reconnects) OnBrokerE2E(meta kgo.BrokerMetadata, _ int16, request kgo.BrokerE2E) {
	if request.Err() != nil {
		r.suspect(meta.NodeID, false)
	}
}

// suspect starts to probe a broker. It does not block. If unreachable is set, a connection to
// the broker failed. Otherwise a request failed, which proves nothing: a client that is closed
// fails its requests in flight.
func (r *reconnects) suspect(broker int32, unreachable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, probing := r.suspects[broker]
	r.suspects[broker] = r.suspects[broker] || unreachable
	if !probing && r.ctx.Err() == nil {
		go r.probeBroker(broker)
	}
}

// probeBroker probes a suspect until it is none any more.
func (r *reconnects) probeBroker(broker int32) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for r.probeOnce(broker) {
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			return
		}
	}
}

// probeOnce probes a suspect, and announces it if it is reachable again. It reports whether it
// is still a suspect.
func (r *reconnects) probeOnce(broker int32) bool {
	ctx, cancel := context.WithTimeout(r.ctx, probeTimeout)
	defer cancel()
	err := r.ping(ctx, broker)
	r.mu.Lock()
	defer r.mu.Unlock()
	// A broker that refuses is not probed again, because repeated attempts could lock the
	// account. The feeds retry with their own backoff.
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, feed.ErrPermanent) {
		r.suspects[broker] = true
		return true
	}
	if err == nil && r.suspects[broker] {
		r.announce()
		r.next, r.announce = context.WithCancel(context.Background())
	}
	delete(r.suspects, broker)
	return false
}
