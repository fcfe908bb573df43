package serve

import (
	"context"
	"sync"
	"time"
)

// The pace that a client has to keep to be sure of its place while others wait for
// one: a piece in pieceTime, once patience is used up.
const (
	patience  = 2 * time.Second
	pieceTime = 2 * time.Second
)

// places are taken by clients, a number of them at a time. When all are taken, the
// client that has kept us waiting longest loses its place to the next one. A client
// that keeps the pace never does, and so none can keep others out for long.
type places struct {
	most int

	mu    sync.Mutex // guards what follows
	taken map[*place]struct{}
	left  chan struct{} // closed when somebody leaves
}

// place is that of one client. Its methods may be called from any goroutine.
type place struct {
	of  *places
	cut func() // ends the connection to the client, so that whoever writes to it is told

	mu     sync.Mutex    // guards what follows
	since  time.Time     // when we began to wait for the client; zero while we do not
	waited time.Duration // before that, less what it may take for what it took
}

func newPlaces(most int) *places {
	return &places{most: most, taken: map[*place]struct{}{}, left: make(chan struct{})}
}

// take takes a place for a client, which is waited for from now on. cut is called if
// it loses the place, by another goroutine. It fails when ctx ends first.
func (p *places) take(ctx context.Context, cut func()) (*place, error) {
	for {
		taken, left, in := p.try(cut)
		if taken != nil {
			return taken, nil
		}
		timer := time.NewTimer(in)
		select {
		case <-left:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

// try takes a place if there is one, or somebody is so slow that there is. If not,
// it says what to wait for: that somebody leaves, or some time.
func (p *places) try(cut func()) (taken *place, left <-chan struct{}, in time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.taken) >= p.most {
		now := time.Now()
		var slowest *place
		longest := time.Duration(-1)
		for other := range p.taken {
			if behind := other.behind(now); behind > longest {
				slowest, longest = other, behind
			}
		}
		if longest < patience {
			return nil, p.left, patience - longest
		}
		delete(p.taken, slowest)
		slowest.cut()
	}
	taken = &place{of: p, cut: cut, since: time.Now()}
	p.taken[taken] = struct{}{}
	return taken, nil, 0
}

// leave gives the place back. It may be called again, and after it was lost.
func (l *place) leave() {
	p := l.of
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.taken[l]; ok {
		delete(p.taken, l)
		close(p.left)
		p.left = make(chan struct{})
	}
}

// wait says that the client is waited for from now on.
func (l *place) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		l.since = time.Now()
	}
}

// took says that the client is not waited for any more, and took n bytes.
func (l *place) took(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() {
		l.waited += time.Since(l.since)
	}
	// What it takes more quickly than it has to is not saved up for later.
	l.since, l.waited = time.Time{}, max(0, l.waited-time.Duration(n)*pieceTime/piece)
}

// forget begins anew, as with another request.
func (l *place) forget(waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.waited = time.Time{}, 0
	if waiting {
		l.since = time.Now()
	}
}

// behind is for how long the client has kept us waiting, less what it may.
func (l *place) behind(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return l.waited
	}
	return l.waited + now.Sub(l.since)
}
