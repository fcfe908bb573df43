package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/feedbridge/feedbridge/feed"
)

// hash128 is the hash of a key. Its first half decides in which range the key is.
type hash128 [2]uint64

func hashOf(key []byte) hash128 {
	sum := sha256.Sum256(key)
	return hash128{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// entityKeys returns the hash of the key of an entity, and the hash of its record's key, which
// is zero if the record has none. erases reports whether the entity deletes everything that
// was PUT in records with that record key: a tombstone does, unless it has a key of its
// own.
func (c *Config) entityKeys(e *Entity) (key, record hash128, erases bool) {
	text, ok := e.ID, e.HasID
	if c.Key != nil {
		var found string
		if found, ok = c.Key(e.Header, e.Body); ok {
			text = found
		}
	}
	if e.Key != nil {
		record = hashOf(e.Key)
		erases = e.Tombstone && e.Op == feed.Delete && !ok
	}
	return hashOf([]byte(text)), record, erases
}

// matches counts the PATCHes and DELETEs whose key has no PUT that is not deleted, and those whose key has
// one.
type matches struct {
	patches, deletes, matching int
	// late counts the entities of the feed that are older than one before them.
	late int
}

func (m *matches) addCounts(o matches) {
	m.patches, m.deletes, m.matching, m.late = m.patches+o.patches, m.deletes+o.deletes, m.matching+o.matching, max(m.late, o.late)
}

// unmatched returns how many PATCHes and DELETEs show that the configured keys are wrong: if
// any key is right, the others may be of PUTs that retention or an earlier DELETE has removed.
func (m *matches) unmatched() int {
	if m.matching > 0 {
		return 0
	}
	return m.patches + m.deletes
}

// put is the newest PUT of a key.
type put struct {
	at     uint64  // its position, or written
	record hash128 // the hash of its record's key, zero if the record has none
}

// written is the value of put.at that is no position.
const written = math.MaxUint64

// living holds the PUTs that nothing has deleted.
type living struct {
	puts map[hash128]put
	// erased has the newest tombstones by the hashes of their records' keys, as far as
	// they have not been applied yet. Applying them takes a pass over all puts, so many
	// are applied at once.
	erased map[hash128]uint64
}

// applyTombstones applies the tombstones.
func (l *living) applyTombstones() {
	if len(l.erased) == 0 {
		return
	}
	for key, p := range l.puts {
		if at, ok := l.erased[p.record]; ok && p.at < at {
			delete(l.puts, key)
		}
	}
	clear(l.erased)
}
