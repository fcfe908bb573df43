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

// trouble returns the feed as a digest names it.
func (v *feedView) trouble() status.Trouble {
	state, since := v.currentState()
	_, cause := v.attention()
	return status.Trouble{Feed: v.opts.Name, Title: v.title(), State: string(state), Since: formatTime(since), Cause: v.redact.Excerpt(cause, longestCause)}
}

// illFeed is a feed that needs a person, with its state.
type illFeed struct {
	feed  *Feed
	state string
}

// digest returns the digest of the feeds that this copy runs, and the state of each. Encoded as JSON, both together have
// at most so many bytes, if those suffice for a digest that names no feeds.
func (n *inventory) digest(now time.Time, most int) (status.Digest, feedStates) {
	var codes []byte
	names := fnv.New64a()
	d := status.Digest{At: formatTime(now), Started: formatTime(n.opts.Started), States: map[string]int{}, Troubles: []status.Trouble{}}
	n.activity.use(func(a *activity) { d.EntitiesLastHour, d.ByHour = a.total(60, now), a.hourly(now) })
	var ill []illFeed
	for _, f := range n.contents().feeds {
		f.use(now, func(v *feedView) {
			state, _ := v.currentState()
			if state == stateElsewhere {
				return
			}
			d.Feeds++
			d.States[string(state)]++
			needs, _ := v.attention()
			addName(names, v.opts.Name)
			codes = append(codes, stateCode(state, needs))
			switch needs {
			case status.Failing:
				d.Failing++
			case status.Behind:
				d.Behind++
			case status.NeedsYou:
				d.NeedYou++
				ill = append(ill, illFeed{f, string(state)})
			}
		})
	}
	slices.SortStableFunc(ill, func(a, b illFeed) int {
		return cmp.Compare(statuspage.Severity(a.state), statuspage.Severity(b.state))
	})
	for _, each := range ill[:min(len(ill), status.MostTroubles)] {
		d.Troubles = append(d.Troubles, each.feed.view(now).trouble())
	}
	states := feedStates{Names: namesSum(names)}
	if len(codes) <= most/4*3 {
		states.Codes = string(codes)
		most -= len(codes)
	}
	d.MoreTroubles = d.NeedYou - len(d.Troubles)
	for len(d.Troubles) > 0 {
		if text, err := json.Marshal(d); err == nil && len(text) <= most {
			break
		}
		half := len(d.Troubles) / 2
		d.MoreTroubles += len(d.Troubles) - half
		d.Troubles = d.Troubles[:half]
	}
	return d, states
}

// Note returns what this copy publishes in a fleet of so many members.
func (n *inventory) Note(members int) fleet.Note {
	d, states := n.digest(time.Now(), min(longestNote, longestNotes/members))
	note := memberNote{Admin: n.fleet.notes.address, Digest: &d, States: &states}
	if note.Admin != "" {
		if key, err := n.forward.sealKey(); err == nil && key != nil {
			note.Seal = addressSeal(key, n.fleet.notes.self, note.Admin)
		}
	}
	text, err := json.Marshal(note)
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
