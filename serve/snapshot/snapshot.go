package snapshot

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// Snapshot is a complete snapshot.
type Snapshot struct {
	// ID consists of the epoch, the end, and a hash of everything that readers get. So
	// an ID always has the same bytes, whichever process built it.
	ID string
	// End is the position of the first message that is not in the snapshot, and Created
	// the time that this message has on the feed. Created is not a time of our clock: a
	// message may be new to the topic and old.
	End     uint64
	Created time.Time
	// Span is the topic's span when the build began.
	Span feed.Span
	// Unmatched counts the PATCHes and DELETEs whose key has no PUT.
	Unmatched int

	pages   []page
	reading sync.RWMutex // held for reading by clients that read file
	file    *os.File     // nil once it was dropped
}

// page holds the position of a page in the file.
type page struct {
	from, to int64
	modified time.Time
	boundary string
}

// Page is a page of a snapshot, in the format multipart/mixed.
type Page struct {
	*io.SectionReader
	Modified time.Time
	Boundary string
}

// Pages returns how many pages the snapshot has.
func (s *Snapshot) Pages() int { return len(s.pages) }

// Page returns page k of a snapshot that [Store.Open] returned. It is valid until
// Release.
func (s *Snapshot) Page(k int) Page {
	p := s.pages[k]
	return Page{io.NewSectionReader(s.file, p.from, p.to-p.from), p.modified, p.boundary}
}

// Release ends the use of a snapshot that [Store.Open] returned.
func (s *Snapshot) Release() { s.reading.RUnlock() }

// closeUnused waits until no client reads the snapshot.
func (s *Snapshot) closeUnused() {
	s.reading.Lock()
	defer s.reading.Unlock()
	_ = s.file.Close()
	_ = os.Remove(s.file.Name()) // for systems that do not remove open files
	s.file = nil
}

// ParseID parses the epoch and the end of an ID.
func ParseID(id string) (epoch string, end uint64, ok bool) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 {
		return "", 0, false
	}
	end, err := strconv.ParseUint(parts[1], 10, 64)
	return parts[0], end, err == nil
}
