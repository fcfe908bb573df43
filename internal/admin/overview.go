package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// overview returns the fleet, nil without one, and the summary of the feeds of all its members.
func (n *inventory) overview(now time.Time) (*status.Fleet, status.Summary) {
	outdated := n.readRemote()
	own, unowned, _ := n.digests(now)
	s := n.fleetStatus(&own)
	all := status.Summary{Digest: status.Digest{At: own.At, States: map[string]int{}, ByHour: status.NewHourly(), Troubles: []status.Trouble{}}}
	if s == nil {
		all.Add(own, "", now)
		all.Sentence = n.describe(&all.Digest)
		return nil, all
	}
	silent, changing, others := 0, false, false
	for _, m := range s.Members {
		if m.Digest == nil {
			silent++
			continue
		}
		others = others || m.OtherFeeds || len(m.OtherLists) > 0
		changing = changing || outdated[m.Member]
		all.Add(*m.Digest, m.Member, now)
		m.Digest.ByHour = status.Hourly{} // long, and in the sum
	}
	if !slices.ContainsFunc(s.Members, func(m status.Member) bool { return m.Self }) {
		all.Add(own, n.fleet.self, now)
	}
	all.Add(unowned, "", now)
	limitTroubles(&all.Digest, status.MostTroubles)
	if changing = changing && !others; changing {
		// Feeds that have moved may be counted twice, or not at all.
		missing := len(n.contents().feeds) - all.Feeds
		all.Feeds += missing
		all.States[string(stateElsewhere)] += max(missing, 0)
	}
	all.Sentence = n.describe(&all.Digest)
	if changing {
		all.Sentence += "; incomplete while members take over feeds from each other"
	}
	if n.fleet.membership().blind {
		all.Sentence += "; the other members are not known at present"
	}
	if silent > 0 {
		all.Sentence += fmt.Sprintf("; %d of %d members do not report theirs", silent, len(s.Members))
	}
	return s, all
}

// describe returns the sentence of a digest, after what is wrong with the whole process.
func (n *inventory) describe(d *status.Digest) string {
	text := d.Describe()
	for _, bus := range n.contents().buses {
		if bus.isDown() {
			text = fmt.Sprintf("Bus %s is not available; %s", bus.Name, strings.Replace(text, "nothing needs you, ", "", 1))
		}
	}
	if n.config.status(n.redact).Error != nil {
		text = "The configuration was not reloaded; " + text
	}
	return text
}

// fleetStatus returns the fleet as far as this copy knows it, with the number of feeds that each
// member runs; nil without a fleet. own is the digest of this copy.
func (n *inventory) fleetStatus(own *status.Digest) *status.Fleet {
	if n.fleet == nil {
		return nil
	}
	redact := func(text string) string { return n.redact.Clip(text, longestError) }
	notes, known := n.fleet.readNotes(), n.fleet.membership()
	s := &status.Fleet{Fleet: known.fleet, Bus: n.fleet.bus, Members: []status.Member{}, Gone: []status.Member{}}
	if known.err != nil {
		s.Error = redact(known.err.Error())
	}
	a := known.assignment
	if a == nil {
		return s
	}
	s.FeedsDifferSince = formatTime(a.DifferentSince)
	counts := map[string]int{}
	for _, f := range n.contents().feeds {
		counts[a.Owner(f.opts.Topic)]++
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
