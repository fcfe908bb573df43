package syndication

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Providers give one ID to several items. Two items of one document that have the same ID, and
// another link, date of publication, enclosure or title, are two items. One of them, the holder,
// keeps the ID. The IDs of the others are extended by the trait in which they were seen to differ
// from the holder, so an extended ID depends only on its own item: not on its place in the
// document, not on the items beside it, and not on its contents.
//
// The holder is the item that the topic has under the ID: by its contents, or, if they have changed
// since, the older one, because new items are added. If the topic has none of them, it is the one
// that was updated last, or else the first of the document.
//
// Two entries of one document are versions of one entry if they have the same traits, or other
// titles and other update times (RFC 4287, section 4.1.1). So are entries of different documents,
// which may be archives with older versions, until a document has shown that their ID is shared.
// Entries of an archived Atom feed with the same atom:id always are (RFC 5005, section 4.2): its
// documents may have several versions of an entry, also with equal times.
//
// Four things show that an ID is shared, in this order: the topic has this version of the entry under
// an extended ID; the cursor has the holder, which is another item; the topic has another version
// under an extended ID; the document has another item. The topic recognises the items that were
// published, also after a reset of the cursor. The cursor tells new items from edits of the holder
// when there is no other item in the document.

// sharedIDs are IDs that several items have, in the order in which that was seen. For each ID and
// trait it has a hash of both, and the trait of the holder, which is 0 while it is not known.
type sharedIDs []byte

const (
	// maxShared is the maximum number of shared IDs in the cursor, which has the newest, and
	// sharedBytes the length of each.
	maxShared   = 300
	sharedBytes = 2 * traitBytes
	traitBytes  = 6
)

// withID iterates over the records of an ID: their offsets and their traits.
func (l sharedIDs) withID(k hashedKey) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for i := 0; i < len(l); i += sharedBytes {
			if trait := int(l[i] ^ k[0]); trait < len(feedxml.Traits{}) && bytes.Equal(l[i+1:i+traitBytes], k[1:traitBytes]) && !yield(i, trait) {
				return
			}
		}
	}
}

// holderAt returns the trait of the holder of the record at an offset.
func (l sharedIDs) holderAt(i int) uint64 {
	return binary.BigEndian.Uint64(append([]byte{0, 0}, l[i+traitBytes:i+sharedBytes]...))
}

// findTrait returns the first trait by which an entry was seen to differ from the holder of its ID;
// -1 if there is none.
func (l sharedIDs) findTrait(k hashedKey, traits feedxml.Traits) int {
	for i, trait := range l.withID(k) {
		if holder := l.holderAt(i); holder != 0 && traits[trait] != 0 && holder != traits[trait] {
			return trait
		}
	}
	return -1
}

// setHolder records that an ID is shared by items that differ in a trait, and the trait of its
// holder if that is known.
func (l *sharedIDs) setHolder(k hashedKey, trait int, holder uint64) {
	value := binary.BigEndian.AppendUint64(nil, holder)[8-traitBytes:]
	all := slices.Clone(*l)
	for i, has := range all.withID(k) {
		if has == trait {
			if holder != 0 {
				copy(all[i+traitBytes:], value)
				*l = all
			}
			return
		}
	}
	k[0] ^= byte(trait)
	all = append(append(all, k[:traitBytes]...), value...)
	*l = all[max(0, len(all)-maxShared*sharedBytes):]
}

// adoptHolder records the holder of an ID where it was not known.
func (l *sharedIDs) adoptHolder(k hashedKey, traits feedxml.Traits) {
	for i, trait := range l.withID(k) {
		if l.holderAt(i) == 0 {
			l.setHolder(k, trait, traits[trait])
		}
	}
}

// extendID returns the ID of an item whose own ID has another holder.
func extendID(id string, trait int, value uint64) string {
	return fmt.Sprintf("%s#%s-%012x", id, feedxml.TraitNames[trait], value)
}

// idSource returns what the ID of an entry is made of.
func (it *item) idSource() string {
	from := string(it.IDFrom)
	for _, part := range strings.Split(it.ID[len(it.own):], "#")[1:] {
		trait, _, _ := strings.Cut(part, "-")
		from += "+" + trait
	}
	return from
}

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
// may follow its entries, so what the feed was before counts, too.
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

// extendOther extends the ID of an earlier entry of the document.
func (d *document) extendOther(id string, trait int, had version) {
	extended := extendID(id, trait, had.traits[trait])
	d.countShared(id)
	d.versions.ids[hashKey(id)] = version{entry: -1, tombstone: had.tombstone, when: had.when}
	if it := d.buffer.byIndex[int(had.entry)]; it != nil {
		d.buffer.renameItem(it, extended)
	}
	had.tombstone, had.when, had.inTopic, had.same = -1, 0, false, false
	d.versions.ids[hashKey(extended)] = had
}

// countShared counts an entry that shares its ID with another one.
func (d *document) countShared(id string) {
	if d.shared++; d.sharedID == "" {
		d.sharedID = id
	}
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
