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
func (v *feedView) explainState() string {
	sentence := v.describeActivity()
	described := v.describe()
	if described.Search != "" && (v.r.status.State == bridge.Retrying || v.r.status.State == bridge.Halted) {
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
		if slices.Contains(v.r.remarked, remark.kind) {
			sentence += "; " + remark.text + " (" + remark.kind + ")"
		}
	}
	return sentence
}

func (v *feedView) describeActivity() string {
	next := status.FormatDuration(v.r.status.Until.Sub(v.now))
	due := !v.r.status.Until.After(v.now)
	state, since := v.currentState()
	switch state {
	case stateElsewhere:
		return v.explainElsewhere()
	case bridge.Starting:
		if !due {
			return fmt.Sprintf("starting: waiting for its turn, in %s or later, because many feeds are starting", next)
		}
		return fmt.Sprintf("starting: waiting for bus %s to return the checkpoint of topic %s", v.opts.Bus, v.opts.Topic)
	case bridge.Reading:
		return v.explainReading(since)
	case bridge.Idle:
		if v.r.status.State == bridge.Reading {
			return fmt.Sprintf("caught up: %s, waiting for the server to send more", v.publishedSoFar())
		}
		if !v.r.due.IsZero() {
			next += ", as the feed asks"
		}
		if age := v.r.unconfirmed(v.now); age > 0 {
			return fmt.Sprintf("not confirmed: bus %s has not shown the checkpoint of topic %s for %s; %s, the next poll is in %s",
				v.opts.Bus, v.opts.Topic, status.FormatDuration(age), v.publishedSoFar(), next)
		}
		return fmt.Sprintf("caught up: %s, the next poll is in %s", v.publishedSoFar(), next)
	case bridge.Standby:
		other := v.redact.Clip(v.r.status.Checkpoint.Writer, longestName)
		if other == "" || other == v.writer {
			other = "another copy"
		}
		return fmt.Sprintf("standing by: %s publishes this feed; this copy takes over when the checkpoint no longer moves", other)
	case bridge.Paused:
		return fmt.Sprintf("paused for all copies since %s: the feed is neither read nor published; continue with 'feedbridge resume %s'",
			v.r.status.Checkpoint.Paused.UTC().Format(time.RFC3339), v.opts.Name)
	case bridge.Retrying:
		if due {
			return fmt.Sprintf("trying again now after attempt %d: %s", v.r.attempts, v.r.lastError.Text)
		}
		return fmt.Sprintf("retrying in %s after attempt %d: %s", next, v.r.attempts, v.r.lastError.Text)
	case bridge.Halted:
		if due {
			return fmt.Sprintf("%s; nothing is published until this is fixed; feedbridge is checking now whether it is", v.r.lastError.Text)
		}
		return fmt.Sprintf("%s; nothing is published until this is fixed; feedbridge checks in %s whether it is", v.r.lastError.Text, next)
	case bridge.Stopped:
		return fmt.Sprintf("stopped: this copy is shutting down, %s", v.publishedSoFar())
	}
	return string(state)
}

func (v *feedView) explainReading(since time.Time) string {
	published := v.publishedSoFar()
	if search := v.describe().Search; search != "" {
		return fmt.Sprintf("searching for %s; %s", search, published)
	}
	if snapshot := v.describe().Snapshot; snapshot != "" {
		return fmt.Sprintf("reading %s; %s", snapshot, published)
	}
	if v.r.caughtUp || v.r.goodPoll.IsZero() {
		return fmt.Sprintf("polling: %s, and the feed has not answered for %s", published, status.FormatDuration(v.now.Sub(since)))
	}
	if lag, known := v.r.publishLag(); known {
		return fmt.Sprintf("catching up: %s, %s behind the newest entity of the feed", published, status.FormatDuration(lag))
	}
	return fmt.Sprintf("catching up: %s, and it is not known how much is left", published)
}

// publishedSoFar returns the clause about the progress of the topic.
func (v *feedView) publishedSoFar() string {
	cp := v.r.status.Checkpoint
	clause := fmt.Sprintf("%d entities are published", cp.Count)
	switch cp.Count {
	case 0:
		clause = "nothing is published yet"
	case 1:
		clause = "1 entity is published"
	}
	if v.r.oversized > 0 {
		clause += fmt.Sprintf(" (%d left out as too large)", v.r.oversized)
	}
	dead := uint64(0)
	for _, n := range v.r.dead {
		dead += n
	}
	if dead > 0 {
		clause += fmt.Sprintf(" (%d in the dead-letter topic)", dead)
	}
	if cp.At.IsZero() {
		return clause
	}
	clause += fmt.Sprintf(", the last commit was %s ago", status.FormatDuration(v.now.Sub(cp.At)))
	if cp.Writer != v.writer && cp.Writer != "" {
		clause += " by " + v.redact.Clip(cp.Writer, longestName)
	}
	return clause
}
