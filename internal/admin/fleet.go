package admin

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
	"github.com/feedbridge/feedbridge/internal/fleet"
)

// stateElsewhere is the state of a feed that another member of the fleet runs, or that no copy runs
// yet. It is no state of a bridge: this copy has none for the feed.
const stateElsewhere bridge.State = "elsewhere"

// Fleet is the membership of this copy in a fleet. Its methods may be called from any
// goroutine.
type Fleet struct {
	name, bus string

	mu sync.Mutex
	// assignment is the last one; nil before the first.
	assignment *fleet.Assignment
	err        error // that requires action by a person; nil if there is none
	blind      bool  // the members are not known at present, so that the assignment may be old

	notes fleetNotes
}

// NewFleet returns the membership in the fleet with a name, whose members find each other by a
// bus. This copy is not a member yet.
func NewFleet(name, bus string) *Fleet { return &Fleet{name: name, bus: bus} }

// Assigned records the newest assignment.
func (f *Fleet) Assigned(a fleet.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.assignment = &a
}

// Failed records why the members are not known at present, or nil when they are. An error that requires
// action by a person remains until then.
func (f *Fleet) Failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = err != nil
	if err == nil || errors.Is(err, feed.ErrPermanent) {
		f.err = err
	}
}

// ownerElsewhere returns whether a topic's feed is not run by this copy, and the member that
// runs it, if there is one. Without a fleet this copy runs all feeds.
func (f *Fleet) ownerElsewhere(topic string) (owner string, elsewhere bool) {
	if f == nil {
		return "", false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.assignment == nil:
		return "", true
	case f.assignment.Owns(topic):
		return "", false
	}
	return f.assignment.Owner(topic), true
}

// otherLists returns the lists of which this copy has another version than the one on which the members agree.
func (f *Fleet) otherLists() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.assignment == nil {
		return nil
	}
	return f.assignment.OtherLists[f.assignment.Self]
}

// knows reports whether there is an assignment, and whether it may be old.
func (f *Fleet) knows() (assignment, old bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.assignment != nil, f.blind
}

// notMember returns why this copy is not a member and thus runs no feeds, "" if it is one.
func (f *Fleet) notMember() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	isMember := f.assignment != nil && slices.Contains(f.assignment.Members, f.assignment.Self)
	text := fmt.Sprintf("fleet %s: this copy is not a member, and runs no feeds", f.name)
	switch {
	case isMember && f.err == nil:
		return ""
	case isMember:
		text = fmt.Sprintf("fleet %s: this copy cannot take part, and keeps the feeds that it had", f.name)
	}
	if f.err != nil {
		text += ": " + f.err.Error()
	}
	return text
}

// differs returns a note that the members have had different feeds for longer than a rollout takes, "" if
// they have not.
func (f *Fleet) differs(now time.Time) string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.assignment == nil || !f.assignment.StillDifferent(now) {
		return ""
	}
	return fmt.Sprintf("fleet %s: for %s members have had other feeds than this copy (%s); each feed is run by a member that has it",
		f.name, status.FormatDuration(now.Sub(f.assignment.DifferentSince)), strings.Join(f.assignment.Different, ", "))
}

// status returns the fleet as far as this copy knows it, with the number of feeds that each
// member runs; nil without a fleet. own is the digest of this copy.
func (f *Fleet) status(feeds []*Feed, own *status.Digest, redact func(string) string) *status.Fleet {
	if f == nil {
		return nil
	}
	notes := f.readNotes()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &status.Fleet{Fleet: f.name, Bus: f.bus, Members: []status.Member{}, Gone: []status.Member{}}
	if f.err != nil {
		s.Error = redact(f.err.Error())
	}
	a := f.assignment
	if a == nil {
		return s
	}
	s.FeedsDifferSince = formatTime(a.DifferentSince)
	counts := map[string]int{}
	for _, each := range feeds {
		counts[a.Owner(each.opts.Topic)]++
	}
	for _, name := range a.Members {
		m := status.Member{Member: redact(name), Self: name == a.Self, Feeds: counts[name], OtherFeeds: slices.Contains(a.Different, name), OtherLists: redactAll(a.OtherLists[name], redact)}
		if m.Self {
			m.Digest = own
		} else if note := notes[name]; note != nil {
			m.Admin, m.Digest = note.Admin, note.Digest
		}
		s.Members = append(s.Members, m)
	}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		if note := notes[name]; !note.goneSince.IsZero() && !slices.Contains(a.Members, name) {
			s.Gone = append(s.Gone, status.Member{Member: redact(name), GoneSince: formatTime(note.goneSince)})
		}
	}
	return s
}

func redactAll(texts []string, redact func(string) string) (redacted []string) {
	for _, text := range texts {
		redacted = append(redacted, redact(text))
	}
	return redacted
}

