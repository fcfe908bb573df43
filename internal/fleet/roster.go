package fleet

import (
	"maps"
	"slices"
	"time"
)

const (
	// joinTime is the time for which a new member waits for others that join at the same time. By
	// its end the others have given up the feeds that it gets, and most have ended their commits.
	joinTime = 2 * time.Second
	// settleTime is the time from a change to the assignment that has it, and all changes within
	// that time.
	settleTime = 500 * time.Millisecond
	// returnTime is the time for which members that are missing after an outage of the bus, or of
	// this copy, count as before.
	returnTime = 12 * time.Second
	// topicsTime is how long the members wait for the topics of one that has others than they have. After
	// that it counts as one that can run nothing.
	topicsTime = 5 * time.Second
)

// roster decides which members count, and when, from the reports of a bus. The caller holds a lock.
//
// After an outage of the bus, or of this copy, members may be missing that are alive: their entries
// have expired. Until settled, members that are missing count as before, so that they come back and
// nothing moves.
type roster struct {
	self   string
	topics *Topics // of this copy
	// own is what this copy publishes, without Hashes. It is published when it changes.
	own value
	// sets are the known sets of topics, by fingerprint.
	sets map[string]*Topics
	// present has what the members publish, as reported, without Hashes.
	present map[string]value
	// acting are the members of the last assignment, in the form of members; nil before the first.
	acting map[string]string
	// left are the members that have ended since.
	left map[string]bool
	// interrupted is set until the first report after an outage.
	interrupted bool
	// settled is the time until which missing members count.
	settled time.Time
	// due is the time at which the difference between present and acting is acted on; zero if there
	// is none.
	due time.Time
	// different and unknown are the times since when there are members with different topics, and with
	// topics that are not known; zero if there are none.
	different, unknown time.Time
	// warned is set when the difference was logged.
	warned bool
}

func newRoster(self string) roster {
	r := roster{self: self, own: value{Member: self}, sets: map[string]*Topics{}, left: map[string]bool{}}
	r.setTopics(NewTopics(nil))
	return r
}

// setTopics takes the topics of this copy. They count once the bus has reported them.
func (r *roster) setTopics(topics *Topics) {
	r.topics, r.own.Topics = topics, topics.fingerprint
	r.sets[topics.fingerprint] = topics
}

// value returns what this copy publishes. Of the members with the same topics the first one publishes
// them.
func (r *roster) value() []byte {
	publishes := false
	for _, other := range r.present {
		publishes = publishes || other.Topics != r.own.Topics
	}
	for name, other := range r.present {
		publishes = publishes && (other.Topics != r.own.Topics || name >= r.self)
	}
	v := r.own
	if publishes {
		v.Hashes = r.topics.encode()
	}
	return v.encode()
}

// report takes a report, and returns the names of entries that are no member's.
func (r *roster) report(members map[string][]byte, left []string, now time.Time) (strangers []string) {
	r.present = map[string]value{}
	for name, text := range members {
		v, ok := decodeValue(name, text)
		if !ok {
			strangers = append(strangers, name)
			continue
		}
		delete(r.left, name)
		if r.sets[v.Topics] == nil && v.Hashes != nil {
			if topics, err := decodeTopics(v.Hashes); err == nil && topics.fingerprint == v.Topics {
				r.sets[v.Topics] = topics
			}
		}
		v.Hashes = nil
		r.present[name] = v
	}
	for _, name := range left {
		r.left[name] = true
	}
	if r.interrupted || r.acting != nil && r.present[r.self].Topics == "" {
		// This copy was away, so others may have been away with it.
		r.settled, r.interrupted = now.Add(returnTime), false
	}
	maps.DeleteFunc(r.sets, func(fingerprint string, topics *Topics) bool {
		return topics != r.topics && !r.isPresent(fingerprint) && !hasValue(r.acting, fingerprint)
	})
	r.check(now)
	return strangers
}

// others returns the members with other topics than this copy, in order; none if this copy is not a member.
func (r *roster) others() (names []string) {
	own, joined := r.present[r.self]
	for name, v := range r.present {
		if joined && v.Topics != own.Topics {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isPresent reports whether a member has the topics with a fingerprint.
func (r *roster) isPresent(fingerprint string) bool {
	for _, v := range r.present {
		if v.Topics == fingerprint {
			return true
		}
	}
	return false
}

func hasValue(m map[string]string, value string) bool {
	for _, v := range m {
		if v == value {
			return true
		}
	}
	return false
}

// members returns the members that count at a time, with the fingerprints of their topics, which are
// empty if the topics are not known.
func (r *roster) members(now time.Time) map[string]string {
	count := map[string]string{}
	for name, v := range r.present {
		count[name] = ""
		if r.sets[v.Topics] != nil {
			count[name] = v.Topics
		}
	}
	if now.Before(r.settled) {
		for name, topics := range r.acting {
			if _, ok := count[name]; !ok && !r.left[name] {
				count[name] = topics
			}
		}
	}
	return count
}

// check sets different, unknown and due.
func (r *roster) check(now time.Time) {
	members := r.members(now)
	note := func(since *time.Time, is bool) {
		if !is {
			*since = time.Time{}
		} else if since.IsZero() {
			*since = now
		}
	}
	note(&r.different, len(r.others()) > 0)
	note(&r.unknown, hasValue(members, ""))
	r.warned = r.warned && !r.different.IsZero()
	_, joined := members[r.self]
	switch {
	case r.acting == nil && !joined, len(members) == 0:
		// Without members no copy has taken over.
		r.due = time.Time{}
	case !maps.Equal(members, r.acting):
		wait := settleTime
		if r.acting == nil {
			wait = joinTime
		}
		if r.due.IsZero() || r.due.After(now.Add(wait)) {
			r.due = now.Add(wait)
		}
		if limit := r.unknown.Add(topicsTime); !r.unknown.IsZero() && r.due.Before(limit) {
			r.due = limit
		}
	case now.Before(r.settled) && len(r.present) < len(r.acting): // members are missing, and count
		r.due = r.settled
	default:
		r.due = time.Time{}
	}
}

// next returns the next assignment when it is due, and false before.
func (r *roster) next(now time.Time) (a Assignment, ok bool) {
	if r.due.IsZero() || now.Before(r.due) {
		return a, false
	}
	r.due = time.Time{}
	members := r.members(now)
	if len(members) == 0 || maps.Equal(members, r.acting) {
		r.check(now)
		return a, false
	}
	r.acting = members
	clear(r.left)
	r.check(now)
	a = Assignment{Self: r.self, Members: slices.Sorted(maps.Keys(members)), Different: r.others(), DifferentSince: r.different}
	sets := map[string]*Topics{}
	for _, name := range a.Members {
		if sets[name] = r.sets[members[name]]; sets[name] == nil {
			sets[name] = NewTopics(nil)
		}
	}
	a.Owner = Balance(sets)
	return a, true
}

// warnDue returns when a difference has to be logged; zero if there is none, or it was.
func (r *roster) warnDue() time.Time {
	if r.different.IsZero() || r.warned {
		return time.Time{}
	}
	return r.different.Add(Rollout)
}
