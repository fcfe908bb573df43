package kafka

import (
	"container/list"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// producerIdle is how long a producer stays open after a commit. It is longer than the default
	// interval of polls, so a feed that publishes with each poll keeps its producer.
	producerIdle = 2 * time.Minute
	// If more than fewProducers are idle, as while 10,000 feeds start, they stay open for
	// crowdedIdle only. A feed with a backlog commits more often than that.
	fewProducers = 256
	crowdedIdle  = 5 * time.Second
)

// idleProducers closes the producers of sinks that have not committed for a while. A producer has
// ten goroutines, connections and 100 KiB of memory. A sink whose producer was closed begins its
// next commit like a sink that has not committed before: it compares its checkpoint, and initializes
// the transactional id.
//
// Between two commits the producer of a sink is in the queue, and belongs to idleProducers. The
// sink claims it before it uses or closes it. All methods are safe for concurrent use. The zero
// idleProducers lacks closeProducer.
type idleProducers struct {
	closeProducer func(*kgo.Client)

	mu    sync.Mutex
	queue list.List   // of *idleProducer; the one that is idle for longest first
	timer *time.Timer // nil before the first park
}

// idleProducer is the producer of a sink. Between two commits it belongs to idleProducers: claim it
// before you use it.
type idleProducer struct {
	producer *kgo.Client // nil if there is none
	// Owned by idleProducers.
	queued    *list.Element // nil while the sink uses the producer
	idleSince time.Time
}

// park puts the producer of t into the queue.
func (p *idleProducers) park(t *idleProducer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.idleSince, t.queued = time.Now(), p.queue.PushBack(t)
	p.resetTimer()
}

// claim takes the producer of t out of the queue. From then on t.producer belongs to the caller. It
// is nil if it was closed.
func (p *idleProducers) claim(t *idleProducer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.queued != nil {
		p.queue.Remove(t.queued)
		t.queued = nil
	}
}

// isOpen reports whether t has a producer, claimed or not.
func (p *idleProducers) isOpen(t *idleProducer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return t.producer != nil
}

// stop stops the timer.
func (p *idleProducers) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}

// resetTimer sets the timer to the time at which the next producer is to be closed.
func (p *idleProducers) resetTimer() {
	first := p.queue.Front()
	if first == nil {
		return
	}
	wait := time.Until(first.Value.(*idleProducer).idleSince.Add(p.limit()))
	if p.timer == nil {
		p.timer = time.AfterFunc(wait, p.closeExpired)
		return
	}
	p.timer.Reset(wait)
}

// limit returns how long a producer may be idle.
func (p *idleProducers) limit() time.Duration {
	if p.queue.Len() > fewProducers {
		return crowdedIdle
	}
	return producerIdle
}

// closeExpired closes the producers that are idle for too long.
func (p *idleProducers) closeExpired() {
	for _, producer := range p.takeExpired() {
		p.closeProducer(producer)
	}
}

// takeExpired takes them from their sinks.
func (p *idleProducers) takeExpired() (expired []*kgo.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for first := p.queue.Front(); first != nil; first = p.queue.Front() {
		t := first.Value.(*idleProducer)
		if time.Since(t.idleSince) < p.limit() {
			break
		}
		p.queue.Remove(first)
		expired = append(expired, t.producer)
		t.producer, t.queued = nil, nil
	}
	p.resetTimer()
	return expired
}
