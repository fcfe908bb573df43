package nats

import (
	"context"
	"fmt"
	"sync"
)

// maxBatches limits the batches that one connection sends to a stream at a time. A server has at
// most 50 incomplete batches in a stream, and drops those beyond: their commits fail. So five copies
// with many feeds in one stream can start together.
const maxBatches = 10

// batchSlots limits the batches that are sent at a time, by stream. It holds a channel for each
// stream that had a sink. It is safe for concurrent use. The zero batchSlots is ready.
type batchSlots struct {
	mu       sync.Mutex
	byStream map[string]chan struct{}
}

// ofStream returns the slots of a stream: a batch is sent while the channel has an element for it.
func (b *batchSlots) ofStream(stream string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	slots := b.byStream[stream]
	if slots == nil {
		slots = make(chan struct{}, maxBatches)
		if b.byStream == nil {
			b.byStream = map[string]chan struct{}{}
		}
		b.byStream[stream] = slots
	}
	return slots
}

// commitContext returns the context of a commit. One with a batch first waits for a slot of the
// stream, as long as a commit may take. The commit's own time begins after that: a batch that is sent
// and given up stays with the server for 10 s, without a slot. release must be called when the commit
// is stored or has failed. After an error nothing was sent.
func (s *Sink) commitContext(ctx context.Context, batch bool) (_ context.Context, release func(), err error) {
	limit := 3 * s.client.cfg.Timeout
	free := func() {}
	if batch {
		waiting, cancel := contextWithTimeout(ctx, limit)
		defer cancel()
		select {
		case s.batches <- struct{}{}:
			free = func() { <-s.batches }
		case <-waiting.Done():
			return nil, nil, fmt.Errorf("waiting for other commits to stream %s, of which %d are made at a time: %w; if this persists, divide the feeds among several streams",
				s.topic.Stream.Name, maxBatches, causeOf(waiting, waiting.Err()))
		}
	}
	ctx, cancel := contextWithTimeout(ctx, limit)
	return ctx, func() { cancel(); free() }, nil
}
