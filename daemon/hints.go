package daemon

import (
	"sync"
)

// hints forwards the commits that were observed on a bus to its feeds. The zero
// value is ready. It is safe for concurrent use.
type hints struct {
	mu      sync.RWMutex
	byTopic map[string][]*hintedFeed
}

// hintedFeed is a feed that gets hints, by [bridge.Bridge.Hint].
type hintedFeed struct{ hint func(writer string) }

// add passes the hints of a topic to a feed until remove is called.
func (h *hints) add(topic string, hint func(writer string)) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byTopic == nil {
		h.byTopic = map[string][]*hintedFeed{}
	}
	added := &hintedFeed{hint}
	h.byTopic[topic] = append(h.byTopic[topic], added)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		var left []*hintedFeed
		for _, f := range h.byTopic[topic] {
			if f != added {
				left = append(left, f)
			}
		}
		if h.byTopic[topic] = left; left == nil {
			delete(h.byTopic, topic)
		}
	}
}

// send passes a commit of writer to the feeds of a topic.
func (h *hints) send(topic, writer string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, f := range h.byTopic[topic] {
		f.hint(writer)
	}
}
