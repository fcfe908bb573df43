package admin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// FeedOptions describe a feed, for people.
type FeedOptions struct {
	// Name is the configured name. It is a label of every metric of the feed.
	Name string
	// Title returns the title of the feed in its list; its name, or empty, if it has none. It may be called at any time, and may be
	// nil.
	Title func() string
	// URL is the feed's entry point, without secrets.
	URL string
	// Format is the configured format of the feed. It is shown until Describe
	// returns another one.
	Format string
	// Bus and Topic are where the feed is copied to.
	Bus, Topic string
	// Every is the wait between polls that find nothing new.
	Every time.Duration
	// Freshness limits the time since the feed was last copied to its end, or made progress
	// towards it. After that time the process is not ready.
	Freshness time.Duration
	// Describe puts a checkpoint into words. It may be called at any time, and may be nil.
	Describe func(checkpoint.Checkpoint) Description
	// CommitsBy returns how the bus stores the commits, "" if it is not known. It may be called at any
	// time, and may be nil.
	CommitsBy func() string
}

// feedInfo is the part of a feed that never changes.
type feedInfo struct {
	opts   FeedOptions
	writer string
	redact *safetext.Redactor
	fleet  *Fleet // nil without one
}

func (f *feedInfo) name() string { return f.opts.Name }

// view returns a view of a record of the feed.
func (f *feedInfo) view(r *feedRecord, now time.Time) *feedView {
	v := &feedView{feedInfo: f, r: r, now: now, member: f.fleet.membership()}
	v.owner, v.elsewhere = v.member.ownerElsewhere(f.opts.Topic)
	v.remote = f.fleet.remoteOf(v.owner, f.opts.Name)
	return v
}

// feedView is a feed at a time. Everything that is shown of its state is made from one.
type feedView struct {
	*feedInfo
	r      *feedRecord // the record or a copy of it
	now    time.Time
	member membership
	// elsewhere reports that this copy does not run the feed. owner is the member that runs it, empty if none does yet.
	elsewhere bool
	owner     string
	remote    remoteFeed // what owner has published
}

// title returns the title from the feed's list, or else the feed's own; empty if there is none, or if it is the name.
func (v *feedView) title() string {
	listed := ""
	if v.opts.Title != nil {
		listed = v.redact.Excerpt(v.opts.Title(), longestTitle)
	}
	for _, title := range []string{listed, v.r.title} {
		if title != v.opts.Name && title != "" {
			return title
		}
	}
	return ""
}

// currentState returns the state of the feed at present, and since when.
func (v *feedView) currentState() (bridge.State, time.Time) {
	if v.elsewhere {
		return stateElsewhere, v.r.status.Since
	}
	return v.r.bridgeState(v.now)
}

// shownState returns the state of the feed for people, which the member that runs it may have published, and since when.
func (v *feedView) shownState() (bridge.State, *time.Time) {
	switch state, since := v.currentState(); {
	case !v.elsewhere || v.remote.state == "":
		return state, formatTime(since)
	case v.remote.trouble != nil:
		return v.remote.state, v.remote.trouble.Since
	}
	return v.remote.state, nil
}

// explainElsewhere returns the sentence about a feed that this copy does not run.
func (v *feedView) explainElsewhere() string {
	trouble := ""
	if t := v.remote.trouble; t != nil {
		trouble = fmt.Sprintf(": %s: %s", v.redact.Clip(t.State, longestName), v.redact.Clip(t.Cause, longestDetail))
	} else if v.remote.state != "" {
		trouble = fmt.Sprintf(": %s %s ago", v.remote.state, status.FormatDuration(v.now.Sub(v.remote.at)))
	}
	not := v.redact.Clip(v.member.notMember(), longestError)
	switch {
	case v.owner != "" && v.member.blind:
		return fmt.Sprintf("run by %s, another member of the fleet, when this copy last saw it", v.redact.Clip(v.owner, longestName)) + trouble
	case v.owner != "":
		return fmt.Sprintf("run by %s, another member of the fleet", v.redact.Clip(v.owner, longestName)) + trouble
	case not != "" && v.member.assignment != nil:
		return "not run: no member of the fleet has this feed; " + not
	}
	// The assignment is not nil: this copy is a member.
	if a := v.member.assignment; not == "" && len(a.OtherLists[a.Self]) > 0 {
		return "not run: the members of the fleet agree on a version without this feed of a list of which this copy has another one: " + v.redact.Clip(strings.Join(a.OtherLists[a.Self], ", "), longestName)
	}
	return cmp.Or(not, "waiting: no member of the fleet runs this feed yet")
}

// staleReason returns why the feed makes the process not ready, "" if it does not. A halted
// feed is ready until its limit has passed, like any other. A paused feed is always ready, and so
// is one that another member of the fleet runs. A feed that waits for its next poll is not ready
// while it is unknown whether its topic still has what was published.
func (v *feedView) staleReason() string {
	if v.elsewhere {
		return ""
	}
	age, limit := v.now.Sub(v.r.freshAt), v.opts.Freshness
	if v.r.due.After(v.r.freshAt) {
		age = v.now.Sub(v.r.due)
	}
	var what string
	switch {
	case v.r.status.State == bridge.Stopped:
		return "stopping"
	case v.r.status.State == bridge.Paused:
		return ""
	case v.r.unconfirmed(v.now) > 0:
		return fmt.Sprintf("bus %s has not confirmed its checkpoint for %s", v.opts.Bus, status.FormatDuration(v.r.unconfirmed(v.now)))
	case v.r.freshAt.IsZero() && v.r.goodPoll.IsZero():
		what = "has not been read yet"
	case v.r.freshAt.IsZero():
		what = "has not been published yet"
	case age <= limit:
		return ""
	case v.now.Sub(v.r.goodPoll) <= limit:
		what = fmt.Sprintf("is read, but has not been published for %s (limit %s)", status.FormatDuration(age), status.FormatDuration(limit))
	default:
		what = fmt.Sprintf("has not been read for %s (limit %s)", status.FormatDuration(age), status.FormatDuration(limit))
	}
	state, since := v.currentState()
	switch state {
	case bridge.Retrying, bridge.Halted:
		return what + ": " + v.r.lastError.Text
	}
	return fmt.Sprintf("%s: %s for %s", what, state, status.FormatDuration(v.now.Sub(since)))
}

// describe describes the checkpoint of a copy of the record, once.
func (v *feedView) describe() *Description {
	if v.r.described == nil {
		v.r.described = &Description{}
		if v.opts.Describe != nil {
			*v.r.described = v.opts.Describe(v.r.status.Checkpoint)
		}
		v.r.described.Format = cmp.Or(v.r.described.Format, v.opts.Format)
		v.r.described.Search = v.redact.Clip(v.r.described.Search, longestName)
		v.r.described.Snapshot = v.redact.Clip(v.r.described.Snapshot, longestName)
	}
	return v.r.described
}
