package syndication

import (
	"encoding/binary"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// titleHashBytes is the length of the two hashes of an entry.
const titleHashBytes = 8

// titleHashes identify the first entries of a document: for each a hash of its title,
// link and date, and one of its ID. The cursor has those of the subscription document.
type titleHashes []byte

// addEntry adds an entry that has an ID of its own.
func (l *titleHashes) addEntry(e *feedxml.Entry) {
	if len(*l) == feedxml.MaxTitleHashes*titleHashBytes || e.Deleted || e.TitleHash == 0 || e.IDFrom.Weak() || e.IDFrom == feedxml.FromAbout {
		return
	}
	k := hashKey(e.ID)
	*l = append(binary.BigEndian.AppendUint32(*l, e.TitleHash), k[:4]...)
}

// byTitleHash returns the hashes of the IDs by title hash. A title hash that several
// entries share identifies none of them, and is left out.
func (l titleHashes) byTitleHash() map[uint32]uint32 {
	ids := map[uint32]uint32{}
	twice := map[uint32]bool{}
	for ; len(l) >= titleHashBytes; l = l[titleHashBytes:] {
		hash := binary.BigEndian.Uint32(l)
		_, again := ids[hash]
		twice[hash] = twice[hash] || again
		ids[hash] = binary.BigEndian.Uint32(l[4:])
	}
	for hash, again := range twice {
		if again {
			delete(ids, hash)
		}
	}
	return ids
}
