package syndication

// job is a poll that has something to publish: older documents, and then the
// subscription document. It is kept in memory only. After a crash the walk is repeated,
// and ends at the archives that the cursor has as published.
type job struct {
	// steps are the documents to publish, newest first: the last comes next.
	steps []*step
	// frontier is the URL to walk on at; "" when the walk is done.
	frontier string
	visited  map[hashedKey]bool
	// weight is about what steps and visited take in memory, without documents.
	weight  int64
	dialect Dialect
	// lasts has the IDs that the topic held when the walk began.
	lasts map[hashedKey]topicVersion
	// sub is the subscription document, if it is still held. url, hash and
	// believe, its update time, are known of it longer, as are deletes and
	// withheld.
	sub               *document
	url, hash         string
	believe           instant
	deletes, withheld bool
	// late and healing are set while documents behind a gap are read.
	late    bool
	healing string
	// recheck is how many published archives are still to be read again, and
	// full reports that all pages of a paged feed are.
	recheck int
	full    bool
	again   bool // a paged feed has changed during the walk once
	// shifted reports that it has changed while its pages were published, and walked
	// is when all of them were read last.
	shifted bool
	walked  int64
	// permanent reports that frontier is an archive of a paged feed, and lacking that a
	// page of the walk is missing, so that no archive may end the next walk.
	permanent, lacking bool
	// torn reports that a page may lack its link to the next older one.
	torn bool
	// shared reports that a document has an entry that the topic has, or that the walk
	// has reached a published document or a gap. fresh counts the entries that the
	// topic lacks, and watched reports that a poll without a shared entry is to be
	// reported.
	shared, watched bool
	fresh           int
	// at is the document that is being published.
	at *document
	// found are the documents that are held while bridgeGap looks for more.
	found []*document
}

const (
	// stepBytes is the estimated memory of a document in a job without its entries and
	// its URL, in bytes.
	stepBytes = 300
	// leastWalk is how many bytes the URLs of a walk may always take.
	leastWalk = 1 << 20
)

// step is a document to publish. It is read again if it was not kept.
type step struct {
	url string
	// key is the URL under which the cursor remembers it.
	key string
	doc *document
	old bool
	// permanent reports that it is an archive of a paged feed.
	permanent bool
}

func isOld(st *step) bool { return st.old }

// heldBytes returns about how many bytes the entries of the job's documents take.
func (j *job) heldBytes() int64 {
	if j == nil {
		return 0
	}
	n, at := int64(0), j.at
	for _, st := range j.steps {
		if st.doc != nil {
			n += st.doc.heldBytes()
		}
		if st.doc == at {
			at = nil // it counts once
		}
	}
	for _, d := range append([]*document{j.sub, at}, j.found...) {
		if d != nil {
			n += d.heldBytes()
		}
	}
	return n
}

// dialectOf is the dialect that a document is read by: an archive is never
// complete, whatever it says.
func (j *job) dialectOf(d *document) Dialect {
	if d.archive {
		return j.dialect
	}
	return d.dialect
}

// topicVersion is the version of an ID at which the documents of a walk reach the
// version that the topic had when the walk began: the newest that is equal, or else the
// last of all versions. Older versions are in the topic already, or were replaced
// there.
type topicVersion struct {
	depth             int
	same              bool
	updated, document instant
}

// recordVersions records the entries of a document that the topic has. Documents come
// from the newest on, and before anything of the walk is published.
func (j *job) recordVersions(d *document) {
	for id, in := range d.fold.ids {
		had, ok := j.lasts[id]
		if !in.held || had.same {
			continue
		}
		is := topicVersion{depth: d.depth, same: in.same, updated: in.updated, document: d.updated}
		if in.deleted() {
			is.updated = in.when
		}
		if ok && !is.same && had.supersedes(is.updated, is.document, j.dialect) {
			continue
		}
		if j.lasts == nil {
			j.lasts = map[hashedKey]topicVersion{}
		}
		j.lasts[id] = is
	}
}

// supersedes reports whether a version counts before one of an older document.
func (t topicVersion) supersedes(updated, document instant, dialect Dialect) bool {
	switch {
	case dialect == Snapshots:
		return true
	case t.updated != 0 && updated != 0 && t.updated != updated:
		return t.updated > updated
	case t.document != 0 && document != 0 && t.document != document:
		return t.document > document
	}
	return true
}
