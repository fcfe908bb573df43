package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/fleet"
)

// scale returns the size of the simulated fleets: members, feeds, and partitions of the checkpoint
// topic.
func scale() (members, feeds, partitions int) {
	if testing.Short() {
		return 100, 20_000, 1_000
	}
	return 1_000, 1_000_000, 10_000
}

// The limits of a member on Kafka, as in sink/kafka.
const (
	kafkaSession   = 10 * time.Second
	kafkaHeartbeat = 500 * time.Millisecond
	kafkaFastCheck = 500 * time.Millisecond // of franz-go, after a cooperative rebalance
	// requestCost is the time in which the simulated coordinator answers one request.
	requestCost = 50 * time.Microsecond
	checkpoints = "feedbridge.checkpoints"
)

// coordinator is a simulated coordinator of a consumer group. Its balancer is that of franz-go.
type coordinator struct {
	partitions int32

	mu         sync.Mutex
	busy       time.Time // until when it answers earlier requests
	requests   int
	generation int32
	members    map[string]*groupMember
	// round is the rebalance under way; nil if there is none.
	round  *round
	stable time.Time // when the last rebalance ended
}

type groupMember struct {
	seen  time.Time
	owned []int32 // as the member knows it
	// assigned are its partitions in the group's newest generation.
	assigned []int32
}

// round is one generation that is being made.
type round struct {
	joined map[string][]byte
	done   chan struct{}
}

// serve counts a request and waits for its turn.
func (c *coordinator) serve() {
	c.mu.Lock()
	c.requests++
	c.busy = later(c.busy, time.Now()).Add(requestCost)
	wait := time.Until(c.busy)
	c.mu.Unlock()
	time.Sleep(wait)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// heartbeat reports whether the member has to join again, or is none any more.
func (c *coordinator) heartbeat(id string) (again, removed bool) {
	c.serve()
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	if m == nil {
		return false, true
	}
	m.seen = time.Now()
	return c.round != nil, false
}

// join returns the partitions of a member in the next generation, once all members have joined.
func (c *coordinator) join(id string, owned []int32) []int32 {
	c.serve()
	c.mu.Lock()
	m := c.members[id]
	if m == nil {
		m = &groupMember{}
		c.members[id] = m
	}
	m.seen, m.owned = time.Now(), owned
	if c.round == nil {
		c.round = &round{joined: map[string][]byte{}, done: make(chan struct{})}
	}
	r := c.round
	r.joined[id] = kgo.CooperativeStickyBalancer().JoinGroupMetadata([]string{checkpoints}, map[string][]int32{checkpoints: slices.Clone(owned)}, c.generation)
	c.finish()
	c.mu.Unlock()
	<-r.done
	c.serve() // the sync
	c.mu.Lock()
	defer c.mu.Unlock()
	return m.assigned
}

// remove removes a member that has left or is silent.
func (c *coordinator) remove(id string) {
	delete(c.members, id)
	if c.round == nil {
		c.round = &round{joined: map[string][]byte{}, done: make(chan struct{})}
	}
	delete(c.round.joined, id)
	c.finish()
}

// finish ends the round if all members have joined.
func (c *coordinator) finish() {
	r := c.round
	if len(r.joined) < len(c.members) || len(r.joined) == 0 {
		return
	}
	for id, owned := range balance(r.joined, c.partitions) {
		c.members[id].assigned = owned
	}
	c.generation++
	c.round, c.stable = nil, time.Now()
	close(r.done)
}

// expire removes members whose session has timed out, until ctx ends.
func (c *coordinator) expire(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		c.mu.Lock()
		for id, m := range c.members {
			// One that has joined is not expected to send heartbeats.
			if waits := c.round != nil && c.round.joined[id] != nil; !waits && time.Since(m.seen) > kafkaSession {
				c.remove(id)
			}
		}
		c.mu.Unlock()
	}
}

// balance is the plan of franz-go's cooperative-sticky balancer, by member.
func balance(joined map[string][]byte, partitions int32) map[string][]int32 {
	var members []kmsg.JoinGroupResponseMember
	for _, id := range slices.Sorted(maps.Keys(joined)) {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = id, joined[id]
		members = append(members, m)
	}
	b := kgo.CooperativeStickyBalancer()
	members2plan, _, err := b.MemberBalancer(members)
	if err != nil {
		panic(err)
	}
	plan, err := members2plan.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{checkpoints: partitions})
	if err != nil {
		panic(err)
	}
	all := map[string][]int32{}
	for _, a := range plan.IntoSyncAssignment() {
		topics, err := b.ParseSyncAssignment(a.MemberAssignment)
		if err != nil {
			panic(err)
		}
		all[a.MemberID] = topics[checkpoints]
	}
	return all
}

