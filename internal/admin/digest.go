package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
	"github.com/feedbridge/feedbridge/internal/fleet"
)

const (
	// behindAfter is how long a feed may catch up, or how much older its topic may be, before it counts
	// as behind. Otherwise every poll that finds something new would count.
	behindAfter = time.Minute
	// longestCause limits the cause of a trouble, in characters.
	longestCause = 160
)

// attention returns whether a feed needs a person, fails or is behind, and why. Of a feed that another member
// of the fleet runs that member has said so.
func (v *feedView) attention() (status.Attention, string) {
	state, since := v.currentState()
	switch state {
	case bridge.Halted:
		return status.NeedsYou, v.r.lastError.Text
	case stateElsewhere:
		return v.attentionElsewhere()
	case bridge.Paused, bridge.Standby, bridge.Stopped:
		return "", ""
	}
	// A feed that reads page after page gets there by itself, and so may one that has just started.
	limit := v.opts.Freshness
	stale := v.staleReason()
	if stale != "" && v.now.Sub(v.r.began) > limit && (state != bridge.Reading || v.now.Sub(v.r.goodPoll) > limit) {
		return status.NeedsYou, stale
	}
	if v.r.heldDeletes != "" {
		return status.NeedsYou, v.r.heldDeletes
	}
	lag, _ := v.r.publishLag()
	if state == bridge.Retrying {
		return status.Failing, ""
	}
	if lag > behindAfter || state == bridge.Reading && !v.r.caughtUp && v.now.Sub(since) > behindAfter {
		return status.Behind, ""
	}
	return "", ""
}

// attentionElsewhere is attention for a feed that this copy does not run.
func (v *feedView) attentionElsewhere() (status.Attention, string) {
	switch {
	case v.remote.trouble != nil:
		return status.NeedsYou, v.remote.trouble.Cause
	case v.remote.state != "":
		return v.remote.attention, ""
	case v.owner == "" && v.member.err != nil:
		return status.NeedsYou, v.explainElsewhere()
	case v.owner == "":
		return status.Behind, ""
	}
	return "", ""
}

// digests returns the digest of the feeds that this copy runs, with the state of each, and that of the feeds that no member
// of the fleet runs.
func (n *inventory) digests(now time.Time) (own, unowned status.Digest, states feedStates) {
	var codes []byte
	names := fnv.New64a()
	unowned = status.Digest{States: map[string]int{}}
	own = status.Digest{At: formatTime(now), Started: formatTime(n.opts.Started), States: map[string]int{}, ByHour: status.NewHourly(), Troubles: []status.Trouble{}}
	for _, f := range n.contents().feeds {
		f.use(now, func(v *feedView) {
			// What another member runs now may have been published here before.
			own.EntitiesLastHour += f.history.activity.total(60, now)
			f.history.activity.addTo(&own.ByHour, now)
			if v.owner != "" {
				return
			}
			d := &own
			state, since := v.currentState()
			needs, cause := v.attention()
			if v.elsewhere {
				d = &unowned
			} else {
				addName(names, v.opts.Name)
				codes = append(codes, stateCode(state, needs))
			}
			d.Feeds++
			d.States[string(state)]++
			switch needs {
			case status.Failing:
				d.Failing++
			case status.Behind:
				d.Behind++
			case status.NeedsYou:
				d.NeedYou++
				d.Troubles = append(d.Troubles, status.Trouble{Feed: v.opts.Name, Title: v.title(), State: string(state), Since: formatTime(since), Cause: cause})
			}
		})
	}
	limitTroubles(&own, status.MostTroubles)
	limitTroubles(&unowned, status.MostTroubles)
	return own, unowned, feedStates{namesSum(names), string(codes)}
}

// limitTroubles sorts the feeds that a digest names, and leaves at most so many.
func limitTroubles(d *status.Digest, most int) {
	slices.SortStableFunc(d.Troubles, func(a, b status.Trouble) int {
		return cmp.Or(cmp.Compare(statuspage.Severity(a.State), statuspage.Severity(b.State)), status.CompareNames(a.Feed, b.Feed))
	})
	if more := len(d.Troubles) - most; more > 0 {
		d.Troubles, d.MoreTroubles = d.Troubles[:most], d.MoreTroubles+more
	}
}

// Note returns what this copy publishes in a fleet of so many members. It is small: it names fewer feeds, and leaves the
// states out, rather than be longer than its share.
func (n *inventory) Note(members int) fleet.Note {
	most := min(longestNote, longestNotes/members)
	d, _, states := n.digests(time.Now())
	if len(states.Codes) > most/4*3 {
		states.Codes = ""
	}
	for i := range d.Troubles {
		d.Troubles[i].Cause = n.redact.Excerpt(d.Troubles[i].Cause, longestCause)
	}
	note := memberNote{Admin: n.fleet.address, Digest: &d, States: states}
	if note.Admin != "" {
		if key, err := n.forward.sealKey(); err == nil && key != nil {
			note.Seal = addressSeal(key, n.fleet.self, note.Admin)
		}
	}
	text, err := json.Marshal(note)
	for ; err == nil && len(text) > most && len(d.Troubles) > 0; text, err = json.Marshal(note) {
		limitTroubles(&d, len(d.Troubles)/2)
	}
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	// What changes all the time is not in the key.
	key := []string{note.Admin, note.Seal, states.Names, fmt.Sprint(d.NeedYou)}
	for _, t := range d.Troubles {
		key = append(key, t.Feed, t.State)
	}
	return fleet.Note{Text: text, Key: strings.Join(key, "\n")}
}
