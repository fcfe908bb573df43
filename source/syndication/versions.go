package syndication

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// instant is a time in nanoseconds since 1970; 0 if it is not known. Impossible years,
// such as the 0001 of servers without data, count as not known.
type instant int64

func instantOf(t time.Time) instant {
	switch {
	case t.Year() < 1970:
		return 0
	case t.Year() > 2261: // the last whole year
		return math.MaxInt64
	}
	return instant(t.UnixNano())
}

// compareKnown compares two instants. It returns 0 if one of them is not known.
func compareKnown(a, b instant) int {
	if a == 0 || b == 0 {
		return 0
	}
	return cmp.Compare(a, b)
}

// fingerprint describes the version of an entry in a message: enough to compare it with
// the next version. Its stored form is the mark of the message, which has a version
// number.
type fingerprint struct {
	deleted bool
	// updated is the time at which the entry was updated or deleted; 0 if it is not
	// known, as for entries that vanished from a complete feed.
	updated instant
	// document is the update time of the entry's document.
	document instant
	hash     [16]byte
	// page identifies the document.
	page uint32
}

// fingerprintVersion is the version of marks. Another one needs another cursorVersion, too: a program that cannot
// read the marks would publish all entries again, so it must refuse the cursor.
const fingerprintVersion = "1"

func (f fingerprint) String() string {
	state := "p"
	if f.deleted {
		state = "d"
	}
	number := func(t instant) string {
		if t == 0 {
			return ""
		}
		return strconv.FormatInt(int64(t), 10)
	}
	return strings.Join([]string{
		fingerprintVersion, state, number(f.updated), number(f.document), hex.EncodeToString(f.hash[:]), fmt.Sprintf("%08x", f.page),
	}, ";")
}

// parseFingerprint parses the result of [fingerprint.String].
func parseFingerprint(s string) (fingerprint, bool) {
	parts := strings.Split(s, ";")
	if len(parts) != 6 || parts[0] != fingerprintVersion || parts[1] != "p" && parts[1] != "d" {
		return fingerprint{}, false
	}
	m := fingerprint{deleted: parts[1] == "d"}
	for i, at := range []*instant{&m.updated, &m.document} {
		if parts[2+i] == "" {
			continue
		}
		n, err := strconv.ParseInt(parts[2+i], 10, 64)
		if err != nil {
			return fingerprint{}, false
		}
		*at = instant(n)
	}
	if n, err := hex.Decode(m.hash[:], []byte(parts[4][:min(len(parts[4]), 32)])); err != nil || n != len(m.hash) {
		return fingerprint{}, false
	}
	page, err := strconv.ParseUint(parts[5], 16, 32)
	m.page = uint32(page)
	return m, err == nil
}

// versions selects one entry for each ID of a document: of several entries the one that
// was updated last, or the newest by the order of the document if the dates do not decide; of
// several tombstones the last; and of an entry and its tombstone the later one (RFC 6721,
// section 3: at equal times the tombstone).
type versions struct {
	ids map[hashedKey]version
	// oldestFirst is the order that was expected, and byOrder reports that it has decided.
	oldestFirst, byOrder bool
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
	hash          [16]byte
	traits        feedxml.Traits // of the entry
}

func (v *version) deleted() bool {
	return v.tombstone >= 0 && (v.entry < 0 || v.updated == 0 || v.when >= v.updated)
}

// addEntry adds an entry and reports whether it is selected. instead is the index of
// the entry that it replaces; -1 for none. updated is 0 if it is not known or not
// trusted.
func (v *versions) addEntry(k hashedKey, e *feedxml.Entry, updated instant) (counts bool, instead int) {
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
				v.repeated = e.ID
			}
			order := compareKnown(updated, had.updated)
			v.byOrder = v.byOrder || order == 0
			if order < 0 || order == 0 && !v.oldestFirst {
				return false, -1
			}
			if !wasDeleted {
				instead = int(had.entry)
			}
		}
		had.entry, had.updated, had.traits = int32(e.Index), updated, e.Traits
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

// recordTopic records the hash of the selected version of an ID, whether the topic has the ID, and
// whether it has this version of it.
func (v *versions) recordTopic(k hashedKey, hash [16]byte, inTopic, same bool) {
	had := v.ids[k]
	had.hash, had.inTopic, had.same = hash, inTopic, same
	v.ids[k] = had
}

// hasEntry reports whether the document has an entry of that ID that is not deleted.
func (v *versions) hasEntry(id string) bool {
	had, ok := v.ids[hashKey(id)]
	return ok && had.entry >= 0 && !had.deleted()
}

// deletes reports whether the document has a tombstone of that ID which deletes a version that was updated then.
func (v *versions) deletes(id string, updated instant) bool {
	had, ok := v.ids[hashKey(id)]
	return ok && had.deleted() && had.when >= updated
}

// hashedKey is a short hash of an ID or a URL.
type hashedKey [16]byte

func hashKey(s string) hashedKey {
	sum := sha256.Sum256([]byte(s))
	return hashedKey(sum[:16])
}

func (k hashedKey) pageNumber() uint32 {
	return uint32(k[0])<<24 | uint32(k[1])<<16 | uint32(k[2])<<8 | uint32(k[3])
}
