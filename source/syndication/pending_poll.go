package syndication

import (
	"fmt"
	"time"
)

// pendingPoll is a poll that has entries to publish: those of older documents, and then those
// of the subscription document. It is in memory only. After a crash the walk is
// repeated, and ends at the archives that the cursor has.
//
// A [walker] finds the older documents, and a [publisher] publishes them:
//
//	startPending, retryGap
//	     │
//	     ▼
//	  walkBack ◄───┐ frontier is set: read that document, push its step
//	     │ ────────┘
//	     │ frontier is ""
//	     ▼
//	 checkShift ───► walkBack again, once, if pages have changed meanwhile
//	     │
//	     ▼
//	nextDocument ◄─┐ the last of steps, which are removed when they are published
//	     │         │
//	     ▼         │
//	publishPart ───┘ repeated while the document has more entries
//	     │ no steps are left, and the subscription document is published or the gap closed
//	     ▼
//	    end
//
// Archives do not change, and pages do:
//
//	                    archives                      pages
//	a walk ends at      a published one, a gap        one without an entry to publish, unless full
//	a missing one       is a gap, requested later     is reported; lacking
//	a published one     ends later walks              ends one if permanent; Walked is 0 until the last
//	a change meanwhile  cannot be                     again: read once more; reread: at the next poll
type pendingPoll struct {
	dialect Dialect
	subscription
	// gapURL is the gap whose documents are read late; "" in a walk from the subscription
	// document.
	gapURL string

	// steps are the documents to publish, newest first: the last comes next.
	steps []*step
	// at is the document that is being published.
	at *document
	walk
	ending
	overrunWatch

	// stopped is the call in which the walk stopped at an error, and failed the error that the next
	// call returns, once the cursor is committed.
	stopped *nextCall
	failed  error
}

// isLate reports that newer documents than those of the walk are published already.
func (p *pendingPoll) isLate() bool { return p.gapURL != "" }

// subscription has the subscription document of a poll, while it is in memory, and what is kept of it
// longer: believe is its update time.
type subscription struct {
	sub               *document
	url, hash         string
	believe           instant
	deletes, withheld bool
}

// walk is the search for older documents.
type walk struct {
	// frontier is the URL of the next one; "" when the walk is done. permanent reports that it is an
	// archive of a paged feed.
	frontier  string
	permanent bool
	visited   map[hashedKey]bool
	// estimatedBytes is the memory of steps and visited without the documents.
	estimatedBytes int64
	// topicVersions has the IDs that the topic had when the walk began.
	topicVersions map[hashedKey]topicVersion
	// behind are short hashes of the published archives that are older than the next document of the walk.
	behind []byte
	// found are the documents in memory while bridgeGap looks for more.
	found []*document
	// full reports that all pages are read, again that the walk was repeated because the feed has
	// changed meanwhile, and released that the subscription document was released, so that nothing
	// has checked whether it changed.
	full, again, released bool
	// lacking reports that a page is missing, so that no archive may end the next walk.
	lacking bool
}

// ending is what the cursor gets when all is published.
type ending struct {
	// walked is the time at which all pages were last read. reread reports that the subscription
	// document has to be read again, because it has changed or may lack a link.
	walked int64
	reread bool
}

// overrunWatch detects that entries may have come and gone between two polls.
type overrunWatch struct {
	// connected reports that nothing has to be reported: there was no poll before, a document has an
	// entry that the topic has, or the walk has reached a published document or a gap. fresh counts
	// the entries that the topic lacks.
	connected bool
	fresh     int
}

// search is a walk back with the number of documents that were read, and the time of the
// last of them, which is zero if that is not known.
type search struct {
	documents int
	back      time.Time
}

func (s *search) String() string {
	text := fmt.Sprintf("the oldest document; %d documents are read", s.documents)
	if s.documents == 1 {
		text = "the oldest document; 1 document is read"
	}
	if !s.back.IsZero() {
		text += ", back to " + s.back.UTC().Format(time.RFC3339)
	}
	return text
}

