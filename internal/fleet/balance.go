package fleet

import (
	"cmp"
	"encoding/binary"
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
// It takes the member with the highest score for the topic (rendezvous hashing), so that only the topics
// of a member move that joins or leaves. A member that has its bound gets no more: [Slack] percent more
// than an even share, rounded up. That moves a few percent of the topics away from their best members.
//
// Topics with the same able members are a class. Those with the fewest able members are assigned first,
// because others can make up for them. The shares are even among the able members of each class, as
// far as the classes before it allow.
func Balance(members map[string]*Topics) (owner func(topic string) string) {
	b := newBalance(members)
	classes := b.classes()
	slices.SortFunc(classes, func(a, b *class) int {
		return cmp.Or(cmp.Compare(len(a.able), len(b.able)), slices.Compare(a.able, b.able))
	})
	for _, c := range classes {
		b.assign(c)
	}
	return func(topic string) string {
		if n, ok := slices.BinarySearch(b.topics, hashOf(topic)); ok {
			return b.members[b.owners[n]]
		}
		return ""
	}
}

type balance struct {
	members []string // sorted
	seeds   []uint64 // the hashes of their names
	load    []int    // topics of each member
	// sets are the different sets of topics, and able the members that have each of them.
	sets []*Topics
	able [][]int
	// topics are those of all members, in order, and owners the indexes of the members that own them.
	topics []uint64
	owners []int32
}

// class has the topics that the same members can run.
type class struct {
	able   []int // indexes of members
	topics []int // indexes of topics, in order
}

func newBalance(members map[string]*Topics) *balance {
	b := &balance{members: slices.Sorted(maps.Keys(members)), load: make([]int, len(members))}
	index := map[string]int{} // of sets, by fingerprint
	for n, name := range b.members {
		b.seeds = append(b.seeds, xxhash.Sum64String(name))
		set := members[name]
		i, ok := index[set.fingerprint]
		if !ok {
			i = len(b.sets)
			index[set.fingerprint] = i
			b.sets, b.able = append(b.sets, set), append(b.able, nil)
		}
		b.able[i] = append(b.able[i], n)
	}
	return b
}

// classes collects the topics of all members, and returns them by class.
func (b *balance) classes() (classes []*class) {
	for _, set := range b.sets {
		b.topics = append(b.topics, set.hashes...)
	}
	if len(b.sets) > 1 {
		slices.Sort(b.topics)
		b.topics = slices.Compact(b.topics)
	}
	b.owners = make([]int32, len(b.topics))
	byKey := map[string]*class{} // by the sets that have the topics
	next := make([]int, len(b.sets))
	var key []byte
	for n, topic := range b.topics {
		key = key[:0]
		for i, set := range b.sets {
			if next[i] < len(set.hashes) && set.hashes[next[i]] == topic {
				next[i]++
				key = binary.AppendUvarint(key, uint64(i))
			}
		}
		c := byKey[string(key)]
		if c == nil {
			c = &class{able: b.ableOf(key)}
			byKey[string(key)] = c
			classes = append(classes, c)
		}
		c.topics = append(c.topics, n)
	}
	return classes
}

// ableOf returns the members that have one of the sets in a key.
func (b *balance) ableOf(key []byte) (able []int) {
	for len(key) > 0 {
		set, n := binary.Uvarint(key)
		able, key = append(able, b.able[set]...), key[n:]
	}
	slices.Sort(able)
	return able
}

// assign gives each topic of a class to one of the members that are able.
func (b *balance) assign(c *class) {
	bound := b.bound(c)
	best, ranked := -1, uint64(0) // the best member below the bound, for the slot ranked
	for _, n := range c.topics {
		if slot := slotOf(b.topics[n]); best < 0 || slot != ranked || b.load[best] >= bound {
			best, ranked = b.best(slot, c.able, bound), slot
		}
		b.owners[n] = int32(best)
		b.load[best]++
	}
}

// bound returns the number of topics up to which members of a class get topics of it. If all k members
// that have the fewest topics so far could have equally many after it, that is this number and Slack.
// So together they have room for the class.
func (b *balance) bound(c *class) int {
	loads := make([]int, 0, len(c.able))
	for _, m := range c.able {
		loads = append(loads, b.load[m])
	}
	slices.Sort(loads)
	sum := len(c.topics)
	for k, load := range loads {
		if sum <= load*k {
			loads = loads[:k]
			break
		}
		sum += load
	}
	even := len(loads) * 100
	return (sum*(100+Slack) + even - 1) / even
}

// best returns the able member with the highest score for a slot, of those below a bound. Of two with
// the same score it is the first one.
func (b *balance) best(slot uint64, able []int, bound int) int {
	best, highest := -1, uint64(0)
	for _, m := range able {
		if s := score(b.seeds[m], slot); (s > highest || best < 0) && b.load[m] < bound {
			best, highest = m, s
		}
	}
	return best
}

// slotBits is the size of the slots into which topics are put. Topics in the same slot have the same
// ranking of members, so that a ranking is not computed for each topic.
const slotBits = 18

func slotOf(hash uint64) uint64 { return hash >> (hashBits - slotBits) }

// score mixes the hash of a member with a slot, with the finalizer of splitmix64. Other versions of
// the program must get the same scores, or they disagree about the owners during an upgrade.
func score(member, slot uint64) uint64 {
	x := member ^ slot
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
