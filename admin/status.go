package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
)

// status is the answer of /status: the process with its buses, feeds and served feeds.
type status struct {
	Version string         `json:"version"`
	Started *time.Time     `json:"started"`
	Writer  string         `json:"writer"`
	Buses   []busStatus    `json:"buses"`
	Feeds   []feedStatus   `json:"feeds"`
	Served  []servedStatus `json:"served"`
}

// feedStatus is a row of /status. A value that is not known, or has not happened yet,
// is null.
type feedStatus struct {
	Feed        string       `json:"feed"`
	State       bridge.State `json:"state"`
	Since       *time.Time   `json:"since"`
	Explanation string       `json:"explanation"`
	URL         string       `json:"url"`
	Format      string       `json:"format"`
	Every       string       `json:"every"`
	Bus         string       `json:"bus"`
	Topic       string       `json:"topic"`
	Cursor      any          `json:"cursor"`
	// Entities counts the entities of the topic, published by any copy; the following
	// counts are of this process.
	Entities    uint64                     `json:"entities"`
	Published   uint64                     `json:"published"`
	Duplicates  uint64                     `json:"duplicates"`
	Oversized   uint64                     `json:"oversized"`
	DeadLetters map[feed.DeadKind]uint64   `json:"dead_letters"`
	Violations  map[string]violationStatus `json:"violations"`
	Lag         lagStatus                  `json:"lag"`
	LastPoll    *pollStatus                `json:"last_poll"`
	LastSuccess *time.Time                 `json:"last_success"` // of a poll
	LastCommit  *commitStatus              `json:"last_commit"`
	LastError   *errorStatus               `json:"last_error"`
	NextAttempt *time.Time                 `json:"next_attempt"` // null while one is under way
}

type violationStatus struct {
	Count uint64 `json:"count"`
	Last  struct {
		At     *time.Time `json:"at"`
		Page   string     `json:"page"`
		Detail string     `json:"detail"`
	} `json:"last"`
}

type lagStatus struct {
	Seconds  *float64 `json:"seconds"`
	Entities *uint64  `json:"entities"` // 0 or null: feeds do not report how many are to come
}

type pollStatus struct {
	At      *time.Time `json:"at"`
	Outcome outcome    `json:"outcome"`
	Took    string     `json:"took"`
}

// commitStatus is the newest checkpoint, by whichever copy.
type commitStatus struct {
	At     *time.Time `json:"at"`
	Writer string     `json:"writer"`
}

func (s *Server) serveStatus(w http.ResponseWriter, req *http.Request) {
	answer := status{
		Version: s.opts.Version,
		Started: formatTime(s.opts.Started),
		Writer:  s.opts.Writer,
		Buses:   checkBuses(req.Context(), s.buses, s.opts.Redact),
		Feeds:   []feedStatus{},
		Served:  inspectServed(req.Context(), s.allServed()),
	}
	now := time.Now()
	for _, f := range s.allFeeds() {
		answer.Feeds = append(answer.Feeds, f.feedStatus(now))
	}
	s.writeJSON(w, http.StatusOK, answer)
}

func (s *Server) serveFeed(w http.ResponseWriter, req *http.Request) {
	var names []string
	for _, f := range s.allFeeds() {
		if f.opts.Name == req.PathValue("feed") {
			s.writeJSON(w, http.StatusOK, f.feedStatus(time.Now()))
			return
		}
		names = append(names, f.opts.Name)
	}
	http.Error(w, fmt.Sprintf("there is no feed %q; there are: %s", req.PathValue("feed"), strings.Join(names, ", ")), http.StatusNotFound)
}

func (f *Feed) feedStatus(now time.Time) feedStatus {
	r := f.copyRecord()
	cp := r.status.Checkpoint
	state, since := r.bridgeState(now)
	row := feedStatus{
		Feed:        f.opts.Name,
		State:       state,
		Since:       formatTime(since),
		Explanation: f.explainState(&r, now),
		URL:         f.opts.URL,
		Every:       formatDuration(f.opts.Every),
		Bus:         f.opts.Bus,
		Topic:       f.opts.Topic,
		Entities:    cp.Count,
		Published:   r.published,
		Duplicates:  r.duplicates,
		Oversized:   r.oversized,
		DeadLetters: r.dead,
		Violations:  make(map[string]violationStatus, len(r.violations)),
		LastSuccess: formatTime(r.goodPoll),
	}
	row.Format, row.Cursor = f.describeCursor(cp)
	for kind, b := range r.violations {
		v := violationStatus{Count: b.count}
		v.Last.At, v.Last.Page, v.Last.Detail = formatTime(b.at), b.page, b.detail
		row.Violations[kind] = v
	}
	if lag, known := r.publishLag(); known {
		seconds := lag.Seconds()
		row.Lag.Seconds = &seconds
		if r.caughtUp {
			row.Lag.Entities = new(uint64)
		}
	}
	if !r.lastPoll.at.IsZero() {
		row.LastPoll = &pollStatus{formatTime(r.lastPoll.at), r.lastPoll.outcome, r.lastPoll.took.Round(time.Microsecond).String()}
	}
	if !cp.At.IsZero() {
		row.LastCommit = &commitStatus{formatTime(cp.At), cp.Writer}
	}
	if !r.lastError.at.IsZero() {
		row.LastError = &errorStatus{formatTime(r.lastError.at), r.lastError.text}
	}
	if r.status.Until.After(now) {
		row.NextAttempt = formatTime(r.status.Until)
	}
	return row
}
