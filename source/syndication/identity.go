package syndication

import (
	"encoding/binary"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// lookBytes is how much is remembered of each of the first entries of a document.
const lookBytes = 8

// looks are the first entries of a document: of each a hash of its title, link and
// date, and one of its ID. The cursor keeps those of the subscription document.
type looks []byte

// addEntry adds an entry that has an ID of its own.
func (l *looks) addEntry(e *feedxml.Entry) {
	if len(*l) == feedxml.MaxLooks*lookBytes || e.Deleted || e.Look == 0 || e.IDFrom.Weak() || e.IDFrom == feedxml.FromAbout {
		return
	}
	k := hashKey(e.ID)
	*l = append(binary.BigEndian.AppendUint32(*l, e.Look), k[:4]...)
}

// byLook returns the IDs by look. A look that several entries share identifies none of
// them, and is left out.
func (l looks) byLook() map[uint32]uint32 {
	ids := map[uint32]uint32{}
	twice := map[uint32]bool{}
	for ; len(l) >= lookBytes; l = l[lookBytes:] {
		look := binary.BigEndian.Uint32(l)
		_, again := ids[look]
		twice[look] = twice[look] || again
		ids[look] = binary.BigEndian.Uint32(l[4:])
	}
	for look, again := range twice {
		if again {
			delete(ids, look)
		}
	}
	return ids
}
