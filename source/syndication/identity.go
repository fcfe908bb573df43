package syndication

import (
	"encoding/binary"
	"fmt"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// IdentitiesChanged is the kind of violation that holds a document back in which most
// IDs have changed while the entries have not.
const IdentitiesChanged = "identities_changed"

const (
	// fewLooks is how many entries have to have changed their ID at least.
	fewLooks = 3
)

// add adds an entry that has an ID of its own.
func (l *looks) add(e *feedxml.Entry) {
	if len(*l) == feedxml.MaxLooks*lookBytes || e.Deleted || e.Look == 0 || e.IDFrom.Weak() || e.IDFrom == feedxml.FromAbout {
		return
	}
	k := keyOf(e.ID)
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

// newIdentities returns an error if most entries of a document are those of the one
// that was published last, and have other IDs: all of them would be published again.
func (r *turn) newIdentities(d *document) error {
	if r.s.cfg.Identity != "auto" || r.cur.Doc != nil {
		return nil
	}
	before, now := r.cur.Looks.byLook(), d.looks.byLook()
	changed := 0
	for look, id := range now {
		if was, ok := before[look]; ok && was != id {
			changed++
		}
	}
	if changed < fewLooks || 2*changed <= len(now) {
		return nil
	}
	return feed.Permanent(fmt.Errorf("%w; ask the provider to take that back; otherwise set identity to guid, which publishes all of them again under their new ids; or, if the ids go on changing, to link or content, "+
		"which publishes all entries once more, under ids that are made of their links or contents",
		&feed.Violation{Kind: IdentitiesChanged, Page: d.url, Detail: fmt.Sprintf("%d of %d entries have another id than before, and the same title, link and date", changed, len(now))}))
}
