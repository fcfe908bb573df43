package feed

import (
	"errors"
	"time"
)

// ErrNoTopic is matched by errors about a topic that does not exist.
var ErrNoTopic = errors.New("the topic does not exist")

// Record is a message of a topic as it is read back. It may be one that
// feedbridge did not write.
type Record struct {
	// Position identifies the message in the topic. Positions grow and may have
	// gaps. A position always has the same message.
	Position uint64
	// Time holds the time when the bus stored the message.
	Time time.Time
	// Header has the message's headers, Feedbridge's own included.
	Header Header
	Body   []byte
	// Key is the key of a Kafka record; nil if there is none.
	Key []byte
	// Tombstone reports that the message has a null value, on a bus that distinguishes it
	// from an empty one.
	Tombstone bool
}

// Span is the range of positions of a topic.
type Span struct {
	// First is the first position that may have a message, and End the one
	// after the last. They are equal if the topic is empty. Positions below
	// End are final: they get no new messages. Retention deletes messages below First. If it has
	// deleted none yet, First is 0, and a gap before the first message is no loss.
	First, End uint64
	// Epoch is short and matches [a-z0-9]+. It changes when the topic is deleted and created
	// again, because its positions then have other messages.
	Epoch string
}
