package kafka

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// producerIdle is how long a producer stays open after a commit. It is longer than the default
	// interval of polls, so a feed that publishes with each poll keeps its producer.
	producerIdle = 2 * time.Minute
	// If more than fewProducers are open, as while 10,000 feeds start, those that commit then stay open
	// for crowdedIdle only. A feed with a backlog commits more often than that.
	fewProducers = 256
	crowdedIdle  = 5 * time.Second
)

// idleProducer is the producer of a sink. It has ten goroutines, connections and 100 KiB of memory, so it
// is closed when the sink has not committed for a while. The sink begins its next commit like one that
// has not committed before: it compares its checkpoint, and initializes the transactional id.
//
// Between two commits the producer belongs to its timer: claim it before you use it.
type idleProducer struct {
	producer *kgo.Client // nil if there is none

	mu     sync.Mutex
	expiry *time.Timer // nil while the sink uses the producer
}

// park calls closeProducer after d, unless the producer is claimed before.
func (p *idleProducer) park(d time.Duration, closeProducer func(*kgo.Client)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var expiry *time.Timer
	expiry = time.AfterFunc(d, func() {
		p.mu.Lock()
		if p.expiry != expiry {
			p.mu.Unlock()
			return
		}
		producer := p.producer
		p.producer, p.expiry = nil, nil
		p.mu.Unlock() // a commit does not wait for the end of the old producer
		closeProducer(producer)
	})
	p.expiry = expiry
}

// claim stops the timer. From then on the producer belongs to the caller. It is nil if it was closed.
func (p *idleProducer) claim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expiry != nil {
		p.expiry.Stop()
		p.expiry = nil
	}
}

// isOpen reports whether there is a producer, claimed or not.
func (p *idleProducer) isOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.producer != nil
}
