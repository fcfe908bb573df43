package admin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// Description describes how far a feed has come, according to a checkpoint.
type Description struct {
	// Format is the format of the feed, "" if it is not known yet.
	Format string
	// Cursor describes the cursor, as a value for JSON.
	Cursor any
	// Search is the search for the position where reading starts, and how far it has come, as a
	// part of a sentence; "" if there is none.
	Search string
	// Snapshot is the position in a snapshot that is read, and how long the rest takes; "" if none is.
	Snapshot string
	// Lacking is what the topic does not have of the feed; nil for a feed that has no such thing.
	Lacking *Lacking
}

// Lacking counts what a topic does not have of its feed.
type Lacking struct {
	Gaps    int // documents that are missing
	Deletes int // that are held back
	// Until is the time at which the deletes are published, if the same entries are missing then.
	Until time.Time
}

// explainDeletes says until when deletes are held back, and how to publish them at once; empty if there are none.
func (l *Lacking) explainDeletes() string {
	if l == nil || l.Deletes == 0 {
		return ""
	}
	noun := "deletes are"
	if l.Deletes == 1 {
		noun = "delete is"
	}
	return fmt.Sprintf("%d %s held back until %s, because most of the feed has vanished; to publish now, set max_delete_ratio: 1 and run 'feedbridge reload'",
		l.Deletes, noun, l.Until.UTC().Format(time.RFC3339))
}

// feedRecord has the state and the counters of a feed. It holds no entities, and its size
// is bounded for every feed.
type feedRecord struct {
	// status is the state that the bridge entered last; its Checkpoint is kept current.
	status bridge.Status
	// began is when the record began.
	began time.Time
	title string // that the feed has itself; empty if it is not known
	// attempts counts the failures since a batch was processed.
	attempts int
	// freshAt holds the time when the feed was last known to be copied: a batch was
	// committed, or another copy was seen at work. A poll does not count, because a feed
	// may be read again and again and never be published.
	freshAt time.Time
	// due holds the time of the next poll if upstream has asked for a longer wait than is
	// configured. Until then the feed counts as fresh.
	due       time.Time
	lastError *status.Error // nil before the first

	polls         map[outcome]uint64
	lastPoll      *status.Poll // nil before the first
	goodPoll      time.Time    // when one last worked
	pollErr       error        // of the last one
	readTo        feed.Cursor
	lastHaltCause haltCause // what ends every poll at present

	commits, published, publishedBytes uint64 // by this process
	committedAt                        time.Time
	commitErrors                       map[class]uint64
	duplicates, oversized              uint64
	dead                               map[feed.DeadKind]uint64 // dead letters
	panics                             uint64

	violations map[string]status.Violation // by kind
	// remarked are the kinds of violation of the document that was published last which have a
	// sentence, and inParts reports that more of it is to come.
	remarked []string
	inParts  bool

	// described is the description of the checkpoint in a copy of the record, once it is needed.
	described *Description

	// heldDeletes explains the deletes that were held back when the feed became idle last, if any were.
	heldDeletes string

	// The lag is computed from these: whether everything up to the end of the feed
	// was read and published; the newest modification that upstream has; and that
	// of the last entity published.
	caughtUp        bool
	newest, reached time.Time
}

type (
	outcome string // of a poll
	class   string // of an error of the bus
)

const (
	moved          outcome = "moved"
	unchanged      outcome = "unchanged"
	transientError outcome = "error"
	permanentError outcome = "permanent_error"

	conflict  class = "conflict"
	transient class = "transient"
	permanent class = "permanent"
)

// haltCause identifies a violation.
type haltCause struct{ kind, page string }

// The keys by which events are counted.
var (
	outcomes = []outcome{moved, unchanged, transientError, permanentError}
	classes  = []class{conflict, transient, permanent}
)

// zeros returns a count of 0 for each key, so that rates are right from the first event on.
func zeros[K comparable](keys []K) map[K]uint64 {
	counts := make(map[K]uint64, len(keys))
	for _, key := range keys {
		counts[key] = 0
	}
	return counts
}

// newRecord returns the record of a feed that starts.
func newRecord() feedRecord {
	now := time.Now()
	return feedRecord{
		status:       bridge.Status{State: bridge.Starting, Since: now},
		began:        now,
		polls:        zeros(outcomes),
		commitErrors: zeros(classes),
		dead:         zeros(feed.DeadKinds()),
		violations:   map[string]status.Violation{},
	}
}

