package nats

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
)

// The headers that the server obeys.
const (
	batchID        = "Nats-Batch-Id"
	batchSequence  = "Nats-Batch-Sequence"
	batchCommit    = "Nats-Batch-Commit"
	expectedLast   = "Nats-Expected-Last-Subject-Sequence"
	expectedOf     = "Nats-Expected-Last-Subject-Sequence-Subject"
	expectedStream = "Nats-Expected-Last-Sequence"
	rollup         = "Nats-Rollup"
	ttl            = "Nats-TTL"
)

// commitID is a header of the checkpoint of a commit, and of its last entity if it is a fast batch. In an
// atomic batch the entities have the same value as batchID. It is unique.
const commitID = "Feedbridge-Commit"

// firstOf is a header whose value is a topic. The topic has never had a message before the
// one that has this header: it is the topic's first entity, or a checkpoint that is older
// than the first entity. While the topic's oldest message has it, nothing was removed from
// the front of the topic.
const firstOf = "Feedbridge-First"

// lastCommitted is a header of a checkpoint without entities. It has the sequence of the newest
// checkpoint that was stored with entities, 0 if there is none; see [fence].
const lastCommitted = "Feedbridge-Last-Committed"

// previous is a header of the checkpoint of a commit of which a server may store a part: the committed and
// content of the fence that the commit had, with a space between; see [fence].
const previous = "Feedbridge-Previous"

// storedMessage is a message as the leader of its stream has it.
type storedMessage struct {
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
	// Time holds the time when the server stored it.
	Time time.Time `json:"time"`
}

// equals reports whether two messages have the same content at the same sequence.
// Either may be nil, which means no message.
func (m *storedMessage) equals(other *storedMessage) bool {
	if m == nil || other == nil {
		return m == other
	}
	return m.Sequence == other.Sequence && bytes.Equal(m.Data, other.Data)
}

// precedesTopic reports whether the topic has never had a message before this one.
func (m *storedMessage) precedesTopic(topic string) bool { return m.header().Get(firstOf) == topic }

// lastCommitted returns the sequence of the newest checkpoint that was stored with entities, if m is
// the newest checkpoint.
func (m *storedMessage) lastCommitted() uint64 {
	if m == nil {
		return 0
	}
	if sequence, err := strconv.ParseUint(m.header().Get(lastCommitted), 10, 64); err == nil {
		return sequence
	}
	return m.Sequence
}

// isOurs reports whether feedbridge has written the message.
func (m *storedMessage) isOurs() bool { return m.header().Get(codec.FeedName) != "" }

// begins reports whether m is the first message of an atomic batch.
func (m *storedMessage) begins(batch string) bool {
	return m != nil && identityOf(m.Sequence, m.header(), m.Time).id == batch+"/1"
}

func (m *storedMessage) header() nats.Header {
	if m == nil {
		return nil
	}
	h, _ := nats.DecodeHeadersMsg(m.Header) // nil if there is none
	return h
}

// deliveredMessage is a message that a consumer has delivered.
type deliveredMessage struct {
	*nats.Msg
	sequence uint64
	time     time.Time
}

// headerFields returns the message's header as a list, sorted by name, with the values of a
// name in their order. NATS clients keep headers in maps.
func (m *deliveredMessage) headerFields() feed.Header {
	list := make(feed.Header, 0, len(m.Header))
	for name, values := range m.Header {
		for _, value := range values {
			list = append(list, feed.Field{Name: name, Value: value})
		}
	}
	slices.SortStableFunc(list, func(a, b feed.Field) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// setFields replaces all of a header by fields.
func setFields(h nats.Header, fields feed.Header) {
	clear(h)
	for _, f := range fields {
		h[f.Name] = append(h[f.Name], f.Value)
	}
}

// identity identifies a message of the topic, so that it is recognised when it is read
// again: no other message has the same, at whatever sequence.
type identity struct {
	sequence uint64 // 0 if there is no message
	// id is the message's batch and its number there, or that of its commit, or the time at which
	// it was stored if it has neither.
	id string
}

// identityOf returns the identity of a message that was read.
func identityOf(sequence uint64, h nats.Header, at time.Time) identity {
	if batch := h.Get(batchID); batch != "" {
		return identity{sequence, batch + "/" + h.Get(batchSequence)}
	}
	if id := h.Get(commitID); id != "" {
		return identity{sequence, id}
	}
	return identity{sequence, at.UTC().Format(time.RFC3339Nano)}
}
