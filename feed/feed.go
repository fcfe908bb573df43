// Package feed has the types that all packages of feedbridge share: an
// [Entity] is one item of a feed, a [Cursor] is a position in a feed, a [Batch]
// has the entities that were read at once, and a [Violation] is a breach
// of the feed's specification that was detected while reading.
//
// It depends only on the standard library. It knows neither feed formats nor
// buses.
package feed

import (
	"fmt"
	"strings"
	"time"
)

// Operation is the change that an entity makes to the resource that it describes.
type Operation string

// The operations of feeds. Sources refuse entities with any other operation.
const (
	Put    Operation = "PUT"
	Patch  Operation = "PATCH"
	Delete Operation = "DELETE"
)

// Field is one header line: a name in the case in which it was received, and
// its value without the white space around it.
type Field struct {
	Name, Value string
}

// Header is a list of header fields as received: order, case and repetition
// are kept, because consumers may depend on them and because a served feed restores them.
type Header []Field

// Get returns the value of the first field of that name, compared without
// case, and whether there is one.
func (h Header) Get(name string) (value string, ok bool) {
	for _, f := range h {
		if len(f.Name) == len(name) && strings.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return "", false
}

// Entity is one item of a feed.
//
// Entities share memory with the page that they were parsed from: neither
// Header nor Body may be written to.
type Entity struct {
	// ID is the Content-ID or the entry's id, verbatim. It is unique within
	// the feed and never empty. It identifies duplicates.
	ID string
	// Op is the operation.
	Op Operation
	// Modified is the entity's Last-Modified or updated time, in UTC.
	Modified time.Time
	// Header has all headers as received, those that the fields above were
	// read from included.
	Header Header
	// Body has the entity's bytes as received.
	Body []byte
	// Length is the length of the body in bytes if Body has only its beginning, because the source
	// reads none that is so long; else 0. Such an entity is never in a topic, only in a dead-letter
	// topic.
	Length int64
	// Page is the URL of the page that the entity was read from.
	Page string
	// Mark is stored with the entity and returned to the source with its ID, so that the source
	// can detect changes. It is visible ASCII and opaque to all other packages. It is empty for
	// sources whose entities never change.
	Mark string
	// Made has the names of the headers of the message whose values the source made because the feed has
	// none, separated by blanks. They may be others when the entity is read again.
	Made string
	// Dead has the reason why the bus does not take the entity. A sink appends such an entity
	// to the dead-letter topic, and not to the topic. It is nil for all other entities.
	Dead *DeadReason
	// Free, if it is not nil, frees the memory of the Header and Body of this entity and of those before it
	// in its commit, and sets them to nil. A sink may call it during the commit, when it sends none of them
	// again: other entities are read into the memory while the commit ends. It calls those of a commit in
	// the order of the entities, and not after the commit.
	Free func()
}

// DeadReason is the reason why an entity is a dead letter.
type DeadReason struct {
	// Kind is one of a small set of constants. It serves as a metric's label.
	Kind DeadKind
	// Text is a sentence for a person, in one line.
	Text string
}

// DeadKind is a kind of reason why an entity is a dead letter.
type DeadKind string

// The kinds of reason.
const (
	DeadTooLarge DeadKind = "too_large" // the bus takes no message of its size
	DeadNoKey    DeadKind = "no_key"    // it has no key although the topic needs one
	DeadHeader   DeadKind = "header"    // the bus cannot carry one of its headers
)

// DeadKinds returns all kinds.
func DeadKinds() []DeadKind { return []DeadKind{DeadTooLarge, DeadNoKey, DeadHeader} }

// CountDead returns how many of the entities are dead letters.
func CountDead(entities []Entity) int {
	n := 0
	for i := range entities {
		if entities[i].Dead != nil {
			n++
		}
	}
	return n
}

// Size returns the approximate size of an entity in memory and on the bus, in bytes:
// its body and headers.
func (e Entity) Size() int {
	n := len(e.Body) + len(e.Page) + len(e.Mark) + len(e.Made)
	for _, f := range e.Header {
		n += len(f.Name) + len(f.Value) + len(": \r\n")
	}
	return n
}

// Cursor is a position in a feed. Only the source that made a cursor can read it. All other
// packages compare and store its bytes. The zero Cursor is the start that the configuration of
// the feed sets.
type Cursor []byte

// Batch has the entities that a source has read at once.
type Batch struct {
	// Entities are in the feed's order.
	Entities []Entity
	// Bytes is the sum of [Entity.Size] of Entities, or 0 if it is not computed. Code that changes
	// Entities sets it to 0. The bridge sets it for each batch that it has read.
	Bytes int
	// Cursor is the position after Entities. It may move without entities, as while a source
	// searches for its start.
	Cursor Cursor
	// Equivalent is an earlier cursor that has the same position as Cursor. They differ only in
	// values that save work, such as validators, so Cursor need not be stored at once. It is nil
	// if Cursor is a new position.
	Equivalent Cursor
	// More reports that upstream has more entities now, so the next read should not wait.
	More bool

	// Fresh is the time for which upstream asks for no further request, if More is false;
	// zero if it gives none.
	Fresh time.Duration
	// Newest is the newest modification time that upstream is known to have; zero
	// if it is unknown. It measures how far the topic lags behind.
	Newest time.Time
	// Title is the title of the feed for people, as upstream has it; empty if it is not known.
	Title string
	// Duplicates counts the entities that were left out because the topic
	// holds their ID already.
	Duplicates int
	// Oversized counts the entities that were left out because the bus does
	// not take messages of their size and the configuration skips them.
	Oversized int
	// Violations are the breaches of the specification that were seen while
	// this batch was read and that did not stop the reading.
	Violations []Violation

	// Free returns the memory of Entities to the source, which uses it again: the slice itself,
	// and the bytes of bodies, headers and IDs. It is called at most once, after Entities were
	// committed or freed by the sink, and may be called during a call of the source's Next. A batch
	// that is dropped need not be freed. Nil means that the memory is left to the garbage collector.
	Free func()
}

// Limits are the limits of a batch, or of a commit. Zero means no limit. A batch is not limited to
// less than one entity.
type Limits struct {
	Entities int // number of entities
	Bytes    int // sum of [Entity.Size]
}

// LargestBatch has the largest limits that a source is called with. They are a small part of those of
// the largest commit, because commits are made of whole batches. With batches of a page of
// 500 entities a commit to NATS could never have more than 500 of 999, and with 1 MiB no more
// than 3 of 4 MiB.
var LargestBatch = Limits{Entities: 111, Bytes: 256 << 10}

// AreReached reports whether a batch with that many entities and bytes takes no other entity.
func (l Limits) AreReached(entities, bytes int) bool {
	return entities > 0 && (l.Entities > 0 && entities >= l.Entities || l.Bytes > 0 && bytes >= l.Bytes)
}

// Size returns the sum of the sizes of the batch's entities, in bytes.
func (b Batch) Size() int {
	if b.Bytes > 0 {
		return b.Bytes
	}
	n := 0
	for i := range b.Entities {
		n += b.Entities[i].Size()
	}
	return n
}

// Violation is one breach of a feed's specification. It is also an error, for
// breaches after which reading cannot continue.
type Violation struct {
	// Kind is one of a small set of constants of the source, such as
	// "links_asymmetric". It serves as a metric's label.
	Kind string
	// Page is the URL of the page on which it was detected.
	Page string
	// Detail is the evidence, for a person.
	Detail string
}

// NewViolation returns a violation whose detail is formatted as by [fmt.Sprintf].
func NewViolation(kind, page, format string, args ...any) Violation {
	return Violation{Kind: kind, Page: page, Detail: fmt.Sprintf(format, args...)}
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s (%s on %s)", v.Detail, v.Kind, v.Page)
}