// remarks are the sentences about violations that change what the topic has. They are part of the
// explanation as long as the document is like that.
var remarks = []struct{ kind, text string }{
	{"not_well_formed", "the document is not well-formed and was repaired, and entries may be left out: ask the provider to fix it"},
	{"always_changing", "most entries change at every poll and are published each time: the detail of this violation has the setting that ignores it"},
	{"shared_ids", "several items of the feed have one ID, so the IDs of all but one are extended: ask the provider to give each item its own"},
}

// noteRemarks notes which remarks apply to the document that a batch is from. A source
// reports its violations with the first part of a document.
func (r *feedRecord) noteRemarks(b feed.Batch) {
	if len(b.Entities) > 0 && !r.inParts {
		r.remarked = nil
	}
	for _, v := range b.Violations {
		if !slices.Contains(r.remarked, v.Kind) && slices.ContainsFunc(remarks, func(m struct{ kind, text string }) bool { return m.kind == v.Kind }) {
			r.remarked = append(r.remarked, v.Kind)
		}
	}
	r.inParts = b.More
}

func (r *feedRecord) deepCopy() feedRecord {
	c := *r
	c.polls = maps.Clone(r.polls)
	c.commitErrors = maps.Clone(r.commitErrors)
	c.violations = maps.Clone(r.violations)
	c.remarked = slices.Clone(r.remarked)
	c.dead = maps.Clone(r.dead)
	return c
}

// maxKinds bounds the kinds of violation that are counted separately. Sources have a
// few dozen.
const maxKinds = 64

func (r *feedRecord) violated(v feed.Violation, at time.Time, redact *safetext.Redactor) {
	if _, known := r.violations[v.Kind]; !known && len(r.violations) >= maxKinds {
		v.Kind = "other"
	}
	kind := r.violations[v.Kind]
	kind.Count++
	kind.Last.At, kind.Last.Page, kind.Last.Detail = formatTime(at), redact.Clip(v.Page, longestDetail), redact.Clip(v.Detail, longestDetail)
	r.violations[v.Kind] = kind
}

// longPolling is the kind of source whose server holds a request until there is something new.
const longPolling = "http-feeds"

// bridgeState returns the present state of the bridge. It does not report that it reads when
// its wait for the next poll is over, so that is computed here. At the end of a feed with long polling
// a poll waits most of the time, so the feed counts as idle.
func (r *feedRecord) bridgeState(now time.Time) (bridge.State, time.Time) {
	s := r.status
	if s.Checkpoint.Source == longPolling && r.caughtUp && s.State == bridge.Reading {
		return bridge.Idle, s.Since
	}
	if s.State == bridge.Idle && !now.Before(s.Until) {
		return bridge.Reading, s.Until
	}
	return s.State, s.Since
}

// confirmedWithin is how long a feed that waits for its next poll may go without a confirmation of its
// checkpoint by the bus. The bridge asks for one before that time is over.
const confirmedWithin = time.Minute

// unconfirmed returns for how long a feed has waited for its next poll without a confirmation of its
// checkpoint by the bus; 0 if that is not too long. Then it is unknown whether the topic has what this
// process has published.
func (r *feedRecord) unconfirmed(now time.Time) time.Duration {
	if state, since := r.bridgeState(now); state == bridge.Idle && r.status.State == state && r.status.Confirmed != nil {
		if age := min(now.Sub(since), now.Sub(r.status.Confirmed())); age > confirmedWithin {
			return age
		}
	}
	return 0
}

// publishLag returns the difference in time between the newest entity of upstream and the
// last one published. It is zero when everything is published. It is not known before the
// first poll, while another copy publishes the feed, and when it is uncertain whether
// everything is published.
func (r *feedRecord) publishLag() (lag time.Duration, known bool) {
	switch {
	case r.caughtUp:
		s := r.status.State
		return 0, r.pollErr == nil && (s == bridge.Reading || s == bridge.Idle)
	case r.newest.IsZero() || r.reached.IsZero():
		return 0, false
	}
	return max(r.newest.Sub(r.reached), 0), true
}
