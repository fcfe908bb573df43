package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// encodeValue returns what a member publishes.
func encodeValue(member string, topics *Topics, withHashes bool) []byte {
	v := value{Member: member, Topics: topics.fingerprint}
	if withHashes {
		v.Hashes = topics.encode()
	}
	return v.encode()
}

// rosterTest drives a roster of the copy a in a time of its own.
type rosterTest struct {
	t      *testing.T
	roster roster
	now    time.Time
	values map[string][]byte // what the bus has
}

// newRosterTest returns a roster that has assigned topics to some members, a among them.
func newRosterTest(t *testing.T, members ...string) *rosterTest {
	r := &rosterTest{t: t, roster: newRoster("a"), now: time.Unix(0, 0), values: map[string][]byte{}}
	r.roster.setTopics(NewTopics([]string{"x", "y"}), nil)
	r.put(members...)
	r.want(joinTime, members...)
	return r
}

// report reports what the bus has, and that members have left.
func (r *rosterTest) report(left ...string) { r.roster.report(r.values, left, r.now) }

func (r *rosterTest) put(members ...string) {
	for _, m := range members {
		r.values[m] = encodeValue(m, r.roster.topics[""], false)
	}
	r.report()
}

func (r *rosterTest) expire(members ...string) {
	for _, m := range members {
		delete(r.values, m)
	}
	r.report()
}

func (r *rosterTest) leave(member string) {
	delete(r.values, member)
	r.report(member)
}

// outage makes the bus forget all members.
func (r *rosterTest) outage() {
	r.roster.interrupted = true
	clear(r.values)
}

// after returns the assignment that is made within a time, and no later than its end.
func (r *rosterTest) after(d time.Duration) (a Assignment, ok bool) {
	for end := r.now.Add(d); ; {
		if a, ok = r.roster.next(r.now); ok || !r.now.Before(end) {
			return a, ok
		}
		r.now = r.now.Add(100 * time.Millisecond)
	}
}

// want fails unless there is an assignment to these members exactly after a time.
func (r *rosterTest) want(after time.Duration, members ...string) Assignment {
	r.t.Helper()
	began := r.now
	a, ok := r.after(after)
	switch {
	case !ok:
		r.t.Fatalf("there is no new assignment within %v, want %v", after, members)
	case !slices.Equal(a.Members, members) || r.now.Sub(began) != after:
		r.t.Fatalf("after %v the members are %v, want %v after %v", r.now.Sub(began), a.Members, members, after)
	}
	return a
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
	r.now = r.now.Add(settleTime / 5)
	r.put("d")
	r.expire("b")
	r.want(settleTime-settleTime/5, "a", "c", "d")
	r.put("a", "c", "d") // renewed
	r.wantNothing(time.Hour)
}

func TestAMemberThatComesBackAtOnceChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.expire("b")
	r.put("b")
	r.wantNothing(time.Hour)
	r.leave("b") // a person has deleted its key
	r.wantNothing(settleTime / 2)
	r.put("b")
	r.wantNothing(time.Hour)
}

func TestNothingIsAssignedBeforeThisCopyIsAMember(t *testing.T) {
	t.Parallel()
	r := &rosterTest{t: t, roster: newRoster("a"), now: time.Unix(0, 0), values: map[string][]byte{}}
	r.put("b", "c")
	r.wantNothing(time.Hour)
	r.put("a")
	r.want(joinTime, "a", "b", "c")
}

// All entries expire while the bus is away. The members come back one after the other.
func TestNothingMovesAfterAnOutageOfTheBus(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.outage()
	r.put("a")
	r.wantNothing(returnTime / 3)
	r.put("b")
	r.wantNothing(returnTime / 3)
	r.put("c")
	r.wantNothing(time.Hour)
}

func TestAMemberThatDiedInAnOutageIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.outage()
	r.put("a", "b")
	r.want(returnTime, "a", "b")
}

func TestALeaverIsNotWaitedForAfterAnOutage(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.outage()
	r.put("a", "b", "c")
	r.leave("c")
	r.want(settleTime, "a", "b")
	r.put("c") // another time
	r.want(settleTime, "a", "b", "c")
}

// The copy was frozen: it sees that its own entry has expired, and those of others that were frozen
// with it.
func TestACopyThatWasAwayWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b", "c")
	r.expire("b", "a", "c")
	r.put("a")
	r.wantNothing(returnTime / 2)
	r.put("b", "c")
	r.wantNothing(time.Hour)
}

func TestACopyThatIsNoMemberGivesItsFeedsUp(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.expire("a")
	if a := r.want(returnTime, "b"); a.Owns("x") || a.Owner("x") != "b" {
		t.Errorf("the owner is %q", a.Owner("x"))
	}
	r.put("a")
	r.want(settleTime, "a", "b")
}

// If there is no member, nobody has taken over.
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

