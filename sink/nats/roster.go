package nats

import (
	"maps"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/fleet"
)

const (
	// fleetTTL is the time for which a member is one without renewing its key. A member that is
	// killed is missed by the others that much later, at most.
	fleetTTL = 12 * time.Second
	// fleetBeat is the interval at which a member renews its key.
	fleetBeat = fleetTTL / 3
	// fleetJoin is the time for which a new member waits for others that join at the same time,
	// before its first assignment.
	fleetJoin = 2 * time.Second
	// fleetDelay is the time from a change to the assignment that has it, and all changes within
	// that time.
	fleetDelay = 500 * time.Millisecond
	// fleetStale is the time after which a key that was not renewed is no member's, though it is
	// still in the bucket.
	fleetStale = 2 * fleetTTL
)

// roster decides which members count, from the keys in the bucket. It is for one goroutine.
//
// After an outage of the bus, or of this copy, keys may be missing of members that are alive: all
// keys expire when the bus is away for longer than their limit. Until settled, members that are
// missing count as before, so that they come back and nothing moves.
type roster struct {
	self string
	// present are the keys in the bucket, with the fingerprints of the members' topics.
	present map[string]string
	// seen has the times when the keys were stored, as far as this copy has seen it.
	seen map[string]time.Time
	// acting are the members of the last assignment; nil before the first.
	acting map[string]string
	// left are the members that have ended since.
	left map[string]bool
	// repeat is set until the last assignment has been made again, after an error that ended Run.
	repeat bool
	// settled is the time until which missing members count.
	settled time.Time
	// due is the time at which the difference between the two is acted on; zero if there is none.
	due time.Time
}

// restart is called when this copy takes part again after an error: the last assignment is made
// again, even if it is the same.
func (r *roster) restart() { r.repeat = r.acting != nil }

// clear forgets the keys, before the watch lists them again.
func (r *roster) clear() {
	r.present, r.seen = map[string]string{}, map[string]time.Time{}
}

// hold keeps the members that are missing now, or get missing soon, for the time in which those
// that are alive renew their keys.
func (r *roster) hold(now time.Time) {
	r.settled = now.Add(fleetTTL)
	r.check(now)
}

// put records the key of a member, with the fingerprint of its topics.
func (r *roster) put(member, topics string, now time.Time) {
	r.present[member], r.seen[member] = topics, now
	delete(r.left, member)
	r.check(now)
}

// expireStale expires the keys of others that were not renewed for fleetStale. The bucket does that
// sooner, unless a key has no time limit, because a person stored or restored it, or the bucket was
// purged. Without it the feeds of such a member would never be run. The caller has just seen the
// key of this copy, and so all that was stored before it.
func (r *roster) expireStale(now time.Time) {
	for member := range r.present {
		if member != r.self && now.Sub(r.seen[member]) > fleetStale {
			r.expire(member, now)
		}
	}
}

// expire records that a member has not renewed its key.
func (r *roster) expire(member string, now time.Time) {
	delete(r.present, member)
	delete(r.seen, member)
	if member == r.self {
		// This copy was away for that long, so others may have been away with it.
		r.settled = now.Add(fleetTTL)
	}
	r.check(now)
}

// leave records that a member has ended, and does not come back.
func (r *roster) leave(member string, now time.Time) {
	delete(r.present, member)
	delete(r.seen, member)
	if r.left == nil {
		r.left = map[string]bool{}
	}
	r.left[member] = true
	r.check(now)
}

// members returns the members that count at a time.
func (r *roster) members(now time.Time) map[string]string {
	count := maps.Clone(r.present)
	if now.Before(r.settled) {
		for member, topics := range r.acting {
			if _, ok := count[member]; !ok && !r.left[member] {
				count[member] = topics
			}
		}
	}
	return count
}

// check sets due.
func (r *roster) check(now time.Time) {
	members := r.members(now)
	_, joined := members[r.self]
	switch {
	case r.acting == nil && !joined, len(members) == 0:
		// Without members no copy has taken over.
		r.due = time.Time{}
	case r.repeat, !maps.Equal(members, r.acting):
		if wait := fleetDelay; r.due.IsZero() || r.due.After(now.Add(wait)) {
			if r.acting == nil {
				wait = fleetJoin
			}
			r.due = now.Add(wait)
		}
	case now.Before(r.settled) && !maps.Equal(r.present, r.acting):
		r.due = r.settled
	default:
		r.due = time.Time{}
	}
}

// next returns the next assignment when it is due, and false before. topics are those of this copy.
func (r *roster) next(topics *fleet.Topics, now time.Time) (a fleet.Assignment, ok bool) {
	if r.due.IsZero() || now.Before(r.due) {
		return a, false
	}
	r.due = time.Time{}
	members := r.members(now)
	if len(members) == 0 || !r.repeat && maps.Equal(members, r.acting) {
		r.check(now)
		return a, false
	}
	r.acting, r.repeat = members, false
	clear(r.left)
	r.check(now)
	a = fleet.Assignment{Self: r.self, Members: slices.Sorted(maps.Keys(members))}
	a.Owner = fleet.Rendezvous(a.Members)
	if r.haveSameTopics(topics.Fingerprint()) {
		a.Owner = fleet.Balance(a.Members, topics)
	}
	return a, true
}

// haveSameTopics reports whether all members have the topics with this fingerprint.
func (r *roster) haveSameTopics(fingerprint string) bool {
	for _, topics := range r.acting {
		if topics != fingerprint {
			return false
		}
	}
	return true
}
