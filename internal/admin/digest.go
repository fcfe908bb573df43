package admin

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
)

const (
	// behindAfter is how long a feed may catch up, or how much older its topic may be, before it counts
	// as behind. Otherwise every poll that finds something new would count.
	behindAfter = time.Minute
	// longestCause limits the cause of a trouble, in characters.
	longestCause = 160
)

// attention returns whether a feed needs a person, fails or is behind, and why. It reads r, which is the record
// or a copy of it. Of a feed that another member of the fleet runs that member has said so.
func (f *Feed) attention(r *feedRecord, now time.Time) (status.Attention, string) {
	state, since := f.currentState(r, now)
	switch state {
	case bridge.Halted:
		return status.NeedsYou, r.lastError.Text
	case stateElsewhere:
		return f.attentionElsewhere()
	case bridge.Paused, bridge.Standby, bridge.Stopped:
		return "", ""
	}
	// A feed that reads page after page gets there by itself, and so may one that has just started.
	limit := f.opts.Freshness
	stale := f.staleReason(r, now)
	if stale != "" && now.Sub(r.began) > limit && (state != bridge.Reading || now.Sub(r.goodPoll) > limit) {
		return status.NeedsYou, stale
	}
	if r.heldDeletes != "" {
		return status.NeedsYou, r.heldDeletes
	}
	lag, _ := r.publishLag()
	if state == bridge.Retrying {
		return status.Failing, ""
	}
	if lag > behindAfter || state == bridge.Reading && !r.caughtUp && now.Sub(since) > behindAfter {
		return status.Behind, ""
	}
	return "", ""
}

// attentionElsewhere is attention for a feed that this copy does not run.
func (f *Feed) attentionElsewhere() (status.Attention, string) {
	owner, _ := f.fleet.ownerElsewhere(f.opts.Topic)
	switch trouble := f.fleet.troubleOf(owner, f.opts.Name); {
	case trouble != nil:
		return status.NeedsYou, trouble.Cause
	case owner == "" && f.fleet.failed():
		return status.NeedsYou, f.explainElsewhere()
	case owner == "":
		return status.Behind, ""
	}
	return "", ""
}

// digest returns the digest of the feeds that this copy runs. Encoded as JSON it has at most so many
// bytes, if those suffice for a digest that names no feeds.
func (n *inventory) digest(now time.Time, most int) status.Digest {
	d := status.Digest{At: formatTime(now), Started: formatTime(n.started), States: map[string]int{}, Troubles: []status.Trouble{}}
	n.activity.use(func(a *activity) { d.EntitiesLastHour, d.ByHour = a.total(60, now), a.hourly(now) })
	var ill []sortKey
	for _, f := range n.contents().feeds {
		f.mu.Lock()
		state, _ := f.currentState(&f.record, now)
		if state == stateElsewhere {
			f.mu.Unlock()
			continue
		}
		needs, _ := f.attention(&f.record, now)
		f.mu.Unlock()
		d.Feeds++
		d.States[string(state)]++
		switch needs {
		case status.Failing:
			d.Failing++
		case status.Behind:
			d.Behind++
		case status.NeedsYou:
			d.NeedYou++
			ill = append(ill, sortKey{feed: f, state: string(state)})
		}
	}
	slices.SortStableFunc(ill, func(a, b sortKey) int {
		return cmp.Compare(statuspage.Severity(a.state), statuspage.Severity(b.state))
	})
	for _, key := range ill[:min(len(ill), status.MostTroubles)] {
		d.Troubles = append(d.Troubles, key.feed.trouble(now))
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
	return d
}

// trouble returns the feed as a digest names it.
func (f *Feed) trouble(now time.Time) status.Trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	state, since := f.currentState(&f.record, now)
	_, cause := f.attention(&f.record, now)
	return status.Trouble{Feed: f.opts.Name, Title: f.title(), State: string(state), Since: formatTime(since), Cause: f.redact.Excerpt(cause, longestCause)}
}