// A member with other topics than this copy gets no feeds that it does not have, and this copy none
// of those that only the other one has. Both publish their topics for that.
func TestMembersWithDifferentTopics(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a")
	others := NewTopics([]string{"y", "z"})
	if v, _ := decodeValue("a", r.roster.value()); v.Hashes != nil {
		t.Error("the topics are published while all members have the same")
	}
	r.values["b"] = encodeValue("b", others, false)
	r.report()
	if v, _ := decodeValue("a", r.roster.value()); v.Hashes == nil {
		t.Error("the topics of this copy are not published")
	}
	r.wantNothing(topicsTime / 2) // until the topics are known
	r.values["b"] = encodeValue("b", others, true)
	r.report()
	a := r.want(settleTime, "a", "b")
	if a.Owner("x") != "a" || a.Owner("z") != "b" || a.Owner("y") == "" || a.Owner("unknown") != "" {
		t.Errorf("the owners are %q, %q, %q", a.Owner("x"), a.Owner("y"), a.Owner("z"))
	}
	if !slices.Equal(a.Different, []string{"b"}) || a.DifferentSince.IsZero() || a.StillDifferent(r.now) || !a.StillDifferent(r.now.Add(Rollout)) {
		t.Errorf("different: %q since %v", a.Different, a.DifferentSince)
	}
	// A second one with the topics of b need not publish them, also when b has gone.
	r.values["c"] = encodeValue("c", others, false)
	r.report()
	r.want(settleTime, "a", "b", "c")
	r.leave("b")
	r.want(settleTime, "a", "c")
	if r.roster.warnDue().IsZero() {
		t.Error("the difference is not logged")
	}
	r.put("c")
	a = r.want(settleTime, "a", "c")
	r.report() // renewed
	if len(a.Different) > 0 || !a.DifferentSince.IsZero() || !r.roster.warnDue().IsZero() || len(r.roster.sets) != 1 {
		t.Errorf("different: %q since %v, %d sets", a.Different, a.DifferentSince, len(r.roster.sets))
	}
}

// Of the members with the same topics the first one publishes them.
func TestOneOfTheMembersWithTheSameTopicsPublishesThem(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.roster.self = "b"
	r.values["c"] = encodeValue("c", NewTopics([]string{"z"}), true)
	r.report()
	if v, _ := decodeValue("b", r.roster.value()); v.Hashes != nil {
		t.Error("b publishes what a does")
	}
	r.leave("a")
	if v, _ := decodeValue("b", r.roster.value()); v.Hashes == nil {
		t.Error("b does not publish its topics")
	}
}

// A member whose topics do not become known runs nothing, as far as the others know.
func TestTopicsThatAreNotPublishedAreNotWaitedForLong(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a")
	r.values["b"] = encodeValue("b", NewTopics([]string{"x"}), false)
	r.report()
	if a := r.want(topicsTime, "a", "b"); a.Owner("x") != "a" || a.Owner("y") != "a" {
		t.Errorf("the owners are %q and %q", a.Owner("x"), a.Owner("y"))
	}
	r.values["b"] = encodeValue("b", NewTopics([]string{"x"}), true)
	r.report()
	r.want(settleTime, "a", "b")
}

// After a reload this copy does not run a new feed before the others know that it can.
func TestNewTopicsCountOnceTheyAreReported(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	r.roster.setTopics(NewTopics([]string{"x", "y", "new"}), nil)
	r.report()
	r.wantNothing(time.Hour)
	r.values["b"] = encodeValue("b", r.roster.topics[""], false)
	r.put("a")
	if a := r.want(settleTime, "a", "b"); a.Owner("new") == "" {
		t.Error("nobody runs the new feed")
	}
}

// Fields that another version of the program publishes change nothing.
func TestUnknownFieldsOfAMember(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a", "b")
	for _, text := range []string{`1`, `2`, `{"x": [null]}`} {
		r.values["b"] = fmt.Appendf(nil, `{"later": %s, "feedbridge_member": "b", "topics": %q}`, text, r.roster.topics[""].fingerprint)
		r.report()
		r.wantNothing(time.Hour)
	}
}

func TestEntriesOfNoMember(t *testing.T) {
	t.Parallel()
	r := newRosterTest(t, "a")
	own := r.values["a"]
	for name, text := range map[string]string{"text": "hello", "empty": "", "number": "1", "object": "{}", "type": `{"topics": 5}`, "list": "[]", "copy": string(own)} {
		r.values[name] = []byte(text)
	}
	r.values["nil"] = nil
	if strangers := r.roster.report(r.values, nil, r.now); len(strangers) != 8 {
		t.Errorf("strangers: %q", strangers)
	}
	r.wantNothing(time.Hour)
}

func TestTopicsAreEncoded(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"a"}, {"a", "b", "c", "a"}} {
		topics := NewTopics(names)
		got, err := decodeTopics(topics.encode(), hashBits)
		if err != nil || !slices.Equal(got.hashes, topics.hashes) || got.fingerprint != topics.fingerprint {
			t.Errorf("%q: %v, error %v; want %v", names, got, err, topics)
		}
	}
	if NewTopics([]string{"a", "b"}).fingerprint == NewTopics([]string{"ab"}).fingerprint {
		t.Error("other topics have the same fingerprint")
	}
	for _, bad := range []string{"\x80", "\x01\x00", "\xff\xff\xff\xff\xff\xff\xff\x7f"} {
		if _, err := decodeTopics([]byte(bad), hashBits); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestNamesOfHostsAreNamesOfMembers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"host-12-ab34ef": "host-12-ab34ef", "node1.example.com-12-ab34ef": "node1.example.com-12-ab34ef",
		"büro host*>-1": "b_ro_host__-1", ".host": "_host", "a..b": "a__b", "host.": "host_",
	} {
		if got := memberName(name); got != want {
			t.Errorf("the name of %q is %q, want %q", name, got, want)
		}
	}
}
