package datareplication

import (
	"cmp"
	"time"
)

// trustETag is the time for which "not modified" is trusted after any process has read the page
// in full. On some servers the ETag does not change when the page changes, or when only its links
// change. Users have lost data that way.
const trustETag = time.Hour

// leastRange is the number of bytes that a range must save.
const leastRange = 8 << 10

// tail is the end of a page, from the entity that was read last.
type tail struct {
	offset    int64  // of the entity in the page, after its delimiter; zero if there is no tail
	before    digest // of the entities before it
	delimiter int    // bytes of its delimiter, with line ends
}

// tailPolicy decides whether a tail is requested.
type tailPolicy struct {
	least int64 // leastRange
	// refused is the time of the last range that could not be used. No range is requested for
	// pause after it, so a server that does not support ranges costs one more request an hour.
	refused time.Time
	pause   time.Duration // zero means trustETag
}

// allows reports whether a tail is to be requested.
func (t *tailPolicy) allows(end tail) bool {
	return end.offset > t.least && (t.refused.IsZero() || time.Since(t.refused) > cmp.Or(t.pause, trustETag))
}

// refuse records that a range was of no use.
func (t *tailPolicy) refuse() { t.refused = time.Now() }
