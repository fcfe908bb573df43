package serve

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// The bounds of a page's size, in positions. A URL may ask for any size within them, as
// URLs of former configurations do.
const (
	DefaultPageSize = 500
	maxPageSize     = 10_000
)

// pageID is a page: which positions of which topic.
type pageID struct {
	epoch string
	size  uint64 // positions
	k     uint64
}

func (id pageID) firstPosition() uint64 { return id.k * id.size }
func (id pageID) endPosition() uint64   { return id.firstPosition() + id.size }

// withNumber returns another page of the same size.
func (id pageID) withNumber(k uint64) pageID {
	id.k = k
	return id
}

func (id pageID) String() string { return fmt.Sprintf("%s-%d-%d", id.epoch, id.size, id.k) }

var epochs = regexp.MustCompile(`^[a-z0-9]+$`)

// parsePageID reads what [pageID.String] wrote. There is one way to write a page.
func parsePageID(s string) (pageID, bool) {
	parts := strings.Split(s, "-")
	if len(parts) != 3 || !epochs.MatchString(parts[0]) {
		return pageID{}, false
	}
	size, err1 := strconv.ParseUint(parts[1], 10, 16)
	// With this k no position overflows.
	k, err2 := strconv.ParseUint(parts[2], 10, 48)
	id := pageID{parts[0], size, k}
	return id, err1 == nil && err2 == nil && size >= 1 && size <= maxPageSize && id.String() == s
}

// isWhole reports whether retention has left all of a page and all of the page before it.
func (id pageID) isWhole(span feed.Span) bool {
	return span.First <= id.withNumber(max(id.k, 1)-1).firstPosition()
}

// page is a page as it is served.
type page struct {
	pageKey
	contentType string
	// body is nil if it is too large to be cached. length is its size then too.
	body   []byte
	length int64
	// packed is the body in gzip; empty if that is no smaller, nil until it
	// is requested.
	packed []byte
	// tag is the hash of the body, which the ETag consists of.
	tag string
	// entities counts the entities of the page. A page without any is not served.
	entities int
	// modified is the time of the last entity.
	modified time.Time
	// dated reports whether all entities of a document before the newest are of earlier seconds, so
	// that no earlier version of the document has the same time.
	dated    bool
	boundary string // of a multipart page
	// linked reports whether the links are in the body.
	linked bool
	// from is the page that a subscription document begins with.
	from uint64
	// next is the position behind the last event of a list of events.
	next uint64
	// neighbours are the nearest pages that have messages.
	before, after neighbour
	// span is the topic's span when the page was made, and sum the part of the page
	// that the page behind it depends on.
	span feed.Span
	sum  summary

	// These belong to PageCache.
	refs        int
	cached      bool
	cachedBytes int64
}

// pageKey names a page among all that a PageCache holds.
type pageKey struct {
	feed any // identifies the feed: its *Config
	id   pageID
	kind kind
}

// kind distinguishes the documents that are made of the same positions.
type kind int

const (
	closedPage kind = iota
	subscription
	eventList // its id has the first position in place of k
)

// neighbour is the page that a link leads to.
type neighbour struct {
	k  uint64
	ok bool
}

// isSealed reports whether the page gets no more messages.
func (p *page) isSealed() bool { return p.id.endPosition() <= p.span.End }

// hasPrev reports whether the page before is served.
func (p *page) hasPrev(span feed.Span) bool {
	return p.before.ok && p.id.withNumber(p.before.k).isWhole(span)
}

// isCurrent reports whether the page would be the same if it were made now.
func (p *page) isCurrent(span feed.Span) bool {
	switch {
	case p.span == span:
		return true
	case span.Epoch != p.id.epoch || !p.id.isWhole(span), p.linked && p.hasPrev(span) != p.hasPrev(p.span):
		return false
	}
	return p.after.ok || p.span.End == span.End
}

// relations are the links of a document, by their relation (RFC 5005). Without a PublicURL they are
// relative to the document: it must not depend on the Host header of a request, which a cache
// does not see.
func (p *page) relations(c *Config) [][2]string {
	base := cmp.Or(c.PublicURL, "..")
	if p.kind == subscription {
		base = cmp.Or(c.PublicURL, ".")
	}
	archive := func(k uint64) string { return base + "/pages/" + p.id.withNumber(k).String() }
	current := base + "/latest"
	self := current
	if p.kind == closedPage {
		self = archive(p.id.k)
	}
	list := [][2]string{{"self", self}, {"current", current}}
	if p.hasPrev(p.span) {
		list = append(list, [2]string{"prev-archive", archive(p.before.k)})
	}
	if p.after.ok {
		list = append(list, [2]string{"next-archive", archive(p.after.k)})
	}
	return list
}

// updated returns the time of the document's last change, which is the time of its last
// entry.
func (p *page) updated() time.Time {
	if p.entities == 0 {
		return time.Unix(0, 0).UTC()
	}
	return p.modified
}

// summary is the part of a page that the page behind it depends on: the newest time,
// and each ID with the hash of the last entity that has it.
type summary struct {
	newest time.Time
	ids    map[string]uint64
}

func (s *summary) memorySize() int64 {
	n := int64(0)
	for id := range s.ids {
		n += int64(len(id)) + 64
	}
	return n
}
