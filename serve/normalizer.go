package serve

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// hashEntity returns a hash of everything that makes two messages the same. It uses b as a
// buffer, which it returns for the next call.
func hashEntity(e *entity, b []byte) (uint64, []byte) {
	b = append(b[:0], e.op...)
	for _, f := range e.header {
		// Neither contains a line end.
		b = append(b, '\n')
		b = append(b, f.Name...)
		b = append(b, ':')
		b = append(b, f.Value...)
	}
	b = append(b, "\n\n"...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(e.body))
	return xxhash.Sum64(b), b
}

// normalizer makes the entities of a page conform to the specification, in their order:
// times do not decrease, and IDs are unique. It depends on the page before and on no
// other, because everything that a page depends on must exist as long as the page.
type normalizer struct {
	before, own summary
	b           []byte // the buffer of hash
}

// newNormalizer returns a normalizer for about n entities.
func newNormalizer(n uint64) *normalizer {
	return &normalizer{own: summary{ids: make(map[string]uint64, min(n, DefaultPageSize))}}
}

// normalizeNext normalizes the next entity of the page. It reports false if the entity is the
// same as one before it and is left out.
func (n *normalizer) normalizeNext(e *entity) bool {
	// The first message always stays. Otherwise a page could have no entities, which
	// would not be known before it is read.
	opening := len(n.own.ids) == 0
	at := e.modified
	for _, newest := range []time.Time{n.before.newest, n.own.newest} {
		if e.modified.Before(newest) {
			e.modified = newest
		}
	}
	// The summary has the messages' own times. With the raised times, a page would
	// depend on all pages before it.
	if n.own.newest.Before(at) {
		n.own.newest = at
	}
	hash, b := hashEntity(e, n.b)
	n.b = b
	was, repeated := n.own.ids[e.id]
	if !repeated {
		was, repeated = n.before.ids[e.id]
	}
	// A copy of the ID: it is kept with the page, and shares its memory with the headers of many
	// messages.
	n.own.ids[strings.Clone(e.id)] = hash
	switch {
	case repeated && was == hash && !opening && !e.changes:
		return false
	case repeated || e.changes:
		e.id += "#" + strconv.FormatUint(e.position, 10)
	}
	return true
}
