package kafka_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/sink/kafka"
)

// balancedGroup is a consumer group whose members follow its leader's plans, as franz-go does.
type balancedGroup struct {
	t          *testing.T
	balancer   kgo.GroupBalancer
	generation int32
	owned      map[string][]int32 // by member
}

// rebalance makes plans until no member has lost partitions by one, and returns their number.
func (g *balancedGroup) rebalance() (plans int) {
	for lost := true; lost; plans++ {
		if plans == 5 {
			g.t.Fatal("the group does not come to rest")
		}
		next := g.plan()
		lost = false
		owner := map[int32]string{}
		for member, partitions := range g.owned {
			for _, p := range partitions {
				owner[p] = member
			}
			lost = lost || slices.ContainsFunc(partitions, func(p int32) bool { return !slices.Contains(next[member], p) })
		}
		for member, partitions := range next {
			for _, p := range partitions {
				if owner[p] != "" && owner[p] != member {
					g.t.Fatalf("partition %d is assigned to %s while %s has it", p, member, owner[p])
				}
			}
		}
		g.owned, g.generation = next, g.generation+1
	}
	return plans
}

// plan returns the leader's plan.
func (g *balancedGroup) plan() map[string][]int32 {
	var members []kmsg.JoinGroupResponseMember
	for _, id := range slices.Sorted(maps.Keys(g.owned)) {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID = id
		m.ProtocolMetadata = g.balancer.JoinGroupMetadata([]string{checkpoints}, map[string][]int32{checkpoints: slices.Clone(g.owned[id])}, g.generation)
		members = append(members, m)
	}
	b, topics, err := g.balancer.MemberBalancer(members)
	if err != nil {
		g.t.Fatal(err)
	}
	if len(topics) != 1 {
		g.t.Fatalf("topics %v, want one", topics)
	}
	plan, err := b.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{checkpoints: kafka.CheckpointPartitions})
	if err != nil {
		g.t.Fatal(err)
	}
	next := map[string][]int32{}
	for _, a := range plan.IntoSyncAssignment() {
		parsed, err := g.balancer.ParseSyncAssignment(a.MemberAssignment)
		if err != nil {
			g.t.Fatal(err)
		}
		next[a.MemberID] = parsed[checkpoints]
	}
	return next
}

// change adds or removes a member, and returns the number of plans and the feeds that have moved.
func (g *balancedGroup) change(member string, feeds []int) (plans, moved int) {
	before := map[int32]string{}
	for m, partitions := range g.owned {
		for _, p := range partitions {
			before[p] = m
		}
	}
	if _, has := g.owned[member]; has {
		delete(g.owned, member)
	} else {
		g.owned[member] = nil
	}
	plans = g.rebalance()
	for m, partitions := range g.owned {
		for _, p := range partitions {
			if before[p] != m {
				moved += feeds[p]
			}
		}
	}
	return plans, moved
}

// shares returns the feeds of each member.
func (g *balancedGroup) shares(feeds []int) (shares []int) {
	seen := map[int32]bool{}
	for _, partitions := range g.owned {
		n := 0
		for _, p := range partitions {
			if seen[p] {
				g.t.Fatalf("partition %d is assigned twice", p)
			}
			seen[p] = true
			n += feeds[p]
		}
		shares = append(shares, n)
	}
	if len(seen) != kafka.CheckpointPartitions {
		g.t.Fatalf("%d partitions are assigned, want %d", len(seen), kafka.CheckpointPartitions)
	}
	return shares
}

// isEven reports whether each share is within some percent of an even one.
func isEven(shares []int, feeds, percent int) bool {
	for _, n := range shares {
		if d := n*len(shares) - feeds; max(d, -d)*100 > percent*feeds {
			return false
		}
	}
	return true
}

// newBalancedGroup returns a group without members. feeds is called for each plan.
func newBalancedGroup(t *testing.T, feeds func(partitions int) []int) *balancedGroup {
	return &balancedGroup{t: t, owned: map[string][]int32{}, balancer: kafka.NewFeedBalancer(checkpoints, feeds)}
}

// randomFeeds puts feeds into partitions as their names' hashes do.
func randomFeeds(random *rand.Rand, feeds int) []int {
	counts := make([]int, kafka.CheckpointPartitions)
	for range feeds {
		counts[random.IntN(len(counts))]++
	}
	return counts
}

// TestFleetSharesAreEven joins members to a group one by one, and then lets them leave. It logs how
// often the shares are within 20% of even, for docs/scaling.md.
func TestFleetSharesAreEven(t *testing.T) {
	t.Parallel()
	const sets, all, members = 200, 300, 10
	random := rand.New(rand.NewPCG(1, 2))
	var joined, left, sticky [members + 1]int // by the number of members
	var moved []int                           // by the fourth member
	for range sets {
		feeds := randomFeeds(random, all)
		g := newBalancedGroup(t, func(int) []int { return feeds })
		without := &balancedGroup{t: t, owned: map[string][]int32{}, balancer: kgo.CooperativeStickyBalancer()}
		count := func(even *[members + 1]int, g *balancedGroup) {
			if isEven(g.shares(feeds), all, 20) {
				even[len(g.owned)]++
			}
		}
		for n := range members {
			member := fmt.Sprintf("%x", random.Uint64())
			plans, change := g.change(member, feeds)
			if plans > 2 {
				t.Errorf("%d plans when member %d joins, want two at most", plans, n+1)
			}
			if n == 3 {
				moved = append(moved, change)
			}
			count(&joined, g)
			without.change(member, feeds)
			count(&sticky, without)
		}
		for _, member := range slices.Sorted(maps.Keys(g.owned))[1:] {
			if plans, _ := g.change(member, feeds); plans > 2 {
				t.Errorf("%d plans when a member leaves, want two at most", plans)
			}
			count(&left, g)
		}
	}
	for n := 2; n <= members; n++ {
		t.Logf("%2d members, %d sets: even in %d when the last one has joined, in %d when one has left; without exchanges in %d", n, sets, joined[n], left[n], sticky[n])
	}
	slices.Sort(moved)
	t.Logf("feeds that move when a fourth member joins: %d in the middle, %d at most", moved[sets/2], moved[sets-1])
	for n := 2; n <= 6; n++ {
		if joined[n] < sets || left[n] < sets {
			t.Errorf("%d members: the shares are within 20%% in %d and %d of %d sets", n, joined[n], left[n], sets)
		}
	}
	if most := moved[sets-1]; most > all/4+all/10 {
		t.Errorf("%d feeds have moved to a fourth member, want at most a quarter and 10%%", most)
	}
}

// Members may have different feeds, and each of them may be the leader.
func TestFleetComesToRestWithDifferentFeeds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		g := newBalancedGroup(t, func(int) []int { return randomFeeds(random, random.IntN(1000)) })
		feeds := randomFeeds(random, 300)
		for n := range 8 {
			if plans, _ := g.change(fmt.Sprint("member-", n%5), feeds); plans > 2 {
				t.Errorf("%d plans after change %d, want two at most", plans, n+1)
			}
			g.shares(feeds) // each partition is assigned once
		}
	}
}
