package bridge

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

const (
	// The size of the first commit of a bridge, and the smallest size. Below that a smaller one saves
	// little, because each commit has a checkpoint.
	firstCommit = 128 << 10
	leastCommit = 4 << 10
	// The bytes of a commit should take from shortCommit to longCommit. A commit that takes longer
	// than the timeout of the bus is dropped. On Kafka a copy of the feed that starts may abort
	// one that takes some seconds.
	shortCommit = 250 * time.Millisecond
	longCommit  = time.Second
	// The time of a commit of another size is forgotten after so many, as the rate may have changed.
	// Then another size is tried.
	trustCommits = 8
)

// commitSize decides how large the next commit may be, so that a bus with a slow link or a quota
// stores it in time, and a fast one gets the largest commits, which cost least per entity. It assumes
// that a commit takes a fixed time and a time per byte, and estimates both from the last commit and
// an earlier one of another size.
//
// A larger entity is a commit of its own. The pump owns a commitSize. Its methods
// limits and batchLimits may be called from any goroutine.
type commitSize struct {
	most  feed.Limits // Bytes is not zero
	bytes atomic.Int64
	// last is the last commit that succeeded, and other the last one before it of a size that
	// differs by half or more. The size is zero if there is none.
	last, other timedCommit
	similar     int // number of commits since other
}

type timedCommit struct {
	size int
	took time.Duration
}

// init sets the largest size, and the first one.
func (c *commitSize) init(most feed.Limits) {
	c.most = most
	c.bytes.Store(int64(min(firstCommit, most.Bytes)))
}

// limits returns the limits of the next commit of several batches.
func (c *commitSize) limits() feed.Limits {
	return feed.Limits{Entities: c.most.Entities, Bytes: int(c.bytes.Load())}
}

// batchLimits returns the limits of the next batch.
func (c *commitSize) batchLimits() feed.Limits {
	batch := feed.LargestBatch
	batch.Bytes = min(batch.Bytes, int(c.bytes.Load()))
	return batch
}

// committed records that a commit of that many bytes took a time.
func (c *commitSize) committed(size int, took time.Duration) {
	if size == 0 {
		return
	}
	if differs(size, c.last.size) {
		c.other, c.similar = c.last, 0
	} else if c.similar++; c.similar == trustCommits || !differs(size, c.other.size) {
		c.other = timedCommit{}
	}
	c.last = timedCommit{size, took}
	fixed := c.fixedTime()
	// If the bytes take at least as long as the rest, half of the rate is used.
	switch now, bytes := c.bytes.Load(), took-fixed; {
	case bytes > max(longCommit, 2*fixed):
		c.set(min(now, int64(size)/2))
	case bytes <= max(shortCommit, fixed):
		c.set(max(now, 2*int64(size)))
	}
}

// differs reports whether one of the sizes is larger than the other by half or more.
func differs(a, b int) bool { return 2*max(a, b) >= 3*min(a, b) }

// fixedTime estimates the time of a commit that does not depend on its size.
func (c *commitSize) fixedTime() time.Duration {
	small, big := c.last, c.other
	switch {
	case big.size == 0 && small.took > longCommit:
		return 0 // try a smaller one
	case big.size == 0:
		return small.took // try a larger one
	case small.size > big.size:
		small, big = big, small
	}
	perByte := float64(max(0, big.took-small.took)) / float64(big.size-small.size)
	return max(0, min(small.took, big.took)-time.Duration(perByte*float64(small.size)))
}

// failed records that a commit of that many bytes failed after a time. If that is long, the bus may
// have had no time to store more.
func (c *commitSize) failed(size int, took time.Duration) {
	if size > 0 && took > longCommit {
		c.set(min(c.bytes.Load()/2, int64(float64(size)*float64(longCommit)/float64(took))))
	}
}

func (c *commitSize) set(bytes int64) {
	c.bytes.Store(min(max(bytes, leastCommit), int64(c.most.Bytes)))
}

// explainError returns err, the error of a commit of the entities that failed after a time. It adds the
// cure if the only entity is larger than the bus stores in time.
func (c *commitSize) explainError(err error, entities []feed.Entity, took time.Duration) error {
	if len(entities) != 1 || took <= longCommit || int64(entities[0].Size()) <= c.bytes.Load() {
		return err
	}
	return fmt.Errorf("%w; the commit had one entity of %d bytes, which cannot be divided: if the way to the bus is slow, or a quota applies, "+
		"raise the bus's timeout or the rate", err, entities[0].Size())
}
