package message

import (
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// HeaderEncoder returns the headers of one message after the other. The entities of a feed mostly
// have the same header names in the same order, so it keeps the headers of the last message and
// replaces the values in them, which takes less time than [AppendEvent].
//
// It refers to the headers of the last entity, so the memory of an entity must not be used again
// between two calls. It is for one goroutine at a time.
type HeaderEncoder struct {
	feedName string
	events   *Events
	sequence uint64      // of the last message
	fields   feed.Header // of the last message
	// own are the headers of the last entity, with which fields begins. They are nil if fields
	// cannot be used again.
	own feed.Header
	// time is the one whose text is in fields: many entities of a page have the same.
	time time.Time
}

// NewHeaderEncoder returns an encoder for entities of a feed. The messages are events, unless events is nil, with
// the numbers after sequence.
func NewHeaderEncoder(feedName string, events *Events, sequence uint64) *HeaderEncoder {
	return &HeaderEncoder{feedName: feedName, events: events, sequence: sequence}
}

// Encode returns what [AppendEvent] does. The slice is valid until the next call, and its fields must not
// be changed. sameNames reports that the message before had the same names in the same order.
func (h *HeaderEncoder) Encode(e *feed.Entity) (header feed.Header, sameNames bool) {
	isUnmarked := h.feedName != "" && e.Op != "" && !e.Modified.IsZero() && e.Page != "" && e.Mark == "" && e.Made == "" && h.events == nil
	h.sequence++
	if isUnmarked && h.own != nil && haveSameNames(h.own, e.Header) && ID(e.Header) != "" {
		for i := range e.Header {
			h.fields[i].Value = e.Header[i].Value
		}
		added := h.fields[len(e.Header):] // Operation, Time, FeedName and Page
		added[0].Value, added[3].Value = string(e.Op), e.Page
		if !e.Modified.Equal(h.time) {
			h.time, added[1].Value = e.Modified, formatTime(e.Modified)
		}
		h.own = e.Header
		return h.fields, true
	}
	var isComplete bool
	h.fields, isComplete = appendHeader(slices.Grow(h.fields[:0], len(e.Header)+8), h.feedName, e, h.events, h.sequence)
	h.own = nil
	if isUnmarked && isComplete {
		h.own, h.time = e.Header, e.Modified
	}
	return h.fields, false
}

func haveSameNames(a, b feed.Header) bool {
	return slices.EqualFunc(a, b, func(f, g feed.Field) bool { return f.Name == g.Name })
}
