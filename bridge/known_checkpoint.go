package bridge

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// recheck is the age of a confirmation of the checkpoint from which it is read before a poll. In a wait it
// is read up to half of that later, so a copy that waits has it confirmed within a minute.
const recheck = 30 * time.Second

// storeEquivalent is the interval at which a cursor is stored that differs from the stored one
// only in data that saves work. Each commit takes a write on every replica, and a position of the
// topic.
const storeEquivalent = time.Minute

// knownCheckpoint is what this copy knows of the checkpoint of its topic. It is owned by the
// steps, apart from confirmedAt, and lost with the process: the sink's Resume finds it again.
type knownCheckpoint struct {
	unchanged func() time.Time // [Bridge.Unchanged]; nil if there is none

	// last is the newest checkpoint that this copy has seen.
	last checkpoint.Checkpoint
	// unstored is a newer cursor that is equivalent to that of last, or nil.
	unstored feed.Cursor
	// confirmed is when the bus last confirmed that last is the newest checkpoint, as far as
	// confirmedAt was called; nil before that.
	confirmed atomic.Pointer[time.Time]
	// invalid is set if the checkpoint must be read before the feed: before a session, after an
	// error and after a hint.
	invalid bool
	// lifetime is how long a confirmation counts during a wait. It is random, so that the feeds of a
	// stream, which are confirmed together, do not read their checkpoints together.
	lifetime time.Duration
}

// set records that the sink has just returned or stored the checkpoint.
func (k *knownCheckpoint) set(cp checkpoint.Checkpoint) {
	k.last, k.unstored = cp, nil
	k.confirmLast()
}

// confirmLast records that the sink has just returned the last checkpoint again.
func (k *knownCheckpoint) confirmLast() {
	now := time.Now()
	k.confirmed.Store(&now)
	k.invalid, k.lifetime = false, recheck+rand.N(recheck/2)
}

// invalidate makes the checkpoint be read before the feed is.
func (k *knownCheckpoint) invalidate() { k.invalid = true }

// confirmedAt returns when the bus last confirmed that last is the newest checkpoint; the zero time
// if it never did. It does not go back when the bus shows something else. Any goroutine may call it.
func (k *knownCheckpoint) confirmedAt() (at time.Time) {
	confirmed := k.confirmed.Load()
	if confirmed != nil {
		at = *confirmed
	}
	if k.unchanged != nil {
		if seen := k.unchanged(); seen.After(at) {
			k.confirmed.CompareAndSwap(confirmed, &seen)
			at = seen
		}
	}
	return at
}

// isConfirmed reports whether the checkpoint was confirmed so recently that it need not be read
// before a poll.
func (k *knownCheckpoint) isConfirmed() bool {
	return !k.invalid && time.Since(k.confirmedAt()) < recheck
}

// newestCursor returns the newest cursor, stored or not.
func (k *knownCheckpoint) newestCursor() feed.Cursor {
	if k.unstored != nil {
		return k.unstored
	}
	return k.last.Cursor
}

// needsCommit reports whether a batch has entities, or a cursor that is to be stored now.
func (k *knownCheckpoint) needsCommit(batch feed.Batch) bool {
	if len(batch.Entities) > 0 {
		return true
	}
	if bytes.Equal(batch.Cursor, k.last.Cursor) {
		return false
	}
	if batch.Equivalent == nil || !bytes.Equal(batch.Equivalent, k.last.Cursor) && !bytes.Equal(batch.Equivalent, k.unstored) {
		return true
	}
	age := time.Since(k.last.At)
	return age < 0 || age >= storeEquivalent
}

// differsFrom reports whether a checkpoint that the sink has returned is not the last one: another
// copy has committed, or a person has moved or paused the feed.
func (k *knownCheckpoint) differsFrom(cp checkpoint.Checkpoint) bool {
	return !bytes.Equal(cp.Cursor, k.last.Cursor) || cp.Count != k.last.Count || !cp.Moved.Equal(k.last.Moved) || !cp.Paused.Equal(k.last.Paused)
}

// isSuccessor reports whether a checkpoint differs from the last one only in published entities and their cursor.
func (k *knownCheckpoint) isSuccessor(cp checkpoint.Checkpoint) bool {
	return cp.Feed == k.last.Feed && cp.Source == k.last.Source && cp.Count >= k.last.Count && cp.Moved.Equal(k.last.Moved) && cp.Paused.Equal(k.last.Paused)
}
