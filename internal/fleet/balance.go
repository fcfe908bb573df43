package fleet

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Slack is how many of 100 topics a member may have more than its even share.
const Slack = 10

// Balance returns the function that finds the owner of a topic: one of the members that can run its feed,
// or none ("") if there is no such member. All copies that know the same members with the same topics get
// the same answer, without any other knowledge.
//
// It takes the able member with the highest score for the topic (rendezvous hashing), so that only the topics
// of a member move that joins or leaves. A member that has its bound gets no more while another one is able and below
// it: [Slack] percent more than an even share, rounded up. That moves a few percent of the topics away from their best
// members. If all able members have it, the one with the fewest topics gets the topic.
//
// Topics with the fewest able members are assigned first, because the other topics can make up for them.
func Balance(members map[string]*Topics) (owner func(topic string) string) {
	b := balance{names: slices.Sorted(maps.Keys(members)), load: make([]int, len(members))}
	sets := map[string]int{} // indexes by fingerprint
	for n, name := range b.names {
		b.seeds = append(b.seeds, xxhash.Sum64String(name))
		set := members[name]
		i, known := sets[set.fingerprint]
		if !known {
			i = len(b.sets)
			sets[set.fingerprint], b.sets, b.able = i, append(b.sets, set), append(b.able, nil)
		}
		b.able[i] = append(b.able[i], n)
	}
	topics, owners := b.assign()
	return func(topic string) string {
		if n, ok := slices.BinarySearch(topics, hashOf(topic)); ok {
			return b.names[owners[n]]
		}
		return ""
	}
}

type balance struct {
	names []string // of the members, sorted
	seeds []uint64 // the hashes of their names
	load  []int    // topics of each member
	// sets are the different sets of topics, and able the members that have each of them.
	sets []*Topics
	able [][]int
}

// assign returns the topics of all members, in order, and the indexes of the members that own them.
func (b *balance) assign() (topics []uint64, owners []int32) {
	for _, set := range b.sets {
		topics = append(topics, set.hashes...)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	owners = make([]int32, len(topics))
	order, choices := make([]int32, len(topics)), make([]int32, len(topics))
	for n, topic := range topics {
		order[n] = int32(n)
		for i, set := range b.sets {
			if set.has(topic) {
				choices[n] += int32(len(b.able[i]))
			}
		}
	}
	if len(b.sets) > 1 {
		slices.SortStableFunc(order, func(n, m int32) int { return cmp.Compare(choices[n], choices[m]) })
	}
	even := len(b.names) * 100
	for _, n := range order {
		best := b.best(topics[n], (len(topics)*(100+Slack)+even-1)/even)
		owners[n] = int32(best)
		b.load[best]++
	}
	return topics, owners
}

// best returns the able member that gets a topic. Of two with the same score it is the first one.
func (b *balance) best(topic uint64, bound int) int {
	best, highest := -1, uint64(0)
	for i, set := range b.sets {
		if !set.has(topic) {
			continue
		}
		for _, m := range b.able[i] {
			s := score(b.seeds[m], topic>>(hashBits-slotBits))
			isBetter := s > highest
			if load := b.load[m]; best >= 0 && (load >= bound || b.load[best] >= bound) && load != b.load[best] {
				isBetter = load < b.load[best]
			}
			if isBetter || best < 0 {
				best, highest = m, s
			}
		}
	}
	return best
}

// slotBits is the size of the slots into which topics are put. Topics in the same slot have the same scores.
const slotBits = 18

// score mixes the hash of a member with a slot, with the finalizer of splitmix64. Other versions of
// the program must get the same scores, or they disagree about the owners during an upgrade.
func score(member, slot uint64) uint64 {
	x := member ^ slot
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
