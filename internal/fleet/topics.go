package fleet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// hashBits is the size of the hashes that stand for the names of topics. Among 10,000 topics two have
// the same hash with a probability of 1 in 5 million. They then have the same owner, and nothing else
// is different.
const hashBits = 48

func hashOf(topic string) uint64 { return xxhash.Sum64String(topic) >> (64 - hashBits) }

// Topics are the topics of the feeds that a member can run, or a version of a [List]. They are not changed, and
// may be used by any number of goroutines.
type Topics struct {
	// hashes are in order, each once. Those of a version of a list end in the hash of the URL.
	hashes      []uint64
	fingerprint string
}

// NewTopics returns the topics with these names.
func NewTopics(names []string) *Topics {
	hashes := make([]uint64, 0, len(names))
	for _, name := range names {
		hashes = append(hashes, hashOf(name))
	}
	slices.Sort(hashes)
	return newTopics(slices.Compact(hashes))
}

func newTopics(hashes []uint64) *Topics {
	t := &Topics{hashes: hashes}
	t.fingerprint = fmt.Sprintf("%016x", xxhash.Sum64(t.encode()))
	return t
}

// Fingerprint is the same for the same topics, and most probably another one for others.
func (t *Topics) Fingerprint() string { return t.fingerprint }

// has reports whether the topics have one with that hash.
func (t *Topics) has(hash uint64) bool {
	_, has := slices.BinarySearch(t.hashes, hash)
	return has
}

// encode returns the differences between the hashes: 5 bytes for each of 10,000 topics.
func (t *Topics) encode() (text []byte) {
	last := uint64(0)
	for _, hash := range t.hashes {
		text, last = binary.AppendUvarint(text, hash-last), hash
	}
	return text
}

// decodeTopics is the inverse of encode, for hashes of some bits.
func decodeTopics(text []byte, bits int) (*Topics, error) {
	var hashes []uint64
	for last := uint64(0); len(text) > 0; {
		step, n := binary.Uvarint(text)
		if n <= 0 || last+step < last || (last+step)>>bits != 0 || step == 0 && len(hashes) > 0 {
			return nil, errors.New("invalid set of topics")
		}
		last, text = last+step, text[n:]
		hashes = append(hashes, last)
	}
	return newTopics(hashes), nil
}

// value is what a member publishes, as a JSON object. Members of other versions of the program read it: they
// ignore the fields that they do not know, so fields are only added.
type value struct {
	// Member is the name of the member. It distinguishes a member's value from what other programs store.
	Member string `json:"feedbridge_member"`
	// Topics is the fingerprint of the member's topics.
	Topics string `json:"topics"`
	// Hashes are the topics. They are published only while members have different ones, and then by one
	// of those with the same fingerprint.
	Hashes []byte `json:"hashes,omitempty"`
	// Lists are the lists that the member has read, by name. Their feeds are not among Topics.
	Lists map[string]listVersion `json:"lists,omitempty"`
}

// fingerprint returns that of a list, or with an empty name that of the other feeds; empty if there is none.
func (v value) fingerprint(list string) string {
	if list == "" {
		return v.Topics
	}
	return v.Lists[list].Topics
}

// hasSameFeeds reports whether two members have the same feeds.
func (v value) hasSameFeeds(other value) bool {
	return v.Topics == other.Topics && maps.EqualFunc(v.Lists, other.Lists, func(a, b listVersion) bool { return a.Topics == b.Topics })
}

func (v value) encode() []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // a struct of texts can be encoded
	}
	return text
}

// decodeValue returns the value of a member, and false if it is not the member's.
func decodeValue(member string, text []byte) (v value, ok bool) {
	err := json.Unmarshal(text, &v)
	return v, err == nil && v.Member == member && v.Topics != ""
}
