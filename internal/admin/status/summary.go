package status

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Attention is whether somebody has to look after a feed. Empty means no.
type Attention string

// The values of Attention.
const (
	// NeedsYou is a feed that a person must look after: it is halted, was not copied within its
	// freshness limit, or has deletes that are held back.
	NeedsYou Attention = "needs_you"
	// Failing is a feed whose last attempt has failed with an error that may pass. It is tried again, and needs a
	// person when its freshness limit is over.
	Failing Attention = "failing"
	// Behind is a feed whose topic lacks entities, which feedbridge is catching up with by itself.
	Behind Attention = "behind"
)

const (
	// Hours is the number of hours in an Hourly.
	Hours = 24
	// MostTroubles limits the feeds that a digest names.
	MostTroubles = 50
)

// Summary is what matters most: in a sentence, and in numbers. In a fleet it is about the feeds of all
// members that publish a digest.
type Summary struct {
	// Sentence is for people: "30 feeds: 11 need you, 2 are behind, 4,310 entities in the last hour".
	Sentence string `json:"sentence"`
	Digest
}

// Digest is what matters of the feeds that a copy runs. Its size is bounded: members of a fleet publish
// theirs for the others.
type Digest struct {
	// At is when the digest was made.
	At *time.Time `json:"at"`
	// Started is when the copy started, and in a sum when the first of them did.
	Started *time.Time `json:"started"`
	// Feeds counts the feeds, States by their state, and NeedYou, Failing and Behind by their [Attention].
	Feeds   int            `json:"feeds"`
	States  map[string]int `json:"states"`
	NeedYou int            `json:"need_you"`
	Failing int            `json:"failing"`
	Behind  int            `json:"behind"`
	// EntitiesLastHour counts the entities that were published in the last 60 minutes of the clock, the
	// present one included, or since Started.
	EntitiesLastHour uint64 `json:"entities_last_hour"`
	// ByHour is missing in the digest of a member in /status.
	ByHour Hourly `json:"by_hour,omitzero"`
	// Troubles are the feeds that need a person, halted ones first, at most MostTroubles.
	// MoreTroubles counts the others.
	Troubles     []Trouble `json:"troubles"`
	MoreTroubles int       `json:"more_troubles"`
}

// Trouble is a feed that needs a person.
type Trouble struct {
	Feed  string `json:"feed"`
	Title string `json:"title,omitempty"` // as in [Feed]
	// Member is the member of the fleet that runs the feed; empty without a fleet.
	Member string     `json:"member,omitempty"`
	State  string     `json:"state"`
	Since  *time.Time `json:"since"` // of the state
	// Cause is the error, or why the feed is not fresh. That of another member is shortened.
	Cause string `json:"cause"`
}

// Hourly is the activity in each of the last Hours hours of the clock, the present one last.
type Hourly struct {
	// Entities were published.
	Entities []uint64 `json:"entities"`
	// Errors counts failures, each attempt.
	Errors []uint64 `json:"errors"`
	// SlowestCommit is the longest time of a commit, in milliseconds.
	SlowestCommit []uint64 `json:"slowest_commit_ms"`
}

// NewHourly returns hours without activity.
func NewHourly() Hourly {
	return Hourly{make([]uint64, Hours), make([]uint64, Hours), make([]uint64, Hours)}
}

// Add adds another digest, which was made for a time before now. Its member is that of its troubles.
func (d *Digest) Add(other Digest, member string, now time.Time) {
	if d.Started == nil || other.Started != nil && other.Started.Before(*d.Started) {
		d.Started = other.Started
	}
	d.Feeds += other.Feeds
	d.NeedYou += other.NeedYou
	d.Failing += other.Failing
	d.Behind += other.Behind
	d.EntitiesLastHour += other.EntitiesLastHour
	for state, n := range other.States {
		d.States[state] += n
	}
	shift := 0 // a digest of the hour before has its present hour one place further to the left
	if other.At != nil {
		shift = int(max(now.Unix()/3600-other.At.Unix()/3600, 0))
	}
	for i := range d.ByHour.Entities {
		d.ByHour.Entities[i] += at(other.ByHour.Entities, i+shift)
		d.ByHour.Errors[i] += at(other.ByHour.Errors, i+shift)
		d.ByHour.SlowestCommit[i] = max(d.ByHour.SlowestCommit[i], at(other.ByHour.SlowestCommit, i+shift))
	}
	d.MoreTroubles += other.MoreTroubles
	for _, t := range other.Troubles {
		t.Member = member
		d.Troubles = append(d.Troubles, t)
	}
}

// at returns an element, and 0 for one that a digest of another version lacks.
func at(hours []uint64, i int) uint64 {
	if i < len(hours) {
		return hours[i]
	}
	return 0
}

// Describe returns the digest in a sentence.
func (d *Digest) Describe() string {
	if d.Feeds == 0 {
		return "no feeds"
	}
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 0:
		case d.Feeds == 1:
			parts = append(parts, "it "+one)
		case n == d.Feeds:
			parts = append(parts, "all "+many)
		case n == 1:
			parts = append(parts, "1 "+one)
		default:
			parts = append(parts, FormatCount(uint64(n))+" "+many)
		}
	}
	add(d.NeedYou, "needs you", "need you")
	add(d.Failing, "fails and is tried again", "fail and are tried again")
	if len(parts) == 0 {
		parts = append(parts, "nothing needs you")
	}
	add(d.Behind, "is behind", "are behind")
	period := "in the last hour"
	if d.At != nil && d.Started != nil && d.At.Sub(*d.Started) < time.Hour {
		period = "since the start " + FormatDuration(d.At.Sub(*d.Started).Truncate(time.Second)) + " ago"
	}
	return fmt.Sprintf("%s: %s, %s %s", number(uint64(d.Feeds), "feed", "feeds"), strings.Join(parts, ", "), number(d.EntitiesLastHour, "entity", "entities"), period)
}

func number(n uint64, one, many string) string {
	if n == 1 {
		many = one
	}
	return FormatCount(n) + " " + many
}

// FormatCount writes a number with commas between the thousands.
func FormatCount(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
