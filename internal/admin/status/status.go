// Package status has the types of the answers of /status, from which the status pages are
// made, too. Programs that read /status decode its JSON into them.
//
// Scripts read the JSON. Keys are only added. A value that is not known, or has not
// happened yet, is null. Times are in UTC.
package status

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// ConfigHeader is the header of all answers that has the path of the configuration file. It is empty without one.
const ConfigHeader = "Feedbridge-Config"

// Process is the answer of /status.
type Process struct {
	Summary Summary    `json:"summary"`
	Version string     `json:"version"`
	Started *time.Time `json:"started"`
	// Writer names this copy, as its checkpoints do.
	Writer string `json:"writer"`
	Config Config `json:"config"`
	// Fleet is null without a fleet.
	Fleet *Fleet `json:"fleet"`
	// Lists are the lists of feeds, sorted by name.
	Lists []List `json:"lists"`
	Buses []Bus  `json:"buses"`
	// Feeds are sorted by name, and so is Served.
	Feeds  []Feed   `json:"feeds"`
	Served []Served `json:"served"`
	// LeftBehind are the feeds that were stopped and have not ended.
	LeftBehind []LeftBehind `json:"left_behind"`
	// SlowHosts are the hosts that have refused requests and are asked less often, sorted by name; at most 100.
	SlowHosts []SlowHost `json:"slow_hosts"`
}

// SlowHost is a host of feeds that is asked less often than limits.rate allows, because it has refused requests.
type SlowHost struct {
	Host string `json:"host"` // with its port
	// RequestsPerMinute is for all feeds of the host together, and all members of a fleet.
	RequestsPerMinute float64 `json:"requests_per_minute"`
	// Share is this copy's part of that, from 0 to 1.
	Share float64 `json:"share"`
	// Status is the HTTP status of the last answer that changed the rate, such as 429.
	Status int        `json:"status"`
	Since  *time.Time `json:"since"`
	// EasesAt is when the rate is doubled next if the host refuses no request until then.
	EasesAt *time.Time `json:"eases_at"`
}

// String describes the host in a sentence.
func (s SlowHost) String() string {
	text := fmt.Sprintf("%s has answered %d: requests of all its feeds are limited to %.3g a minute", s.Host, s.Status, s.RequestsPerMinute)
	if s.Share < 1 {
		text += fmt.Sprintf(", this copy %.0f%% of them", 100*s.Share)
	}
	return text + "; set their limits.rate if the provider allows more"
}

// LeftBehind is a feed that was stopped by a reload, or is run by another member of the fleet now, and
// has not ended in time. A feed of the same name may run beside it.
type LeftBehind struct {
	Feed  string     `json:"feed"`
	Since *time.Time `json:"since"`
	// Work is what it waits for.
	Work string `json:"work"`
}

// Config describes the configuration in use.
type Config struct {
	LoadedAt *time.Time `json:"loaded_at"`
	Error    *Error     `json:"error"` // of a newer one that was refused
}

// List is a list of feeds.
type List struct {
	List   string `json:"list"`
	Source string `json:"source"` // its file, or its URL without secrets
	// Feeds counts the feeds of the version in use, and BadEntries the errors of its entries, which are not used.
	Feeds      int `json:"feeds"`
	BadEntries int `json:"bad_entries"`
	// Digest identifies the version in use: its topics with their URLs. It is empty before the first one.
	Digest string `json:"digest"`
	// FleetDigest is the digest of the version on which the fleet agrees, if this copy has another one.
	FleetDigest string `json:"fleet_digest,omitempty"`
	// HeldBy are members that hold the version of this copy, so that the fleet does not agree on it.
	HeldBy []string `json:"held_by,omitempty"`
	// MovedFeeds counts the feeds that have another URL than in the version before, and Moved are the first of them.
	MovedFeeds int      `json:"moved_feeds,omitempty"`
	Moved      []string `json:"moved,omitempty"`
	// LastSuccess is when the list was last read, or found unchanged.
	LastSuccess *time.Time `json:"last_success"`
	Held        *HeldList  `json:"held"`
	// Error is why the last attempt to read it failed.
	Error string `json:"error,omitempty"`
}

// HeldList is a version of a list that is not used yet, because most of the feeds are missing.
type HeldList struct {
	Feeds int        `json:"feeds"`
	Lost  int        `json:"lost"` // of the feeds of the version in use
	Since *time.Time `json:"since"`
}

// String is how many feeds are lost, and what uses the version.
func (h HeldList) String() string {
	return fmt.Sprintf("has lost %s since %s, which is not used yet; 'feedbridge reload --yes' uses it", countOf(h.Lost, "feed"), h.Since.Format(time.TimeOnly))
}

