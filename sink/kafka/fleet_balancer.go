package kafka

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// feedBalancer divides partitions like the cooperative-sticky balancer of franz-go, and then
// exchanges some of them, so that the members run about as many feeds each. The member that the
// group has chosen for it uses it, with the feeds of its own configuration. If the configurations
// differ, the shares are less even, and each partition is still assigned once.
type feedBalancer struct {
	kgo.GroupBalancer // cooperative-sticky
	topic             string
	// feeds returns the number of feeds in each partition, for a number of partitions.
	feeds func(partitions int) []int
}

// MemberBalancer implements [kgo.GroupBalancer].
func (b feedBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	group, err := kgo.NewConsumerBalancer(b, members)
	if err != nil {
		return nil, nil, err
	}
	return group, group.MemberTopics(), nil
}

// Balance implements [kgo.ConsumerBalancerBalance].
func (b feedBalancer) Balance(group *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	// A plan of the cooperative balancer lacks the partitions that move. They are removed last.
	plan := kgo.StickyBalancer().(kgo.ConsumerBalancerBalance).Balance(group, topics).(*kgo.BalancePlan)
	d := division{feeds: b.feeds(int(topics[b.topic])), owner: map[int32]string{}}
	planned := plan.AsMemberIDMap()
	group.EachMember(func(member *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		for _, owned := range meta.OwnedPartitions {
			if owned.Topic == b.topic {
				for _, n := range owned.Partitions {
					d.owner[n] = member.MemberID
				}
			}
		}
		d.add(member.MemberID, planned[member.MemberID][b.topic])
	})
	d.evenOut()
	plan.AdjustCooperative(group)
	return plan
}

// division divides partitions among the members of a group.
type division struct {
	feeds  []int            // of each partition
	owner  map[int32]string // the members that run partitions at present
	shares []*share
	total  int // feeds
}

// share has the partitions and the number of feeds that a division gives to a member.
type share struct {
	member     string
	partitions []int32 // of the plan
	feeds      int
}

func (d *division) add(member string, partitions []int32) {
	s := &share{member: member, partitions: partitions}
	for _, n := range partitions {
		s.feeds += d.feeds[n]
	}
	d.shares, d.total = append(d.shares, s), d.total+s.feeds
}

// evenOut swaps partitions between members until each member is within a tenth of an even share of the
// feeds, or no swap improves the worst share. Members keep their numbers of partitions, or the sticky
// balancer would move some in the next rebalance.
//
// A partition that is taken from its owner has none until the next rebalance. If there are
// partitions without an owner already, only they are swapped. So one more rebalance is enough.
//
// It compares at most maxRated swaps, which takes some tenths of a second: the group waits for it. That is
// enough for hundreds of partitions, and few swaps are needed when members have many feeds. It returns
// the number of swaps that it has compared.
func (d *division) evenOut() (rated int) {
	free := slices.ContainsFunc(d.shares, func(s *share) bool { return slices.ContainsFunc(s.partitions, d.isFree) })
	for rated < maxRated {
		worst := slices.MaxFunc(d.shares, func(a, b *share) int { return d.distance(a.feeds) - d.distance(b.feeds) })
		best := swap{distance: d.distance(worst.feeds)}
		if best.distance <= d.total/10 {
			return rated
		}
		rated += len(worst.partitions) * len(d.feeds)
		for _, other := range d.shares {
			for i, give := range worst.partitions {
				for j, take := range other.partitions {
					if other == worst || free && (!d.isFree(give) || !d.isFree(take)) {
						continue
					}
					if s := d.rate(worst, other, i, j); s.compareTo(best) < 0 {
						best = s
					}
				}
			}
		}
		if best.with == nil {
			return rated
		}
		give, take := &worst.partitions[best.give], &best.with.partitions[best.take]
		change := d.feeds[*take] - d.feeds[*give]
		worst.feeds, best.with.feeds = worst.feeds+change, best.with.feeds-change
		*give, *take = *take, *give
	}
	return rated
}

// maxRated limits the work of evenOut.
const maxRated = 10_000_000

// distance returns how far a number of feeds is from an even share, multiplied by the number of members.
func (d *division) distance(feeds int) int {
	n := feeds*len(d.shares) - d.total
	return max(n, -n)
}

func (d *division) isFree(partition int32) bool { return d.owner[partition] == "" }

// moves returns 1 if a partition is taken from its owner.
func (d *division) moves(partition int32, to *share) int {
	if d.isFree(partition) || d.owner[partition] == to.member {
		return 0
	}
	return 1
}

// swap exchanges a partition of the worst share for one of another share.
type swap struct {
	with       *share
	give, take int // indexes of the partitions
	// distance is the larger one of both shares after the swap. It is at least total/10, which is good
	// enough.
	distance int
	moved    int // partitions that are taken from their owners because of it
}

func (s swap) compareTo(other swap) int {
	return cmp.Or(cmp.Compare(s.distance, other.distance), cmp.Compare(s.moved, other.moved))
}

// rate returns the swap of two partitions, given by their indexes, with its result.
func (d *division) rate(worst, other *share, give, take int) swap {
	p, q := worst.partitions[give], other.partitions[take]
	change := d.feeds[q] - d.feeds[p]
	return swap{
		with: other, give: give, take: take,
		distance: max(d.distance(worst.feeds+change), d.distance(other.feeds-change), d.total/10),
		moved:    d.moves(p, other) + d.moves(q, worst) - d.moves(p, worst) - d.moves(q, other),
	}
}
