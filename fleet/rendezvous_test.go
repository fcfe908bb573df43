package fleet_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/feedbridge/feedbridge/fleet"
)

// names returns names with a number: prefix-0, prefix-1 and so on.
func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}

// count returns how many topics each member owns.
func count(topics []string, owner func(string) string) map[string]int {
	load := map[string]int{}
	for _, topic := range topics {
		load[owner(topic)]++
	}
	return load
}

func TestRendezvousSpreadsTopicsEvenly(t *testing.T) {
	t.Parallel()
	members, topics := names("copy", 10), names("orders", 100_000)
	load := count(topics, fleet.Rendezvous(members))
	for _, m := range members {
		if n := load[m]; n < 9_500 || n > 10_500 {
			t.Errorf("%s has %d topics of %d, and there are %d members", m, n, len(topics), len(members))
		}
	}
}

func TestRendezvousMovesOnlyTheTopicsOfTheMemberThatJoinsOrLeaves(t *testing.T) {
	t.Parallel()
	members, topics := names("copy", 10), names("orders", 10_000)
	all := fleet.Rendezvous(members)
	for _, gone := range members {
		left := fleet.Rendezvous(slices.DeleteFunc(slices.Clone(members), func(m string) bool { return m == gone }))
		for _, topic := range topics {
			switch before, after := all(topic), left(topic); {
			case before == gone && after == gone:
				t.Fatalf("%s still has the topic %s after it has left", gone, topic)
			case before != gone && before != after:
				t.Fatalf("%s left, and the topic %s moved from %s to %s", gone, topic, before, after)
			}
		}
	}
}

func TestAllCopiesFindTheSameOwner(t *testing.T) {
	t.Parallel()
	members, topics := names("copy", 7), names("orders", 1_000)
	reversed := slices.Clone(members)
	slices.Reverse(reversed)
	mixed := slices.Clone(topics)
	slices.Reverse(mixed)
	for _, pair := range [][2]func(string) string{
		{fleet.Rendezvous(members), fleet.Rendezvous(reversed)},
		{fleet.Balance(members, fleet.NewTopics(topics)), fleet.Balance(reversed, fleet.NewTopics(mixed))},
	} {
		for _, topic := range append(topics, "unknown") {
			if a, b := pair[0](topic), pair[1](topic); a != b {
				t.Fatalf("the owner of %s is %s for one copy, and %s for another one", topic, a, b)
			}
		}
	}
}

// A member cannot be given more topics than its bound, and a topic always has an owner, also if many
// topics have the same slot, and all members are nearly full.
func TestBalanceOfManyTopics(t *testing.T) {
	t.Parallel()
	members, list := names("copy", 20), names("orders", 100_000)
	topics := fleet.NewTopics(list)
	load := count(list, fleet.Balance(members, topics))
	for member, has := range load {
		if has > 100_000/20*(100+fleet.Slack)/100 || member == "" {
			t.Errorf("%q has %d topics", member, has)
		}
	}
	if len(load) != len(members) {
		t.Errorf("%d members have topics, want %d", len(load), len(members))
	}
	// What is bounded is little, so most topics are where Rendezvous has them.
	plain, bounded, differ := fleet.Rendezvous(members), fleet.Balance(members, topics), 0
	for _, topic := range list {
		if plain(topic) != bounded(topic) {
			differ++
		}
	}
	if differ > len(list)/50 {
		t.Errorf("%d of %d topics are not with their best member", differ, len(list))
	}
}

// The scores are part of the protocol between copies: with other ones, copies of two versions
// would disagree.
func TestOwnersDoNotDependOnTheVersion(t *testing.T) {
	t.Parallel()
	owner := fleet.Rendezvous([]string{"a", "b", "c"})
	got := ""
	for _, topic := range names("orders", 20) {
		got += owner(topic)
	}
	if want := "cabbccaababbabcccbbb"; got != want {
		t.Errorf("the owners are %s, want %s as in earlier versions", got, want)
	}
}

func TestWithoutMembersTopicsHaveNoOwner(t *testing.T) {
	t.Parallel()
	if owner := fleet.Rendezvous(nil)("orders"); owner != "" {
		t.Errorf("the owner is %q", owner)
	}
	if owner := fleet.Balance(nil, fleet.NewTopics([]string{"orders"}))("orders"); owner != "" {
		t.Errorf("the owner is %q", owner)
	}
}

func TestBalanceBoundsTheTopicsOfEachMember(t *testing.T) {
	t.Parallel()
	for n := range 100 { // other names each time
		for _, test := range []struct{ members, topics, most int }{{3, 300, 110}, {4, 300, 83}, {3, 5, 2}, {5, 3, 1}, {1, 10, 10}} {
			topics := names(fmt.Sprintf("orders-%d", n), test.topics)
			load := count(topics, fleet.Balance(names(fmt.Sprintf("copy-%d", n), test.members), fleet.NewTopics(topics)))
			for member, has := range load {
				if has > test.most || member == "" {
					t.Fatalf("%q has %d of %d topics, want at most %d with %d members", member, has, test.topics, test.most, test.members)
				}
			}
			if least := test.topics - (test.members-1)*test.most; test.topics == 300 && test.members == 3 {
				for member, has := range load {
					if has < least {
						t.Fatalf("%s has %d topics, fewer than %d", member, has, least)
					}
				}
			}
		}
	}
}

func TestBalanceMovesFewTopicsWhenAMemberJoins(t *testing.T) {
	t.Parallel()
	most, sum, few := 0, 0, 0
	const runs = 1000
	for n := range runs {
		copies, list := names(fmt.Sprintf("copy-%d", n), 4), names("orders", 300)
		topics := fleet.NewTopics(list)
		three, four := fleet.Balance(copies[:3], topics), fleet.Balance(copies, topics)
		moved := 0
		for _, topic := range list {
			if three(topic) != four(topic) {
				moved++
			}
		}
		most, sum = max(most, moved), sum+moved
		if moved <= 300/4*11/10 {
			few++
		}
	}
	t.Logf("of 300 topics a fourth member moves %.1f on average, %d at most, and 82 or fewer in %d of %d runs", float64(sum)/runs, most, few, runs)
	if most > 300/4+300/10 || sum > runs*300/4*11/10 {
		t.Errorf("a fourth member moves %d of 300 topics, and %.1f on average", most, float64(sum)/runs)
	}
}

func TestFingerprintTellsTopicsApart(t *testing.T) {
	t.Parallel()
	print := func(names ...string) string { return fleet.NewTopics(names).Fingerprint() }
	if print("a", "b") != print("b", "a", "a") {
		t.Error("the same topics have two fingerprints")
	}
	if print("a", "b") == print("ab") || print("a") == print("a", "b") || print() == print("a") {
		t.Error("other topics have the same fingerprint")
	}
}

func BenchmarkBalance(b *testing.B) {
	members, topics := names("copy", 100), fleet.NewTopics(names("orders", 10_000))
	for b.Loop() {
		fleet.Balance(members, topics)
	}
}