func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Explanation is the state of the list in a sentence; empty if all is well.
func (l List) Explanation() string {
	var parts []string
	switch {
	case l.Digest == "" && l.Error != "":
		return "has not been read yet, so its feeds are not run: " + l.Error
	case l.Digest == "":
		return "has not been read yet"
	case l.Error != "":
		parts = append(parts, "cannot be read, and the feeds that it had are run: "+l.Error)
	}
	if l.Held != nil {
		parts = append(parts, l.Held.String())
	}
	if l.FleetDigest != "" {
		parts = append(parts, "is another version than the members of the fleet agree on: of the feeds of the list, this copy runs only those that both have")
	}
	if len(l.HeldBy) > 0 {
		parts = append(parts, "the version of this copy has lost most of the feeds, and is held by "+strings.Join(l.HeldBy, ", ")+"; 'feedbridge reload --yes' on one member uses it")
	}
	if l.BadEntries == 1 {
		parts = append(parts, "has an entry with an error, which 'feedbridge check' prints")
	} else if l.BadEntries > 1 {
		parts = append(parts, fmt.Sprintf("has %d entries with errors, which 'feedbridge check' prints", l.BadEntries))
	}
	if l.MovedFeeds > 0 {
		names := strings.Join(l.Moved, ", ")
		if more := l.MovedFeeds - len(l.Moved); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, fmt.Sprintf("has given another URL to %s in the same topic at its last change: %s", countOf(l.MovedFeeds, "feed"), names))
	}
	return strings.Join(parts, "; ")
}

// Fleet is a fleet as far as one of its members knows it.
type Fleet struct {
	Fleet string `json:"fleet"`
	// Bus is the bus by which the members find each other.
	Bus string `json:"bus"`
	// Members are sorted by name. There are none before this copy has joined.
	Members []Member `json:"members"`
	// Gone are the copies that have not been members for less than an hour: they have died, are frozen, or
	// on Kafka were stopped. Others run their feeds.
	Gone []Member `json:"gone"`
	// FeedsDifferSince is since when members have different feeds; null if all have the same.
	FeedsDifferSince *time.Time `json:"feeds_differ_since"`
	// Error is why this copy cannot take part.
	Error string `json:"error,omitempty"`
}

// Member is a copy that is a member of a fleet.
type Member struct {
	Member string `json:"member"`
	Self   bool   `json:"self"` // it is the copy that answers
	// Feeds counts the feeds that it runs, of those that the copy that answers has.
	Feeds int `json:"feeds"`
	// OtherFeeds is set if its feeds are not those of the copy that answers.
	OtherFeeds bool `json:"other_feeds,omitempty"`
	// OtherLists are the lists of which it has another version than the one on which the members agree.
	OtherLists []string `json:"other_lists,omitempty"`
	// Admin is the address of its admin server, if it publishes one.
	Admin string `json:"admin,omitempty"`
	// Digest is the last one that it has published; null if it publishes none.
	Digest *Digest `json:"digest"`
	// GoneSince is only in Gone.
	GoneSince *time.Time `json:"gone_since,omitempty"`
}

// Bus is a bus that feeds are copied to, or that topics are served from.
type Bus struct {
	Bus       string     `json:"bus"`
	Kind      string     `json:"kind"`
	OK        bool       `json:"ok"`
	CheckedAt *time.Time `json:"checked_at"`
	Error     string     `json:"error,omitempty"`
}

// Feed is a feed that is copied to a topic.
type Feed struct {
	Feed string `json:"feed"`
	// Title is the feed's title in its list, or else its own once this process has read it.
	Title string `json:"title,omitempty"`
	// State is a State of package bridge, or "elsewhere": another member of the fleet runs
	// the feed.
	State string     `json:"state"`
	Since *time.Time `json:"since"`
	// Owner is the member of the fleet that runs the feed, if it is another one and known.
	Owner string `json:"owner,omitempty"`
	// OwnerError is why the details of the feed could not be read from Owner. Then they are what this copy
	// knows. It is only in the answer for a single feed.
	OwnerError string `json:"owner_error,omitempty"`
	// Attention is whether the feed needs a person, fails, or is behind.
	Attention Attention `json:"attention"`
	// Explanation is the state in a sentence, with the error and its cure if there is one.
	Explanation string `json:"explanation"`
	URL         string `json:"url"`
	Format      string `json:"format"`
	Every       string `json:"every"`
	Bus         string `json:"bus"`
	Topic       string `json:"topic"`
	// Cursor is the position of the checkpoint in the feed.
	Cursor any `json:"cursor"`
	// Entities counts the entities of the topic, published by any copy; the following
	// counts are of this process.
	Entities   uint64 `json:"entities"`
	Published  uint64 `json:"published"`
	Duplicates uint64 `json:"duplicates"`
	Oversized  uint64 `json:"oversized"`
	// DeadLetters counts the entities in the dead-letter topic, by reason.
	DeadLetters map[string]uint64    `json:"dead_letters"`
	Violations  map[string]Violation `json:"violations"` // by kind
	// RecentlyPublished counts the entities that this process published in the last
	// [Minutes] minutes of the clock, the present one included.
	RecentlyPublished uint64 `json:"recently_published"`
	// EntitiesLastHour is the same for 60 minutes.
	EntitiesLastHour uint64     `json:"entities_last_hour"`
	Lag              Lag        `json:"lag"`
	LastPoll         *Poll      `json:"last_poll"`
	LastSuccess      *time.Time `json:"last_success"` // of a poll
	LastCommit       *Commit    `json:"last_commit"`
	// ConfirmedAt is when the bus last confirmed that the newest checkpoint is the one of LastCommit.
	ConfirmedAt *time.Time `json:"confirmed_at"`
	// CommitsBy is how the bus stores the commits of this process: "fast_ingest", "atomic_batches" or
	// "transactions"; empty if that is not known yet.
	CommitsBy   string     `json:"commits_by"`
	LastError   *Error     `json:"last_error"`
	NextAttempt *time.Time `json:"next_attempt"` // null while one is under way
	Paused      *time.Time `json:"paused"`       // since when, for all copies

	// The fields below are only in the answer for a single feed. They are lost when the
	// process ends.

	ByHour Hourly `json:"by_hour,omitzero"`
	// RecentErrors are the last [MostErrors] different errors, the newest first.
	RecentErrors []RepeatedError `json:"recent_errors,omitzero"`
	// RecentEntities are the last [MostEntities] that were published, the newest first.
	RecentEntities []Entity `json:"recent_entities,omitzero"`
	// RecentDeadLetters are the last [MostDeadLetters], the newest first.
	RecentDeadLetters []DeadLetter `json:"recent_dead_letters,omitzero"`
}

