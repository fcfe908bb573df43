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
