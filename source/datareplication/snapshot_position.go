package datareplication

import (
	"fmt"
	"time"
)

// snapshotPosition is a position in a snapshot, which is published before the feed. It is part of
// the cursor, whose other fields are the position in the feed after the snapshot.
//
// A snapshot is made while the feed grows, so the two overlap. An entity that both have
// must be published once, and must come from the feed: the feed also has its earlier
// versions, which would otherwise be published after it. So times divide them. Entities
// that were modified before the time From of the search come from the snapshot, and later
// ones from the feed. This needs no memory.
type snapshotPosition struct {
	// Index is the configured URL of the index. Found is its URL after redirects, if that
	// is another one: a server may redirect to the own URL of its newest snapshot, which
	// can then be read to its end although newer snapshots appear.
	Index string `json:"index"`
	Found string `json:"found,omitempty"`
	// ID, Created and Pages are the id, the time and the number of pages of the snapshot.
	// ID is empty until the index has been read.
	ID      string    `json:"id,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Pages   int       `json:"pages,omitempty"`
	// Ready reports that the position in the feed after the snapshot is known.
	Ready bool `json:"ready,omitempty"`

	// The position is before entity number Entity of page number Page. Digest is over the
	// entities before it on that page.
	Page   int    `json:"page,omitempty"`
	Entity int    `json:"entity,omitempty"`
	Digest digest `json:"digest,omitempty"`
	// Published is the number of entities that were delivered.
	Published int `json:"published,omitempty"`
}

func (sn *snapshotPosition) String() string {
	if sn.ID == "" {
		return "the snapshot " + sn.Index
	}
	return fmt.Sprintf("page %d of %d of the snapshot %s of %s", min(sn.Page+1, sn.Pages), sn.Pages, sn.ID, sn.Created.Format(time.RFC3339))
}

// restarted returns the snapshot in its state before its index was read.
func (sn *snapshotPosition) restarted() snapshotPosition {
	return snapshotPosition{Index: sn.Index, Ready: sn.Ready, Published: sn.Published}
}

func (sn *snapshotPosition) matches(ix *index) bool {
	// The URLs of the pages are not compared: they may be signed for each reader.
	return isStoredID(sn.ID, ix.id) && sn.Created.Equal(ix.created) && sn.Pages == len(ix.pages)
}

// owed is the oldest entity that was left out of a snapshot because the feed must have it.
type owed struct {
	ID       string `json:"id"`
	Modified int64  `json:"modified"`
}