// KnowsEntities reports whether Entities is known, and not 0 because the bus has not answered yet.
func (f *Feed) KnowsEntities() bool {
	return f.Entities > 0 || f.LastCommit != nil || f.ConfirmedAt != nil
}

// The lengths of the history of a feed.
const (
	Minutes      = 15
	MostErrors   = 5
	MostEntities = 20

	MostDeadLetters = 5
)

// Violation counts the violations of a kind, and has the last of them.
type Violation struct {
	Count uint64 `json:"count"`
	Last  struct {
		At     *time.Time `json:"at"`
		Page   string     `json:"page"`
		Detail string     `json:"detail"`
	} `json:"last"`
}

// Lag is how far a topic is behind its feed.
type Lag struct {
	Seconds  *float64 `json:"seconds"`
	Entities *uint64  `json:"entities"` // 0 or null: feeds do not report how many are to come
}

// Poll is a read of a feed.
type Poll struct {
	At      *time.Time `json:"at"`
	Outcome string     `json:"outcome"`
	Took    string     `json:"took"`
}

// Commit is the newest checkpoint, by whichever copy.
type Commit struct {
	At     *time.Time `json:"at"`
	Writer string     `json:"writer"`
}

// Error is an error and its last time.
type Error struct {
	At   *time.Time `json:"at"`
	Text string     `json:"text"`
}

// RepeatedError is an error that occurred Count times.
type RepeatedError struct {
	First *time.Time `json:"first"`
	Last  *time.Time `json:"last"`
	Count uint64     `json:"count"`
	Text  string     `json:"text"`
}

// DeadLetter is an entity that was published to the dead-letter topic.
type DeadLetter struct {
	ID        string     `json:"id"`
	Reason    string     `json:"reason"` // in a sentence
	Published *time.Time `json:"published"`
	// Page is the page that it was read from.
	Page string `json:"page"`
}

// Entity is an entity that was published.
type Entity struct {
	// Position is the number of the entity in the topic, from 1.
	Position  uint64     `json:"position"`
	ID        string     `json:"id"`
	Operation string     `json:"operation"`
	Modified  *time.Time `json:"modified"`
	Published *time.Time `json:"published"`
	// Page is the page that it was read from.
	Page string `json:"page"`
}

// Served is a topic that is served as a feed.
type Served struct {
	Feed        string     `json:"feed"`
	OK          bool       `json:"ok"`
	Explanation string     `json:"explanation"`
	URL         string     `json:"url"`
	Format      string     `json:"format"`
	Bus         string     `json:"bus"`
	Topic       string     `json:"topic"`
	Positions   *Span      `json:"positions"`
	Newest      *time.Time `json:"newest"` // message
	Snapshot    *Snapshot  `json:"snapshot"`
	LastError   *Error     `json:"last_error"`
}

// Span is the range of positions of a topic. End is the position after the last message.
type Span struct {
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
	Epoch string `json:"epoch"`
}

// Snapshot is the newest snapshot of a served topic.
type Snapshot struct {
	ID        string     `json:"id"`
	Created   *time.Time `json:"created"`
	Unmatched int        `json:"unmatched"`
}

// FormatDuration writes a duration in the one or two units that matter: 350ms, 12s,
// 4m30s, 3h, 5d2h. A negative one is 0s.
func FormatDuration(d time.Duration) string {
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

// FormatRate writes a number of events per second.
func FormatRate(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return fmt.Sprintf("%.0f/s", perSecond)
}

// TimeLeft returns how long the rest takes at a speed, in words; empty if that is not known.
func TimeLeft(rest, perSecond float64) string {
	const year = 365 * 24 * 3600
	if math.IsNaN(perSecond) || math.IsInf(perSecond, 0) || perSecond <= 0 || rest <= 0 || rest/perSecond > year {
		return ""
	}
	return FormatDuration(time.Duration(rest/perSecond*float64(time.Second)).Round(time.Second)) + " left"
}
