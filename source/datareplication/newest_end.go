package datareplication

import "time"

// trustETag is the time for which "not modified" is trusted after any process has read the page.
// On some servers the ETag does not change when the page changes, or when only its links
// change. Users have lost data that way.
const trustETag = time.Hour

// strongAge is the age, by the server's clock, from which the Last-Modified of a page proves
// that no entity was added later in the same second. RFC 9110 (8.8.2.2) suggests one or
// two seconds, but entities are put on a page some time after their Last-Modified.
const strongAge = time.Minute

// newestEnd caches the validators of the newest page so that a poll can skip it when it is
// unchanged. It is valid for one cursor: a cursor that reached the end of the page in
// another way, as by a search, may have seen other entities.
type newestEnd struct {
	page     string // as the cursor names it
	index    int
	digest   digest // the cursor's
	etag     string
	modified time.Time
	length   int64     // Content-Length, or -1
	settled  bool      // modified and length prove that nothing was added
	full     time.Time // when the page was last read
}

func (e newestEnd) matches(cur cursor) bool {
	return e.page == cur.Page && e.index == cur.Index && e.digest == cur.Digest
}
