package datareplication

import (
	"strings"
	"time"
)

// provenFor is the time for which a page that was read to its end proves the position at
// the start of the next page. The end of the page is read again after a longer pause, an
// error or a restart, and after reading has reached the end of the feed.
const provenFor = time.Minute

// pageEnd is the end of a page. It proves the position at the start of the next page, if that
// was answered at about the same time.
type pageEnd struct {
	page string // as the cursor names it
	last string // Content-ID of the page's last entity, as storedID returns it
	// modified is the Last-Modified of the page; zero if it is unknown.
	modified time.Time
	// The page was sent after from, and at least until to.
	from, to time.Time
}

// endBefore returns the end of the page p, which was just read, before the position of cur. It
// copies the ID, which may be a part of an entity's memory. A page that was requested ahead may
// have been sent long ago, so it counts from when its header arrived.
func endBefore(cur *cursor, p *openPage) pageEnd {
	end := pageEnd{cur.pageBefore(), strings.Clone(storedID(cur.Last)), p.Modified, p.answered, time.Now()}
	if p.ahead {
		end.to = p.answered
	}
	return end
}

// provesPosition reports whether the page end proves the position of cur for a page whose header
// arrived at that time: within provenFor of the page before it, in whatever order they were
// requested.
func (e pageEnd) provesPosition(cur *cursor, answered time.Time) bool {
	return e.page == cur.pageBefore() && e.last == storedID(cur.Last) &&
		answered.After(e.from.Add(-provenFor)) && answered.Before(e.to.Add(provenFor))
}
