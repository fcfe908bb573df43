package syndication

import "github.com/feedbridge/feedbridge/source/syndication/feedxml"

// versions reduces the entries of a document that have the same ID to one: of its
// versions the one that was updated last, or the first in the document if the dates do
// not decide; of its tombstones the last; and of an entry and its tombstone the later
// one (RFC 6721, section 3: at the same time, it was deleted).
type versions struct {
	ids map[hashedKey]version
	// repeated is the first ID of which there are several entries, and times how
	// many were too many.
	repeated string
	times    int
}

// version is the state of an ID in a document.
type version struct {
	updated, when    instant
	entry, tombstone int32 // their places; -1 for none
	// held reports that the topic has the ID, and same that it has it as it counts
	// here.
	inTopic, same bool
}

func (v *version) deleted() bool {
	return v.tombstone >= 0 && (v.entry < 0 || v.updated == 0 || v.when >= v.updated)
}

// addEntry takes an entry, and reports whether it counts, and which place of the document
// does not count any more; -1 for none. updated is 0 if it is not to be believed.
func (v *versions) addEntry(id string, e *feedxml.Entry, updated instant) (counts bool, instead int) {
	k := hashKey(id)
	had, ok := v.ids[k]
	if !ok {
		had = version{entry: -1, tombstone: -1}
	}
	wasDeleted := had.deleted()
	instead = -1
	if e.Deleted {
		if had.tombstone >= 0 && updated <= had.when {
			return false, -1
		}
		if wasDeleted {
			instead = int(had.tombstone)
		}
		had.tombstone, had.when = int32(e.Index), updated
	} else {
		if had.entry >= 0 {
			v.times++
			if v.repeated == "" {
				v.repeated = id
			}
			if had.updated == 0 || updated == 0 || updated <= had.updated {
				return false, -1
			}
			if !wasDeleted {
				instead = int(had.entry)
			}
		}
		had.entry, had.updated = int32(e.Index), updated
	}
	v.ids[k] = had
	isDeleted := had.deleted()
	switch {
	case isDeleted && !wasDeleted && had.entry >= 0 && e.Deleted:
		instead = int(had.entry)
	case !isDeleted && wasDeleted && !e.Deleted:
		instead = int(had.tombstone)
	}
	return isDeleted == e.Deleted, instead
}

// recordTopic records whether the topic already holds an ID, and whether it holds this
// version of it.
func (v *versions) recordTopic(id string, inTopic, same bool) {
	k := hashKey(id)
	had := v.ids[k]
	had.inTopic, had.same = inTopic, same
	v.ids[k] = had
}

// hasEntry reports whether the document has an entry of that ID that is not deleted.
func (v *versions) hasEntry(id string) bool {
	had, ok := v.ids[hashKey(id)]
	return ok && had.entry >= 0 && !had.deleted()
}
