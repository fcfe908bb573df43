package admin

import (
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
)

// explain says in one sentence what the feed is doing, and if something is
// wrong, what: an error that a person can cure says how. What the topic lacks
// comes last: the bridge goes on without it.
func (f *Feed) explain(r *record, now time.Time) string {
	sentence := f.doing(r, now)
	switch gaps, deletes, _ := f.lacks(r); {
	case gaps == 1:
		sentence += "; 1 document of the feed is missing, and with it what is older"
	case gaps > 1:
		sentence += fmt.Sprintf("; %d documents of the feed are missing, and with them what is older", gaps)
	case deletes > 0:
		sentence += fmt.Sprintf("; %d deletes are held back, for most of the feed has vanished", deletes)
	}
	if r.repaired {
		sentence += "; the document is not well-formed and was repaired, and entries may be left out: ask the provider to mend it (" + notWellFormed + ")"
	}
	return sentence
}

func (f *Feed) doing(r *record, now time.Time) string {
	next := span(r.status.Until.Sub(now))
	due := !r.status.Until.After(now)
	state, since := r.state(now)
	switch state {
	case bridge.Starting:
		return fmt.Sprintf("starting: waiting for bus %s to say where topic %s stands", f.opts.Bus, f.opts.Topic)
	case bridge.Reading:
		return f.explainReading(r, since, now)
	case bridge.Idle:
		if !r.due.IsZero() {
			next += ", as the feed asks"
		}
		return fmt.Sprintf("caught up: %s, the next poll is in %s", f.published(r, now), next)
	case bridge.Standby:
		other := r.status.Checkpoint.Writer
		if other == "" || other == f.writer {
			other = "another copy"
		}
		return fmt.Sprintf("standing by: %s publishes this feed; this copy takes over when its checkpoint stands still", other)
	case bridge.Retrying:
		if due {
			return fmt.Sprintf("trying again now after attempt %d: %s", r.attempts, r.lastError.text)
		}
		return fmt.Sprintf("retrying in %s after attempt %d: %s", next, r.attempts, r.lastError.text)
	case bridge.Halted:
		if due {
			return fmt.Sprintf("halted: %s; nothing is published until this is mended, and it is being tried again now", r.lastError.text)
		}
		return fmt.Sprintf("halted: %s; nothing is published until this is mended, and it is tried again in %s", r.lastError.text, next)
	case bridge.Stopped:
		return fmt.Sprintf("stopped: this copy is shutting down, %s", f.published(r, now))
	}
	return string(state)
}

func (f *Feed) explainReading(r *record, since, now time.Time) string {
	published := f.published(r, now)
	if r.caughtUp || r.goodPoll.IsZero() {
		return fmt.Sprintf("polling: %s, and the feed's answer has been awaited for %s", published, span(now.Sub(since)))
	}
	if lag, known := r.lag(); known {
		return fmt.Sprintf("catching up: %s, %s behind the newest entity of the feed", published, span(lag))
	}
	return fmt.Sprintf("catching up: %s, and how much is to come is not known", published)
}

// published is the clause that says how far the topic has got.
func (f *Feed) published(r *record, now time.Time) string {
	cp := r.status.Checkpoint
	clause := fmt.Sprintf("%d entities are published", cp.Count)
	switch cp.Count {
	case 0:
		clause = "nothing is published yet"
	case 1:
		clause = "1 entity is published"
	}
	if r.oversized > 0 {
		clause += fmt.Sprintf(" (%d left out as too large for the bus)", r.oversized)
	}
	if cp.At.IsZero() {
		return clause
	}
	clause += fmt.Sprintf(", the last commit was %s ago", span(now.Sub(cp.At)))
	if cp.Writer != f.writer && cp.Writer != "" {
		clause += " by " + cp.Writer
	}
	return clause
}

// span writes a duration in the one or two units that matter: 350ms, 12s,
// 4m30s, 3h, 5d2h.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d = max(d, 0); d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	units := []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units[:3] {
		if d < u.size {
			continue
		}
		smaller := units[i+1]
		text := fmt.Sprintf("%d%s", d/u.size, u.name)
		if rest := d % u.size / smaller.size; rest > 0 {
			text += fmt.Sprintf("%d%s", rest, smaller.name)
		}
		return text
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
