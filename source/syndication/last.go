package syndication

// last is the version of an ID at which the documents of a walk get to what the
// topic had when the walk began: the newest that is the same, or if there is none,
// the one that counts of all of them. What is before it is in the topic already, or
// was replaced there.
type last struct {
	depth             int
	same              bool
	updated, document instant
}

// note takes note of the entries of a document that the topic has. Documents come
// from the newest on, and before anything of the walk is published.
func (j *job) note(d *document) {
	for id, in := range d.fold.ids {
		had, ok := j.lasts[id]
		if !in.held || had.same {
			continue
		}
		is := last{depth: d.depth, same: in.same, updated: in.updated, document: d.updated}
		if in.deleted() {
			is.updated = in.when
		}
		if ok && !is.same && had.beats(is.updated, is.document, j.dialect) {
			continue
		}
		if j.lasts == nil {
			j.lasts = map[key]last{}
		}
		j.lasts[id] = is
	}
}

// forgetIDs lets go of the IDs of a document, unless it has to be compared with
// all that the topic has.
func (d *document) forgetIDs() {
	if !d.deletes {
		d.fold.ids = nil
	}
}

// beats says whether a version counts before one of an older document.
func (l last) beats(updated, document instant, dialect Dialect) bool {
	switch {
	case dialect == Snapshots:
		return true
	case l.updated != 0 && updated != 0 && l.updated != updated:
		return l.updated > updated
	case l.document != 0 && document != 0 && l.document != document:
		return l.document > document
	}
	return true
}

// superseded says whether a newer document of the walk has what the topic held of
// an entry when the walk began, so that this one would take the topic back to an
// older version. If no document has that, and the walk goes through what was
// published before, only the version that counts in the end is published.
func (s *Source) superseded(cur *cursor, d *document, it *item) bool {
	if d.depth == 0 || s.job == nil {
		return false
	}
	l, ok := s.job.lasts[keyOf(it.ID)]
	return ok && l.depth < d.depth && (l.same || cur.Rewalk) && l.beats(s.trusted(instantOf(it.Updated.Time), d.now), d.updated, s.job.dialect)
}