// take runs a member until ctx ends; silent makes it stop without leaving.
func (c *coordinator) take(ctx context.Context, id string, silent func() bool) {
	var owned []int32
	for {
		next := c.join(id, owned)
		lost := slices.ContainsFunc(owned, func(p int32) bool { return !slices.Contains(next, p) })
		owned = next
		if lost {
			continue // gives them up, and joins again so that they are assigned
		}
		for wait := kafkaFastCheck; ; wait = kafkaHeartbeat {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				if !silent() {
					c.serve()
					c.mu.Lock()
					c.remove(id)
					c.mu.Unlock()
				}
				return
			}
			again, removed := c.heartbeat(id)
			if removed {
				return
			}
			if again {
				break
			}
		}
	}
}

// owners returns the owner of each partition; ok reports whether the group is at rest and each
// partition has one.
func (c *coordinator) owners(members int) (owners map[int32]string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owners = map[int32]string{}
	for id, m := range c.members {
		for _, p := range m.assigned {
			owners[p] = id
		}
	}
	return owners, c.round == nil && len(c.members) == members && len(owners) == int(c.partitions)
}

// TestSimulatedKafkaFleet starts a large fleet, adds a member, stops one and kills one. It logs how
// many requests the coordinator gets, and how long the group takes.
func TestSimulatedKafkaFleet(t *testing.T) {
	members, feeds, partitions := scale()
	place := kgo.StickyKeyPartitioner(nil).ForTopic(checkpoints)
	perPartition := make([]int, partitions)
	for n := range feeds {
		perPartition[place.Partition(&kgo.Record{Key: fmt.Appendf(nil, "shop.feed-%07d", n)}, partitions)]++
	}
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{partitions: int32(partitions), members: map[string]*groupMember{}}
		var group sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		defer func() {
			stop()
			group.Wait()
		}()
		group.Go(func() { c.expire(ctx) })
		kill := map[string]context.CancelFunc{}
		run := func(id string, silent bool) {
			mine, end := context.WithCancel(ctx)
			kill[id] = end
			group.Go(func() { c.take(mine, id, func() bool { return silent || ctx.Err() != nil }) })
		}
		// await returns the owners and what the change has cost.
		await := func(what string, want int, began time.Time, before int) map[int32]string {
			t.Helper()
			for {
				owners, ok := c.owners(want)
				c.mu.Lock()
				took, requests := c.stable.Sub(began), c.requests-before
				c.mu.Unlock()
				if ok {
					most, least := 0, math.MaxInt
					load := map[string]int{}
					for p, id := range owners {
						load[id] += perPartition[p]
					}
					for _, n := range load {
						most, least = max(most, n), min(least, n)
					}
					t.Logf("%-22s %6.2f s, %6d requests; feeds of a member: %d to %d", what, took.Seconds(), requests, least, most)
					return owners
				}
				if time.Since(began) > time.Minute {
					t.Fatalf("%s: the group is not at rest after a minute", what)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		rest := func() (time.Time, int) {
			time.Sleep(30*time.Second + rand.N(time.Second))
			c.mu.Lock()
			defer c.mu.Unlock()
			return time.Now(), c.requests
		}
		began := time.Now()
		for n := range members {
			run(fmt.Sprintf("member-%04d", n), n == 1)
		}
		first := await(fmt.Sprintf("%d members start", members), members, began, 0)
		_, before := rest()
		time.Sleep(time.Minute)
		c.mu.Lock()
		now := c.requests
		c.mu.Unlock()
		t.Logf("at rest: %.0f requests per second", float64(now-before)/60)
		if perSecond := float64(now-before) / 60; perSecond*kafkaHeartbeat.Seconds() > 1.1*float64(members) {
			t.Errorf("%.0f requests per second at rest, want one per %v for each of %d members", perSecond, kafkaHeartbeat, members)
		}

		began, before = rest()
		run("member-new", false)
		second := await("one more", members+1, began, before)
		moved := 0
		for p := range first {
			if first[p] != second[p] {
				moved++
			}
		}
		t.Logf("%d of %d partitions have moved", moved, partitions)
		if share := partitions/members + 1; moved > share {
			t.Errorf("%d partitions have moved, want at most the share of one member, %d", moved, share)
		}

		began, before = rest()
		kill["member-new"]()
		await("one stops", members, began, before)
		began, before = rest()
		kill["member-0001"]()
		await("one is killed", members-1, began, before)
	})
}

// TestSimulatedNATSFleet counts the messages of a large fleet whose members renew a key each and
// watch all of them.
func TestSimulatedNATSFleet(t *testing.T) {
	const beat, ttl = 4 * time.Second, 12 * time.Second // as in sink/nats
	members, _, _ := scale()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var published, delivered int
		watchers := members
		expired := make(chan time.Time, 1)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for n := range members {
			mine, kill := context.WithCancel(ctx)
			if n == 0 {
				time.AfterFunc(60*time.Second+time.Second, kill)
			}
			group.Go(func() {
				defer kill()
				time.Sleep(rand.N(beat))
				var key *time.Timer
				for ; mine.Err() == nil; time.Sleep(beat) {
					if key != nil {
						key.Stop()
					}
					key = time.AfterFunc(ttl, func() { expired <- time.Now() })
					mu.Lock()
					published, delivered = published+1, delivered+watchers
					mu.Unlock()
				}
				if ctx.Err() != nil {
					key.Stop()
				}
			})
		}
		time.Sleep(60*time.Second + time.Second)
		mu.Lock()
		t.Logf("%d members: %.0f messages per second to the bus, and %.0f from it", members, float64(published)/61, float64(delivered)/61)
		mu.Unlock()
		killed := time.Now()
		late := (<-expired).Sub(killed)
		t.Logf("a member that is killed is missed after %.1f s", late.Seconds())
		if late > ttl {
			t.Errorf("a killed member is missed after %v, want %v at most", late, ttl)
		}
		stop()
		group.Wait()
	})
}

