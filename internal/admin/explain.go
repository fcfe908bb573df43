package admin

import (
	"fmt"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// explainState describes in one sentence the work of the feed and its error, if there is
// one, with the cure if a person can cure it. Missing documents come last, because the
// bridge continues without them.
func (f *Feed) explainState(r *feedRecord, now time.Time) string {
	sentence := f.describeActivity(r, now)
	described := f.describe(r)
	if described.Search != "" && (r.status.State == bridge.Retrying || r.status.State == bridge.Halted) {
		sentence += "; searching for " + described.Search
	}
	switch lacking := described.Lacking; {
	case lacking == nil:
	case lacking.Gaps == 1:
		sentence += "; 1 document of the feed is missing, and with it all older ones"
	case lacking.Gaps > 1:
		sentence += fmt.Sprintf("; %d documents of the feed are missing, and with them all older ones", lacking.Gaps)
	}
	if held := described.Lacking.explainDeletes(); held != "" {
		sentence += "; " + held
	}
	for _, remark := range remarks {
		if slices.Contains(r.remarked, remark.kind) {
			sentence += "; " + remark.text + " (" + remark.kind + ")"
		}
	}
	return sentence
}

func (f *Feed) describeActivity(r *feedRecord, now time.Time) string {
	next := status.FormatDuration(r.status.Until.Sub(now))
	due := !r.status.Until.After(now)
	state, since := f.currentState(r, now)
	switch state {
	case stateElsewhere:
		return f.explainElsewhere()
	case bridge.Starting:
		if !due {
			return fmt.Sprintf("starting: waiting for its turn, in %s or later, because many feeds are starting", next)
		}
		return fmt.Sprintf("starting: waiting for bus %s to return the checkpoint of topic %s", f.opts.Bus, f.opts.Topic)
	case bridge.Reading:
		return f.explainReading(r, since, now)
	case bridge.Idle:
		if r.status.State == bridge.Reading {
			return fmt.Sprintf("caught up: %s, waiting for the server to send more", f.published(r, now))
		}
		if !r.due.IsZero() {
			next += ", as the feed asks"
		}
		if age := r.unconfirmed(now); age > 0 {
			return fmt.Sprintf("not confirmed: bus %s has not shown the checkpoint of topic %s for %s; %s, the next poll is in %s",
				f.opts.Bus, f.opts.Topic, status.FormatDuration(age), f.published(r, now), next)
		}
		return fmt.Sprintf("caught up: %s, the next poll is in %s", f.published(r, now), next)
	case bridge.Standby:
		other := f.redact.Clip(r.status.Checkpoint.Writer, longestName)
		if other == "" || other == f.writer {
			other = "another copy"
		}
		return fmt.Sprintf("standing by: %s publishes this feed; this copy takes over when the checkpoint no longer moves", other)
	case bridge.Paused:
		return fmt.Sprintf("paused for all copies since %s: the feed is neither read nor published; continue with 'feedbridge resume %s'",
			r.status.Checkpoint.Paused.UTC().Format(time.RFC3339), f.opts.Name)
	case bridge.Retrying:
		if due {
			return fmt.Sprintf("trying again now after attempt %d: %s", r.attempts, r.lastError.Text)
		}
		return fmt.Sprintf("retrying in %s after attempt %d: %s", next, r.attempts, r.lastError.Text)
	case bridge.Halted:
		if due {
			return fmt.Sprintf("halted: %s; nothing is published until this is fixed; feedbridge is checking now whether it is", r.lastError.Text)
		}
		return fmt.Sprintf("halted: %s; nothing is published until this is fixed; feedbridge checks in %s whether it is", r.lastError.Text, next)
	case bridge.Stopped:
		return fmt.Sprintf("stopped: this copy is shutting down, %s", f.published(r, now))
	}
	return string(state)
}

func (f *Feed) explainReading(r *feedRecord, since, now time.Time) string {
	published := f.published(r, now)
	if search := f.describe(r).Search; search != "" {
		return fmt.Sprintf("searching for %s; %s", search, published)
	}
	if r.caughtUp || r.goodPoll.IsZero() {
		return fmt.Sprintf("polling: %s, and the feed has not answered for %s", published, status.FormatDuration(now.Sub(since)))
	}
	if lag, known := r.publishLag(); known {
		return fmt.Sprintf("catching up: %s, %s behind the newest entity of the feed", published, status.FormatDuration(lag))
	}
	return fmt.Sprintf("catching up: %s, and it is not known how much is left", published)
}

// published returns the clause about the progress of the topic.
func (f *Feed) published(r *feedRecord, now time.Time) string {
	cp := r.status.Checkpoint
	clause := fmt.Sprintf("%d entities are published", cp.Count)
	switch cp.Count {
	case 0:
		clause = "nothing is published yet"
	case 1:
		clause = "1 entity is published"
	}
	if r.oversized > 0 {
		clause += fmt.Sprintf(" (%d left out as too large)", r.oversized)
	}
	dead := uint64(0)
	for _, n := range r.dead.all() {
		dead += n
	}
	if dead > 0 {
		clause += fmt.Sprintf(" (%d in the dead-letter topic)", dead)
	}
	if cp.At.IsZero() {
		return clause
	}
	clause += fmt.Sprintf(", the last commit was %s ago", status.FormatDuration(now.Sub(cp.At)))
	if cp.Writer != f.writer && cp.Writer != "" {
		clause += " by " + f.redact.Clip(cp.Writer, longestName)
	}
	return clause
}
