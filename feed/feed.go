// Package feed has the words that the rest of feedbridge is written in: an
// [Entity] is what a feed carries, a [Cursor] is a place in a feed, a [Batch]
// is a stretch of a feed that was read at once, and a [Violation] is a breach
// of the feed's specification that was seen on the way.
//
// It depends on the standard library alone and knows neither feed formats nor
// buses.
package feed

import (
	"fmt"
	"strings"
	"time"
)

// Operation is what an entity does to the resource that it describes.
type Operation string

// The operations that feeds know. An entity never carries another one:
// sources refuse what they cannot tell.
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
// are kept, because consumers may care and because the way back restores them.
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

// Entity is one message of a feed.
//
// Entities share memory with the page that they were parsed from: neither
// Header nor Body may be written to.
type Entity struct {
	// ID is the Content-ID or the entry's id, verbatim. It is unique within
	// the feed, is never empty, and is what duplicates are told by.
	ID string
	// Op is what the entity does.
	Op Operation
	// Modified is the entity's Last-Modified or updated time, in UTC.
	Modified time.Time
	// Header has all headers as received, those that the fields above were
	// read from included.
	Header Header
	// Body has the entity's bytes as received.
	Body []byte
	// Page is the URL of the page that the entity was read from.
	Page string
	// Mark is what the source will want to know of the entity when it meets the
	// ID again: visible ASCII, opaque to everyone else. It is empty for sources
	// whose entities never change.
	Mark string
}

// Size is about what an entity weighs in memory and on the bus, in bytes:
// its body and headers.
func (e Entity) Size() int {
	n := len(e.Body) + len(e.Page) + len(e.Mark)
	for _, f := range e.Header {
		n += len(f.Name) + len(f.Value) + len(": \r\n")
	}
	return n
}

// Cursor is a place in a feed. Only the source that made a cursor can read it;
// everyone else compares it and stores it, byte for byte. The zero Cursor is
// where the feed's configuration says that reading starts.
type Cursor []byte

// Batch is what a source read in one go.
type Batch struct {
	// Entities are in the feed's order.
	Entities []Entity
	// Cursor is where to read on once Entities are published. It may move
	// without entities, as while a source looks for its starting place.
	Cursor Cursor
	// Equivalent is a cursor from which reading goes on at the same place: Cursor
	// differs from it only in what saves work, such as validators, so that it need not
	// be stored at once. It is nil if Cursor is no such.
	Equivalent Cursor
	// More says that upstream has more right now, so nobody should wait.
	More bool

	// Fresh is how long upstream asks not to be asked again, if there is no
	// more; zero if it does not say.
	Fresh time.Duration
	// Newest is the newest modification that upstream is known to hold; zero
	// if the source cannot tell. What is published lags behind it.
	Newest time.Time
	// Duplicates counts the entities that were left out because the topic
	// holds their ID already.
	Duplicates int
	// Oversized counts the entities that were left out because the bus does
	// not take messages so large and the configuration says to skip them.
	Oversized int
	// Violations are the breaches of the specification that were seen while
	// this batch was read and that did not stop the reading.
	Violations []Violation
}

// Size is the sum of the sizes of the batch's entities, in bytes.
func (b Batch) Size() int {
	n := 0
	for i := range b.Entities {
		n += b.Entities[i].Size()
	}
	return n
}

// Violation is one breach of a feed's specification. It is an error too, for
// the breaches that reading cannot go on after.
type Violation struct {
	// Kind is one of a small set of constants of the source, such as
	// "links_asymmetric". It serves as a metric's label.
	Kind string
	// Page is the URL of the page on which it was seen.
	Page string
	// Detail is the evidence, for a person.
	Detail string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s (%s on %s)", v.Detail, v.Kind, v.Page)
}