// TestSimulatedNATSAssignment computes who runs the feeds of a large fleet, as every member does
// after each change.
func TestSimulatedNATSAssignment(t *testing.T) {
	members, feeds, _ := scale()
	list := names("shop.feed", feeds)
	topics, copies := fleet.NewTopics(list), names("copy", members+1)
	owners := func(what string, members []string, before []string) []string {
		owner, now, load, moved := fleet.Balance(members, topics), make([]string, feeds), map[string]int{}, 0
		for n, topic := range list {
			now[n] = owner(topic)
			load[now[n]]++
			if before != nil && before[n] != now[n] {
				moved++
			}
		}
		most, least := 0, math.MaxInt
		for _, n := range load {
			most, least = max(most, n), min(least, n)
		}
		t.Logf("%-14s %d of %d feeds move; feeds of a member: %d to %d", what, moved, feeds, least, most)
		even := float64(feeds) / float64(len(members))
		if len(load) != len(members) || float64(most) > math.Ceil(even*(100+fleet.Slack)/100) {
			t.Errorf("%s: %d of %d members have feeds, one has %d, even is %.0f", what, len(load), len(members), most, even)
		}
		if float64(moved) > 2*even {
			t.Errorf("%s: %d feeds move, want twice the share of a member at most, which is %.0f", what, moved, even)
		}
		return now
	}
	first := owners("at the start", copies[:members], nil)
	second := owners("one more", copies, first)
	owners("one leaves", copies[1:], second)
}

// BenchmarkAssignment measures how long one assignment takes, and what it holds in memory.
func BenchmarkAssignment(b *testing.B) {
	for _, size := range []struct{ members, feeds, partitions int }{{10, 10_000, 60}, {100, 100_000, 1_000}, {1_000, 1_000_000, 10_000}} {
		all := names("copy", size.members)
		heap := func(b *testing.B, make func() any) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			kept := make()
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MiB")
			runtime.KeepAlive(kept)
		}
		b.Run(fmt.Sprintf("nats/%d-members-%d-feeds", size.members, size.feeds), func(b *testing.B) {
			topics := fleet.NewTopics(names("shop.feed", size.feeds))
			for b.Loop() {
				fleet.Balance(all, topics)
			}
			heap(b, func() any { return fleet.Balance(all, fleet.NewTopics(names("shop.feed", size.feeds))) })
		})
		b.Run(fmt.Sprintf("kafka/%d-members-%d-partitions", size.members, size.partitions), func(b *testing.B) {
			c := kgo.CooperativeStickyBalancer()
			joined := map[string][]byte{}
			for _, id := range all {
				joined[id] = c.JoinGroupMetadata([]string{checkpoints}, nil, -1)
			}
			// One more member joins a group that is at rest.
			for id, owned := range balance(joined, int32(size.partitions)) {
				joined[id] = c.JoinGroupMetadata([]string{checkpoints}, map[string][]int32{checkpoints: owned}, 1)
			}
			joined["new"] = c.JoinGroupMetadata([]string{checkpoints}, nil, 1)
			for b.Loop() {
				balance(joined, int32(size.partitions))
			}
		})
	}
}
