package syndication

import "github.com/feedbridge/feedbridge/source/syndication/feedxml"

// versions selects one entry for each ID of a document: of several entries the one that
// was updated last, or the first in the document if the dates do not decide; of several
// tombstones the last; and of an entry and its tombstone the later one (RFC 6721,
// section 3: at equal times the tombstone).
type versions struct {
	ids map[hashedKey]version
	// repeated is the first ID that several entries have, and times the number of
	// surplus entries.
	repeated string
	times    int
}

// version is the state of an ID in a document.
type version struct {
	updated, when    instant
	entry, tombstone int32 // their indexes; -1 for none
	// inTopic reports that the topic has the ID, and same that it has this version of
	// it.
	inTopic, same bool
}

func (v *version) deleted() bool {
	return v.tombstone >= 0 && (v.entry < 0 || v.updated == 0 || v.when >= v.updated)
}

// addEntry adds an entry and reports whether it is selected. instead is the index of
// the entry that it replaces; -1 for none. updated is 0 if it is not known or not
// trusted.
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

// recordTopic records whether the topic has an ID, and whether it has this version of
// it.
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