// stepBytes is the estimated memory of a document of a pending poll without its entries and
// its URL, in bytes.
const stepBytes = 300

// leastWalk is the memory that the URLs of a walk may always use, in bytes.
const leastWalk = 1 << 20

// step is a document to publish. It is requested again if its entries (doc) were not kept.
type step struct {
	url string
	// key is the URL under which the cursor remembers it.
	key string
	doc *document
	// permanent reports that it is an archive of a paged feed.
	permanent bool
}

// bufferedBytes returns the estimated memory of the entries of its documents, in bytes.
func (p *pendingPoll) bufferedBytes() int64 {
	if p == nil {
		return 0
	}
	n, at := int64(0), p.at
	for _, st := range p.steps {
		if st.doc != nil {
			n += st.doc.bufferedBytes()
		}
		if st.doc == at {
			at = nil // do not count it twice
		}
	}
	for _, d := range append([]*document{p.sub, at}, p.found...) {
		if d != nil {
			n += d.bufferedBytes()
		}
	}
	return n
}

// dropToLimit drops documents until the others take at most limit bytes.
func (p *pendingPoll) dropToLimit(limit int64) {
	if p.sub != nil && (!p.sub.buffer.whole || int64(p.sub.memorySize()) > limit) {
		p.sub = nil
	}
	for i, st := range p.steps {
		if st.doc != nil && !st.doc.buffer.whole && i < len(p.steps)-1 {
			// It has only the entries that the topic lacked. The topic will have changed when
			// the document is published.
			st.doc = nil
		}
	}
	for p.keptBytes() > limit && p.dropDocument() {
	}
}

// keptBytes returns the estimated memory of the documents that wait to be published, in bytes. A document that is read in parts does not count: it is the next one.
func (p *pendingPoll) keptBytes() (size int64) {
	if p.sub != nil {
		size += int64(p.sub.memorySize())
	}
	for _, st := range p.steps {
		if st.doc != nil && st.doc.buffer.whole {
			size += int64(st.doc.memorySize())
		}
	}
	return size
}

// dropDocument drops the entries of the document that is published last. It keeps those of the
// document that is published next. It reports whether there was anything to drop.
func (p *pendingPoll) dropDocument() bool {
	if p == nil || len(p.steps) == 0 {
		return false
	}
	for _, st := range p.steps[:len(p.steps)-1] {
		if st.doc != nil {
			st.doc = nil
			return true
		}
	}
	return false
}

// dialectOf returns the dialect that applies to a document. An archive has the dialect
// of the feed, even if it is marked as complete.
func (p *pendingPoll) dialectOf(d *document) Dialect {
	if d.archive {
		return p.dialect
	}
	return d.dialect
}

// topicVersion is the version of an ID in the documents of a walk that corresponds to
// the topic's version when the walk began: the newest version that is equal, or else
// the last of all. Older versions are in the topic already, or were replaced there.
type topicVersion struct {
	depth   int
	same    bool
	updated instant
	hash    [16]byte
}

// recordVersions records the entries of a document that the topic has. Documents come
// from the newest on, and before anything of the walk is published.
func (p *pendingPoll) recordVersions(d *document) {
	for id, in := range d.versions.ids {
		had, ok := p.topicVersions[id]
		if !in.inTopic || had.same {
			continue
		}
		is := topicVersion{depth: d.depth, same: in.same, updated: in.updated, hash: in.hash}
		if in.deleted() {
			is.updated = in.when
		}
		if ok && !is.same && had.supersedes(is.updated, p.dialect) {
			continue
		}
		if p.topicVersions == nil {
			p.topicVersions = map[hashedKey]topicVersion{}
		}
		p.topicVersions[id] = is
	}
}

// supersedes reports whether a version is newer than one of an older document.
func (t topicVersion) supersedes(updated instant, dialect Dialect) bool {
	return dialect == Snapshots || compareKnown(t.updated, updated) >= 0
}
