package fleet

import (
	"cmp"
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
	self string
	// topics has this copy's topics by list; the empty name has the topics of its configuration.
	topics map[string]*Topics
	// own is what this copy publishes, without Hashes. It is published when it changes.
	own value
	// sets are the known sets of topics, by fingerprint.
	sets map[string]*Topics
	// present has what the members publish, as reported, without Hashes.
	present map[string]value
	// acting is the last assignment; nil before the first.
	acting *plan
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
	r.setTopics(NewTopics(nil), nil)
	return r
}

// setTopics takes the topics of this copy and its lists. They count once the bus has reported them.
func (r *roster) setTopics(topics *Topics, lists map[string]List) {
	r.topics = map[string]*Topics{"": topics}
	r.own.Topics, r.own.Lists = topics.fingerprint, map[string]listVersion{}
	for name, list := range lists {
		version := list.version()
		r.topics[name], r.own.Lists[name] = version, listVersion{
			Topics: version.fingerprint, Feeds: len(version.hashes), Failed: list.Failed, Entries: list.Entries, Held: list.Held, Confirmed: list.Confirmed,
		}
	}
	for _, topics := range r.topics {
		r.sets[topics.fingerprint] = topics
	}
}

// value returns what this copy publishes.
func (r *roster) value() []byte {
	v := r.own
	v.Lists = maps.Clone(v.Lists)
	for name, topics := range r.topics {
		switch list := v.Lists[name]; {
		case !r.publishes(name):
		case name == "":
			v.Hashes = topics.encode()
		default:
			list.Hashes = topics.encode()
			v.Lists[name] = list
		}
	}
	return v.encode()
}

// publishes reports whether this copy publishes the hashes of a list: members have another version of it, or none,
// and of those with the same version this copy is the first one.
func (r *roster) publishes(list string) bool {
	own, differs := r.own.fingerprint(list), false
	for name, other := range r.present {
		switch {
		case other.fingerprint(list) != own:
			differs = true
		case name < r.self:
			return false
		}
	}
	return differs
}

// report takes a report, and returns the names of entries that are no member's.
func (r *roster) report(members map[string][]byte, left []string, now time.Time) (strangers []string) {
	r.present = map[string]value{}
	sets := map[string]*Topics{}
	r.keepSets(sets, r.own)
	if r.acting != nil {
		for _, v := range r.acting.members {
			r.keepSets(sets, v)
		}
	}
	for name, text := range members {
		v, ok := decodeValue(name, text)
		if !ok {
			strangers = append(strangers, name)
			continue
		}
		delete(r.left, name)
		r.keepSets(sets, v)
		v.Hashes = nil
		for list, version := range v.Lists {
			version.Hashes = nil
			v.Lists[list] = version
		}
		r.present[name] = v
	}
	r.sets = sets
	for _, name := range left {
		r.left[name] = true
	}
	if r.interrupted || r.acting != nil && r.present[r.self].Topics == "" {
		// This copy was away, so others may have been away with it.
		r.settled, r.interrupted = now.Add(returnTime), false
	}
	r.check(now)
	return strangers
}

// keepSets adds the topics of a member to sets, as far as they are known or published.
func (r *roster) keepSets(sets map[string]*Topics, v value) {
	keep := func(fingerprint string, hashes []byte, bits int) {
		if known := cmp.Or(r.sets[fingerprint], sets[fingerprint]); known != nil {
			sets[fingerprint] = known
		} else if topics, err := decodeTopics(hashes, bits); err == nil && topics.fingerprint == fingerprint {
			sets[fingerprint] = topics
		}
	}
	keep(v.Topics, v.Hashes, hashBits)
	for _, list := range v.Lists {
		keep(list.Topics, list.Hashes, hashBits+urlBits)
	}
}

// others returns the members with other feeds than this copy, in order; none if this copy is not a member.
func (r *roster) others() (names []string) {
	own, joined := r.present[r.self]
	for name, v := range r.present {
		if joined && !v.hasSameFeeds(own) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// plan is what an assignment is computed from.
type plan struct {
	// members are the members whose versions count.
	members map[string]value
	// agreed has the fingerprint of the version that the members agree on, by list.
	agreed map[string]string
	// held and confirmed are those of holds.
	held      map[entriesOf][]string
	confirmed map[entriesOf]bool
	// keys are the same for members that can run the same topics. They lack topics that are not known.
	keys map[string]string
	// unknown reports whether there are such topics.
	unknown bool
}

// equal reports whether an assignment would be the same.
func (p *plan) equal(other *plan) bool {
	return other != nil && maps.Equal(p.keys, other.keys) && maps.Equal(p.agreed, other.agreed) &&
		maps.Equal(p.confirmed, other.confirmed) && maps.EqualFunc(p.held, other.held, slices.Equal[[]string])
}

// plan returns the plan at a time.
func (r *roster) plan(now time.Time) *plan {
	p := &plan{members: maps.Clone(r.present), keys: map[string]string{}}
	if p.members == nil {
		p.members = map[string]value{}
	}
	if r.acting != nil && now.Before(r.settled) {
		for name, v := range r.acting.members {
			if _, ok := p.members[name]; !ok && !r.left[name] {
				p.members[name] = v
			}
		}
	}
	p.held, p.confirmed = holds(p.members)
	p.agreed = agree(p.members, p.held)
	known := func(fingerprint string) string {
		if r.sets[fingerprint] == nil {
			p.unknown = true
			return ""
		}
		return fingerprint
	}
	for name, v := range p.members {
		key := known(v.Topics)
		for _, list := range slices.Sorted(maps.Keys(v.Lists)) {
			key += "\x00" + list + "\x00" + known(v.Lists[list].Topics) + "\x00" + known(p.agreed[list])
		}
		p.keys[name] = key
	}
	return p
}

// check sets different, unknown and due.
func (r *roster) check(now time.Time) {
	p := r.plan(now)
	note := func(since *time.Time, is bool) {
		if !is {
			*since = time.Time{}
		} else if since.IsZero() {
			*since = now
		}
	}
	note(&r.different, len(r.others()) > 0)
	note(&r.unknown, p.unknown)
	r.warned = r.warned && !r.different.IsZero()
	_, joined := p.members[r.self]
	switch {
	case r.acting == nil && !joined, len(p.members) == 0:
		// Without members no copy has taken over.
		r.due = time.Time{}
	case !p.equal(r.acting):
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
	case now.Before(r.settled) && len(r.present) < len(r.acting.members): // members are missing, and count
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
	p := r.plan(now)
	if len(p.members) == 0 || p.equal(r.acting) {
		r.check(now)
		return a, false
	}
	r.acting = p
	clear(r.left)
	r.check(now)
	a = Assignment{
		Self: r.self, Members: slices.Sorted(maps.Keys(p.members)), Different: r.others(), DifferentSince: r.different,
		OtherLists: map[string][]string{}, agreed: map[string]*Topics{}, held: p.held, confirmed: p.confirmed, entries: map[string]string{},
	}
	for list, version := range p.members[r.self].Lists {
		a.entries[list] = version.Entries
	}
	for list, fingerprint := range p.agreed {
		a.agreed[list] = r.sets[fingerprint]
	}
	sets, able := map[string]*Topics{}, map[string]*Topics{}
	for _, name := range a.Members {
		key, v := p.keys[name], p.members[name]
		if able[key] == nil {
			able[key] = r.able(v, p.agreed)
		}
		sets[name] = able[key]
		for _, list := range slices.Sorted(maps.Keys(p.agreed)) {
			if v.fingerprint(list) != p.agreed[list] {
				a.OtherLists[name] = append(a.OtherLists[name], list)
			}
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
