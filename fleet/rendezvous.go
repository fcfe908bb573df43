package fleet

import (
	"cmp"
	"encoding/hex"
	"iter"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// slots is the number of slots into which a hash puts topics. Topics in the same slot have the same
// ranking of members, so that at most this many rankings are computed, and not one for each topic.
const slots = 1 << 18

// Rendezvous returns the function that finds the owner of a topic among some members: the one with
// the highest score for the topic's slot (highest random weight). All copies that know the same
// members get the same answer, without any other knowledge. If a member joins or leaves, only the
// topics move that it gets or had. Without members the owner is empty.
func Rendezvous(members []string) (owner func(topic string) string) {
	r := newRanking(members)
	return func(topic string) string { return r.name(r.best(slotOf(topic), nil)) }
}

// Slack is how many of 100 topics a member may have more than its even share, in Balance.
const Slack = 10

// Balance returns a function like that of [Rendezvous], which bounds the topics of each member: it
// has at most [Slack] percent more than an even share, rounded up. A topic whose best member has its
// bound goes to the next best one. That moves a few percent of the topics away from the members that
// Rendezvous would choose.
//
// Copies get the same answer only if they have the same topics. A topic that is not one of
// topics has the owner of Rendezvous.
func Balance(members []string, topics *Topics) (owner func(topic string) string) {
	r := newRanking(members)
	if len(r.members) == 0 {
		return Rendezvous(nil)
	}
	even := len(r.members) * 100
	bound := (len(topics.all)*(100+Slack) + even - 1) / even
	load, full := make([]int, len(r.members)), make([]bool, len(r.members))
	owners := make([]int32, len(topics.all)) // indexes of members, by those of the topics
	best, ranked := -1, uint32(slots)        // the best member that is not full, for the slot ranked
	for n, topic := range topics.all {
		if topic.slot != ranked || full[best] {
			best, ranked = r.best(topic.slot, full), topic.slot
		}
		owners[n] = int32(best) // not -1: the sum of the bounds is not less than the number of topics
		load[best]++
		full[best] = load[best] >= bound
	}
	return func(topic string) string {
		if n, ok := topics.find(topic); ok {
			return r.name(int(owners[n]))
		}
		return r.name(r.best(slotOf(topic), nil))
	}
}

// ranking finds the best member for a slot.
type ranking struct {
	members []string // sorted
	hashes  []uint64 // of their names
}

func newRanking(members []string) ranking {
	r := ranking{slices.Compact(slices.Sorted(slices.Values(members))), nil}
	for _, m := range r.members {
		r.hashes = append(r.hashes, xxhash.Sum64String(m))
	}
	return r
}

// best returns the index of the member with the highest score for a slot, -1 if there is none.
// Members that are full, by index, are not considered; full may be nil. Of two members with the
// same score the first one is taken.
func (r ranking) best(slot uint32, full []bool) int {
	best, highest := -1, uint64(0)
	for i, member := range r.hashes {
		if s := score(member, slot); (s > highest || best < 0) && (full == nil || !full[i]) {
			best, highest = i, s
		}
	}
	return best
}

func (r ranking) name(member int) string {
	if member < 0 {
		return ""
	}
	return r.members[member]
}

// score mixes the hash of a member with a slot, with the finalizer of splitmix64. Other versions of
// the program must get the same scores, or they disagree about the owners during an upgrade.
func score(member uint64, slot uint32) uint64 {
	x := member ^ uint64(slot)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// slotOf returns the slot of a topic.
func slotOf(topic string) uint32 { return uint32(xxhash.Sum64String(topic) % slots) }

// Topics are the topics for which a copy has feeds. They are not changed, and may be used by any
// number of goroutines.
type Topics struct {
	all         []slottedTopic // in order, each once
	fingerprint string
}

type slottedTopic struct {
	slot uint32
	name string
}

// compareSlots orders topics by slot, and those of a slot by name.
func (t slottedTopic) compareSlots(other slottedTopic) int {
	if t.slot != other.slot {
		return cmp.Compare(t.slot, other.slot)
	}
	return strings.Compare(t.name, other.name)
}

// NewTopics returns the topics with these names.
func NewTopics(names []string) *Topics {
	t := &Topics{all: make([]slottedTopic, 0, len(names))}
	for _, name := range names {
		t.all = append(t.all, slottedTopic{slotOf(name), name})
	}
	slices.SortFunc(t.all, slottedTopic.compareSlots)
	t.all = slices.Compact(t.all)
	hash := xxhash.New()
	for _, topic := range t.all {
		_, _ = hash.WriteString(topic.name + "\n") // never fails
	}
	t.fingerprint = hex.EncodeToString(hash.Sum(nil))
	return t
}

// find returns the index of a topic, and whether it is there.
func (t *Topics) find(name string) (index int, ok bool) {
	return slices.BinarySearchFunc(t.all, slottedTopic{slotOf(name), name}, slottedTopic.compareSlots)
}

// Names returns the names of the topics.
func (t *Topics) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, topic := range t.all {
			if !yield(topic.name) {
				return
			}
		}
	}
}

// Fingerprint is the same for the same names, and most probably another one for others.
func (t *Topics) Fingerprint() string { return t.fingerprint }
