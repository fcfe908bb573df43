package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/fleet"
)

// rosterTest drives a roster of the copy a in a time of its own.
type rosterTest struct {
	t      *testing.T
	roster roster
	now    time.Time
	topics *fleet.Topics
}

// newRosterTest returns a roster that has assigned topics to some members, a among them.
func newRosterTest(t *testing.T, members ...string) *rosterTest {
	r := &rosterTest{t: t, roster: roster{self: "a"}, now: time.Unix(0, 0), topics: fleet.NewTopics([]string{"x", "y"})}
	r.roster.clear()
	r.put(members...)
	r.want(fleetJoin, members...)
	return r
}

func (r *rosterTest) put(members ...string) {
	for _, m := range members {
		r.roster.put(m, r.topics.Fingerprint(), r.now)
	}
}

func (r *rosterTest) expire(members ...string) {
	for _, m := range members {
		r.roster.expire(m, r.now)
	}
}

// after returns the assignment that is made within a time, and no later than its end.
func (r *rosterTest) after(d time.Duration) (a fleet.Assignment, ok bool) {
	for end := r.now.Add(d); ; {
		if a, ok = r.roster.next(r.topics, r.now); ok || !r.now.Before(end) {
			return a, ok
		}
		r.now = r.now.Add(100 * time.Millisecond)
	}
}

// want fails unless there is an assignment to these members exactly after a time.
func (r *rosterTest) want(after time.Duration, members ...string) {
	r.t.Helper()
	began := r.now
	switch a, ok := r.after(after); {
	case !ok:
		r.t.Fatalf("there is no new assignment within %v, want %v", after, members)
	case !slices.Equal(a.Members, members) || r.now.Sub(began) != after:
		r.t.Fatalf("after %v the members are %v, want %v after %v", r.now.Sub(began), a.Members, members, after)
	}
}

// wantNothing fails if there is a new assignment within a time.
func (r *rosterTest) wantNothing(within time.Duration) {
	r.t.Helper()
	if a, ok := r.after(within); ok {
		r.t.Fatalf("the members are %v, want no new assignment", a.Members)
	}
}

func TestChangesAreAssignedTogether(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.put("c")
	r.now = r.now.Add(fleetDelay / 5)
	r.put("d")
	r.expire("b")
	r.want(fleetDelay-fleetDelay/5, "a", "c", "d")
	r.put("a", "c", "d") // renewed
	r.wantNothing(time.Hour)
}

func TestAMemberThatComesBackAtOnceChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.expire("b")
	r.put("b")
	r.wantNothing(time.Hour)
	r.roster.leave("b", r.now) // a person has deleted its key
	r.wantNothing(fleetDelay / 2)
	r.put("b")
	r.wantNothing(time.Hour)
}

func TestNothingIsAssignedBeforeThisCopyIsAMember(t *testing.T) {
	t.Parallel()
	r := &rosterTest{t: t, roster: roster{self: "a"}, now: time.Unix(0, 0), topics: fleet.NewTopics(nil)}
	r.roster.clear()
	r.put("b", "c")
	r.wantNothing(time.Hour)
	r.put("a")
	r.want(fleetJoin, "a", "b", "c")
}

// All keys expire while the bus is away. The members come back one after the other.
func TestNothingMovesAfterAnOutageOfTheBus(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.roster.clear()
	r.roster.hold(r.now)
	r.put("a")
	r.wantNothing(fleetTTL / 3)
	r.put("b")
	r.wantNothing(fleetTTL / 3)
	r.put("c")
	r.wantNothing(time.Hour)
}

func TestAMemberThatDiedInAnOutageIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.roster.clear()
	r.roster.hold(r.now)
	r.put("a", "b")
	r.want(fleetTTL, "a", "b")
}

func TestALeaverIsNotWaitedForAfterAnOutage(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.roster.clear()
	r.roster.hold(r.now)
	r.put("a", "b", "c")
	r.roster.leave("c", r.now)
	r.want(fleetDelay, "a", "b")
	r.put("c") // another time
	r.want(fleetDelay, "a", "b", "c")
}

// The copy was frozen: it sees that its own key has expired, and the keys of others that were
// frozen with it.
func TestACopyThatWasAwayWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.expire("b", "a", "c")
	r.put("a")
	r.wantNothing(fleetTTL / 2)
	r.put("b", "c")
	r.wantNothing(time.Hour)
}

func TestACopyThatCannotRenewItsKeyGivesItsFeedsUp(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.expire("a")
	r.want(fleetTTL, "b")
	r.put("a")
	r.want(fleetDelay, "a", "b")
}

// If no member can renew its key, nobody has taken over.
func TestWithoutMembersTheFeedsStay(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.expire("a", "b")
	r.wantNothing(time.Hour)
	if !r.roster.due.IsZero() {
		t.Error("the roster waits for something")
	}
	r.put("a", "b")
	r.wantNothing(time.Hour)
}

// Members with different topics, as in an upgrade, agree only on plain rendezvous hashing.
func TestSharesAreEvenOnlyWhileAllHaveTheSameTopics(t *testing.T) {
	t.Parallel()
	var names []string
	for n := range 100 {
		names = append(names, time.Duration(n).String())
	}
	r := newRosterTest(t, "a", "b")
	r.topics = fleet.NewTopics(names)
	same := func(a fleet.Assignment, owner func(string) string) bool {
		return !slices.ContainsFunc(names, func(topic string) bool { return a.Owner(topic) != owner(topic) })
	}
	members := []string{"a", "b", "c-1"}
	for !differ(names, members, r.topics) {
		members[2] += "1" // until the two ways differ
	}
	r.put(members...)
	if a, ok := r.after(fleetDelay); !ok || !same(a, fleet.Balance(members, r.topics)) {
		t.Error("the shares are not bounded")
	}
	r.roster.put("b", "other topics", r.now)
	if a, ok := r.after(fleetDelay); !ok || !same(a, fleet.Rendezvous(members)) {
		t.Error("the owners depend on the topics of one member")
	}
}

// differ reports whether the two ways to find owners differ for some topic.
func differ(names, members []string, topics *fleet.Topics) bool {
	plain, bounded := fleet.Rendezvous(members), fleet.Balance(members, topics)
	return slices.ContainsFunc(names, func(topic string) bool { return plain(topic) != bounded(topic) })
}

// A key without a time limit, or whose end was missed, belongs to nobody if it is not renewed.
func TestAKeyThatIsNotRenewedIsNoMember(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.put("a", "b", "c")
	for range fleetStale / fleetBeat {
		r.wantNothing(fleetBeat)
		r.put("a", "b")
		r.roster.expireStale(r.now)
	}
	r.wantNothing(fleetBeat / 2)
	r.roster.expireStale(r.now)
	r.want(fleetDelay, "a", "b")
}

func TestNamesOfHostsAreKeys(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"host-12-ab34ef": "host-12-ab34ef", "node1.example.com-12-ab34ef": "node1.example.com-12-ab34ef",
		"büro host*>-1": "b_ro_host__-1", ".host": "_host", "a..b": "a__b", "host.": "host_",
	} {
		if key := memberKey(name); key != want {
			t.Errorf("the key of %q is %q, want %q", name, key, want)
		}
	}
}

// The error that is shown of a copy ends with its next assignment.
func TestACopyThatTakesPartAgainGetsItsAssignmentAgain(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.roster.restart()
	r.roster.clear()
	r.roster.hold(r.now)
	r.put("a") // b has not renewed its key yet
	r.want(fleetDelay, "a", "b")
	r.put("b")
	r.wantNothing(time.Hour)
}
