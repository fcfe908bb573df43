package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/fleet"
)

// names returns names with a number: prefix-0, prefix-1 and so on.
func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}

// alike returns members that can all run the feeds of the same topics.
func alike(members, topics []string) map[string]*fleet.Topics {
	all, set := map[string]*fleet.Topics{}, fleet.NewTopics(topics)
	for _, m := range members {
		all[m] = set
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

// The scores are part of the protocol between copies: with other ones, copies of two versions
// would disagree.
func TestOwnersDoNotDependOnTheVersion(t *testing.T) {
	t.Parallel()
	owner := fleet.Balance(alike([]string{"a", "b", "c"}, names("orders", 20)))
	got := ""
	for _, topic := range names("orders", 20) {
		got += owner(topic)
	}
	if want := "baabaaaccccababacbbb"; got != want {
		t.Errorf("the owners are %s, want %s as in earlier versions", got, want)
	}
}

func TestTopicsThatNobodyHasHaveNoOwner(t *testing.T) {
	t.Parallel()
	if owner := fleet.Balance(nil)("orders"); owner != "" {
		t.Errorf("without members the owner is %q", owner)
	}
	if owner := fleet.Balance(alike([]string{"a"}, []string{"prices"}))("orders"); owner != "" {
		t.Errorf("the owner is %q, which does not have the feed", owner)
	}
}

// Members with different topics, of which any number may be the same: each topic has an owner that can
// run it, which does not depend on the order of anything, and no member has more than the bound unless only members
// that have it can run the rest.
func TestBalanceAmongMembersWithDifferentTopics(t *testing.T) {
	t.Parallel()
	all := names("orders", 300)
	for name, test := range map[string]struct {
		sets map[string][]string
		most map[string]int // topics
	}{
		"disjoint":              {map[string][]string{"a": all[:100], "b": all[100:300]}, map[string]int{"a": 100, "b": 200}},
		"two of each":           {map[string][]string{"a": all[:100], "b": all[:100], "c": all[100:], "d": all[100:]}, map[string]int{"a": 83, "b": 83, "c": 101, "d": 101}},
		"one has more":          {map[string][]string{"a": all[:240], "b": all[:240], "c": all}, map[string]int{"a": 110, "b": 110, "c": 110}},
		"one has fewer":         {map[string][]string{"a": all, "b": all, "c": all[:60]}, map[string]int{"a": 132, "b": 132, "c": 66}},
		"each shares with each": {map[string][]string{"a": all[:200], "b": all[100:], "c": slices.Concat(all[:100], all[200:])}, map[string]int{"a": 125, "b": 125, "c": 125}},
		"one has nothing":       {map[string][]string{"a": all, "b": nil}, map[string]int{"a": 300, "b": 0}},
	} {
		for n := range 20 {
			rename := func(m string) string { return fmt.Sprintf("%s-%d", m, n) }
			members, again := map[string]*fleet.Topics{}, map[string]*fleet.Topics{}
			for m, topics := range test.sets {
				members[rename(m)] = fleet.NewTopics(topics)
				mixed := slices.Clone(topics)
				slices.Reverse(mixed)
				again[rename(m)] = fleet.NewTopics(mixed)
			}
			owner, same := fleet.Balance(members), fleet.Balance(again)
			load := map[string]int{}
			for _, topic := range all {
				who, _, _ := strings.Cut(owner(topic), "-")
				load[who]++
				if !slices.Contains(test.sets[who], topic) || same(topic) != owner(topic) {
					t.Fatalf("%s: the owner of %s is %q, and for another copy %q", name, topic, owner(topic), same(topic))
				}
			}
			for m, most := range test.most {
				if load[m] > most {
					t.Errorf("%s: %s has %d topics, want %d at most", name, m, load[m], most)
				}
			}
		}
	}
}

func TestBalanceBoundsTheTopicsOfEachMember(t *testing.T) {
	t.Parallel()
	for n := range 100 { // other names each time
		for _, test := range []struct{ members, topics, most int }{{3, 300, 110}, {4, 300, 83}, {3, 5, 2}, {5, 3, 1}, {1, 10, 10}} {
			topics := names(fmt.Sprintf("orders-%d", n), test.topics)
			load := count(topics, fleet.Balance(alike(names(fmt.Sprintf("copy-%d", n), test.members), topics)))
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
		three, four := fleet.Balance(alike(copies[:3], list)), fleet.Balance(alike(copies, list))
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
