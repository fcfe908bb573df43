package nats

import "sync"

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
