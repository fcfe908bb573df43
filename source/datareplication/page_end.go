package datareplication

import (
	"strings"
	"time"
)

// provenFor is the time for which a page that was read to its end proves the position at
// the start of the next page. The end of the page is read again after a longer pause, an
// error or a restart, and after reading has reached the end of the feed.
const provenFor = time.Minute

// pageEnd is the end of a page. It proves the position at the start of the next page.
type pageEnd struct {
	page string // as the cursor names it
	last string // Content-ID of the page's last entity, as storedID returns it
	seen time.Time
}

// endBefore returns the page end that was just seen before the position of cur. It copies
// the ID, which may be a part of an entity's memory.
func endBefore(cur *cursor) pageEnd {
	return pageEnd{cur.pageBefore(), strings.Clone(storedID(cur.Last)), time.Now()}
}

// provesPosition reports whether the page end was read within provenFor and proves the position
// of cur.
func (e pageEnd) provesPosition(cur *cursor) bool {
	return e.page == cur.pageBefore() && e.last == storedID(cur.Last) && time.Since(e.seen) < provenFor
}
