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
	// Position is the message's place in the topic. Positions grow, may have
	// gaps, and never change their message.
	Position uint64
	// Time is when the bus took the message.
	Time time.Time
	// Header has the message's headers, Feedbridge's own included.
	Header Header
	Body   []byte
	// Key is what the bus keeps beside a message to tell what it is about, as a
	// record's key on Kafka; nil if there is none.
	Key []byte
	// Tombstone says that the message has no value, on a bus that tells that
	// from an empty one.
	Tombstone bool
}

// Span says which positions a topic has.
type Span struct {
	// First is the first position that may have a message, and End the one
	// behind the last. They are equal if the topic is empty. What lies below
	// End is final: no message comes to it any more, but retention takes some,
	// all that it takes below First. If it has taken none yet, First is 0: what is
	// missing in front of the first message is no loss then.
	First, End uint64
	// Epoch is short, matches [a-z0-9]+, and is another one when the topic has
	// been made anew, so that its positions mean other messages.
	Epoch string
}
