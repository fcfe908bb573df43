package bridge

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// storeEquivalent is the interval at which a cursor is stored that differs from the stored one
// only in data that saves work. Each commit takes a write on every replica, and a position of the
// topic.
const storeEquivalent = time.Minute

// knownCheckpoint is what this copy knows of the checkpoint of its topic. It is owned by the
// steps, and lost with the process: the sink's Resume finds it again.
type knownCheckpoint struct {
	// last is the newest checkpoint that this copy has seen.
	last checkpoint.Checkpoint
	// unstored is a newer cursor that is equivalent to that of last, or nil.
	unstored feed.Cursor
	// confirmed is when the sink last proved that last is the newest checkpoint. It is zero
	// if the checkpoint must be read before the feed: before a session, after an error and
	// after a hint.
	confirmed time.Time
	// interval is how long that counts while the checkpoint is watched. It is random, so that
	// feeds that start together do not read their checkpoints together.
	interval time.Duration
}

// set records that the sink has just returned or stored the checkpoint.
func (k *knownCheckpoint) set(cp checkpoint.Checkpoint) {
	k.last, k.unstored = cp, nil
	k.confirmLast()
}

// confirmLast records that the sink has just returned the last checkpoint again.
func (k *knownCheckpoint) confirmLast() { k.confirmed, k.interval = time.Now(), watchedRecheck() }

// doubt makes the checkpoint be read before the feed is.
func (k *knownCheckpoint) doubt() { k.confirmed = time.Time{} }

// isConfirmed reports whether the sink has proved so recently that the checkpoint is the newest one
// that it need not be read before a poll. It counts for longer while the checkpoint is watched.
func (k *knownCheckpoint) isConfirmed(watched bool) bool {
	limit := recheck
	if watched {
		limit = k.interval
	}
	return time.Since(k.confirmed) < limit
}

// watchedRecheck returns a time from [minWatchedRecheck] to [maxWatchedRecheck].
func watchedRecheck() time.Duration {
	return minWatchedRecheck + rand.N(maxWatchedRecheck-minWatchedRecheck)
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
