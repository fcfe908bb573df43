package syndication

import (
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// topicEntry is the version of an entry in the topic.
type topicEntry struct {
	fingerprint
	key hashedKey // of the ID
	// inTopic reports that the topic has the ID, known that its mark can be read, and same that it
	// has this version of the entry.
	inTopic, known, same bool
}

func (s *decider) topicEntry(id string, it *item) topicEntry {
	raw, inTopic := s.topic.Mark(id)
	m, ok := parseFingerprint(raw)
	t := topicEntry{fingerprint: m, key: hashKey(id), inTopic: inTopic, known: inTopic && ok}
	t.same = t.known && m.deleted == it.Deleted && (it.Deleted || m.hash == it.shortHash())
	return t
}

// identify returns the ID under which an entry of a document is published, and what the topic has
// under that ID. It records in the cursor that an ID is shared.
func (s *decider) identify(cur *cursor, d *document, it *item, updated instant) (id string, t topicEntry) {
	id = it.own
	t = s.topicEntry(id, it)
	for range it.Traits {
		trait := -1
		if !it.Deleted && (!d.hasVersions || it.IDFrom.Weak()) {
			trait = s.findTrait(cur, d, it, id, &t, updated)
		}
		if trait < 0 {
			break
		}
		id = extendID(id, trait, it.Traits[trait])
		t = s.topicEntry(id, it)
	}
	if id != it.own {
		d.countShared(it.own)
	}
	return id, t
}

// hasVersions reports whether a document with that head is one of an archived Atom feed. Its links
// may follow its entries, so the dialect of the previous poll counts as well.
func (s *decider) hasVersions(cur *cursor, head *feedxml.Meta) bool {
	now, _, _ := s.documentDialect(head)
	archived := []Dialect{Archived, ArchivedElement, Snapshots}
	return head.Format == feedxml.Atom && (slices.Contains(archived, now) || slices.Contains(archived, cur.Dialect))
}

// findTrait returns the trait by which an ID of an entry has to be extended; -1 for none.
func (s *decider) findTrait(cur *cursor, d *document, it *item, id string, t *topicEntry, updated instant) int {
	had := d.versions.ids[t.key] // its traits are 0 if there is none
	if t.same {
		cur.Shared.adoptHolder(t.key, it.Traits)
	} else {
		trait := s.publishedTrait(id, it, t, true)
		if trait < 0 {
			trait = cur.Shared.findTrait(t.key, it.Traits)
		}
		if trait < 0 {
			trait = s.publishedTrait(id, it, t, false)
		}
		if trait >= 0 {
			cur.Shared.setHolder(t.key, trait, had.traits[trait])
			return trait
		}
	}
	for trait, value := range it.Traits {
		other := had.traits[trait]
		if value == 0 || other == 0 || value == other || trait == feedxml.TitleTrait && compareKnown(updated, had.updated) != 0 {
			continue
		}
		if !s.isHolder(d, it, &had, t, updated) {
			cur.Shared.setHolder(t.key, trait, other)
			return trait
		}
		cur.Shared.setHolder(t.key, trait, value)
		d.extendOther(id, trait, had)
		break
	}
	return -1
}

// publishedTrait returns the trait by which an ID is extended under which the topic has an entry:
// this version of it, perhaps under an ID that is extended further, or any version; -1 if there
// is none.
func (s *decider) publishedTrait(id string, it *item, t *topicEntry, same bool) int {
	if !t.known || strings.Count(id[len(it.own):], "#") == len(it.Traits) { // no ID is extended more often
		return -1
	}
	for trait, value := range it.Traits {
		if value == 0 {
			continue
		}
		extended := extendID(id, trait, value)
		x := s.topicEntry(extended, it)
		if x.inTopic && (!same || x.same || s.publishedTrait(extended, it, &x, true) >= 0) {
			return trait
		}
	}
	return -1
}

// isHolder reports whether an entry keeps its ID in place of an earlier one of the document.
func (s *decider) isHolder(d *document, it *item, had *version, t *topicEntry, updated instant) bool {
	published, other := it.Traits[feedxml.DateTrait], had.traits[feedxml.DateTrait]
	switch {
	case had.same || t.same:
		return !had.same
	case !t.known || t.deleted:
		return compareKnown(updated, had.updated) > 0
	case published != 0 && other != 0 && published != other:
		return published < other
	}
	return d.request.order != feedxml.OldestFirst
}

// extendKnown extends the ID of an entry in memory if an older document has shown since it was
// read that the ID is shared.
func (s *decider) extendKnown(cur *cursor, b *entryBuffer, it *item) {
	if len(cur.Shared) == 0 || it.Deleted || it.ID != it.own {
		return
	}
	for range it.Traits {
		t := s.topicEntry(it.ID, it)
		trait := cur.Shared.findTrait(t.key, it.Traits)
		if t.same || trait < 0 {
			return
		}
		b.renameItem(it, extendID(it.ID, trait, it.Traits[trait]))
	}
}