// overview returns the fleet, nil without one, and the summary of the feeds of all its members.
func (n *inventory) overview(now time.Time) (*status.Fleet, status.Summary) {
	own := n.digest(now, math.MaxInt)
	s := n.fleet.status(n.contents().feeds, &own, func(text string) string { return n.redact.Clip(text, longestError) })
	all := status.Summary{Digest: status.Digest{At: own.At, States: map[string]int{}, ByHour: status.NewHourly(), Troubles: []status.Trouble{}}}
	if s == nil {
		all.Add(own, "", now)
		all.Sentence = n.describe(&all.Digest)
		return nil, all
	}
	silent := 0
	for i, m := range s.Members {
		if m.Digest == nil {
			silent++
			continue
		}
		all.Add(*m.Digest, m.Member, now)
		shown := *m.Digest
		shown.ByHour = status.Hourly{} // long, and in the sum
		s.Members[i].Digest = &shown
	}
	if !slices.ContainsFunc(s.Members, func(m status.Member) bool { return m.Self }) {
		all.Add(own, n.fleet.notes.self, now)
	}
	n.addUnowned(&all.Digest, now)
	slices.SortStableFunc(all.Troubles, func(a, b status.Trouble) int {
		return cmp.Or(cmp.Compare(statuspage.Severity(a.State), statuspage.Severity(b.State)), status.CompareNames(a.Feed, b.Feed))
	})
	if more := len(all.Troubles) - status.MostTroubles; more > 0 {
		all.Troubles, all.MoreTroubles = all.Troubles[:status.MostTroubles], all.MoreTroubles+more
	}
	all.Sentence = n.describe(&all.Digest)
	if _, old := n.fleet.knows(); old {
		all.Sentence += "; the other members are not known at present"
	}
	if silent > 0 {
		all.Sentence += fmt.Sprintf("; %d of %d members do not report theirs", silent, len(s.Members))
	}
	return s, all
}

// describe returns the sentence of a digest, after what is wrong with the whole process.
func (n *inventory) describe(d *status.Digest) string {
	if n.config.status(n.redact).Error != nil {
		return "The configuration was not reloaded; " + d.Describe()
	}
	return d.Describe()
}

// addUnowned adds the feeds that no member runs to a digest.
func (n *inventory) addUnowned(d *status.Digest, now time.Time) {
	for _, f := range n.contents().feeds {
		owner, elsewhere := f.fleet.ownerElsewhere(f.opts.Topic)
		if !elsewhere || owner != "" {
			continue
		}
		d.Feeds++
		d.States[string(stateElsewhere)]++
		switch t := f.trouble(now); {
		case t.Cause == "":
			d.Behind++
		case len(d.Troubles) < status.MostTroubles:
			d.NeedYou++
			d.Troubles = append(d.Troubles, t)
		default:
			d.NeedYou++
			d.MoreTroubles++
		}
	}
}

// states returns the states that feeds can be in.
func (f *Fleet) states() []bridge.State {
	if f == nil {
		return states
	}
	return append(slices.Clip(states), stateElsewhere)
}

// currentState returns the state of the feed at present, and since when.
func (f *Feed) currentState(r *feedRecord, now time.Time) (bridge.State, time.Time) {
	if _, elsewhere := f.fleet.ownerElsewhere(f.opts.Topic); elsewhere {
		return stateElsewhere, r.status.Since
	}
	return r.bridgeState(now)
}

// explainElsewhere returns the sentence about a feed that this copy does not run.
func (f *Feed) explainElsewhere() string {
	owner, _ := f.fleet.ownerElsewhere(f.opts.Topic)
	trouble := ""
	if t := f.fleet.troubleOf(owner, f.opts.Name); t != nil {
		trouble = fmt.Sprintf(": %s: %s", t.State, f.redact.Clip(t.Cause, longestDetail))
	}
	assigned, old := f.fleet.knows()
	not := f.redact.Clip(f.fleet.notMember(), longestError)
	switch {
	case owner != "" && old:
		return fmt.Sprintf("run by %s, another member of the fleet, when this copy last saw it", f.redact.Clip(owner, longestName)) + trouble
	case owner != "":
		return fmt.Sprintf("run by %s, another member of the fleet", f.redact.Clip(owner, longestName)) + trouble
	case not != "" && assigned:
		return "not run: no member of the fleet has this feed; " + not
	}
	if lists := f.fleet.otherLists(); not == "" && len(lists) > 0 {
		return "not run: the members of the fleet agree on a version without this feed of a list of which this copy has another one: " + f.redact.Clip(strings.Join(lists, ", "), longestName)
	}
	return cmp.Or(not, "waiting: no member of the fleet runs this feed yet")
}

// collect sends the metrics of the fleet, if there is one.
func (n *inventory) collectFleet(out chan<- prometheus.Metric) {
	f := n.fleet
	if f == nil {
		return
	}
	s, all := n.overview(time.Now())
	own, other, isMember := 0, 0, false
	for _, m := range s.Members {
		if m.OtherFeeds {
			other++
		}
		if m.Self {
			own, isMember = m.Feeds, s.Error == ""
		}
	}
	sendGauge(out, fleetMembers, float64(len(s.Members)), f.name)
	sendGauge(out, fleetMember, oneIf(isMember), f.name)
	sendGauge(out, fleetFeeds, float64(own), f.name)
	sendGauge(out, fleetOtherFeeds, float64(other), f.name)
	sendGauge(out, fleetNeedPerson, float64(all.NeedYou), f.name)
	sendGauge(out, fleetBehind, float64(all.Failing+all.Behind), f.name)
	sendGauge(out, fleetGone, float64(len(s.Gone)), f.name)
}
