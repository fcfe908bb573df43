package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

func (h *handler) serveStatus(w http.ResponseWriter, req *http.Request) {
	buses := []status.Bus{}
	for _, bus := range checkBuses(req.Context(), h.contents().buses, h.redact) {
		buses = append(buses, bus.Bus)
	}
	now := time.Now()
	fleet, summary := h.overview(now)
	answer := status.Process{
		Summary: summary,
		Version: h.opts.Version,
		Started: formatTime(h.opts.Started),
		Writer:  h.opts.Writer,
		Config:  h.config.status(h.redact),
		Fleet:   fleet,
		Lists:   h.listStatus(),
		Buses:   buses,
		Feeds:   []status.Feed{},
		Served:  inspectServed(req.Context(), h.contents().served),

		LeftBehind: h.leftBehind(),
		SlowHosts:  h.slowHosts(),
	}
	for _, f := range h.contents().feeds {
		answer.Feeds = append(answer.Feeds, f.feedStatus(now))
	}
	h.writeJSON(w, http.StatusOK, answer)
}

func (h *handler) serveFeed(w http.ResponseWriter, req *http.Request) {
	all := h.contents().feeds
	if i, found := all.find(req.PathValue("feed")); found {
		h.writeJSON(w, http.StatusOK, h.details(req.Context(), all[i]))
		return
	}
	var names []string
	for _, f := range all {
		names = append(names, f.opts.Name)
	}
	http.Error(w, fmt.Sprintf("there is no feed %q; there are: %s", req.PathValue("feed"), strings.Join(names, ", ")), http.StatusNotFound)
}

// details returns the status of a feed with its recent errors and entities. If another member of the fleet
// runs the feed, that member is asked. If it does not answer, the status has the reason.
func (n *inventory) details(ctx context.Context, f *Feed) status.Feed {
	owner, _ := n.fleet.ownerElsewhere(f.opts.Topic)
	if owner == "" || IsForwarded(ctx) {
		return f.feedDetails(time.Now())
	}
	var row status.Feed
	err := n.forward.read(ctx, owner, "/status/"+url.PathEscape(f.opts.Name), &row)
	switch {
	case err == nil && row.Feed != f.opts.Name:
		err = fmt.Errorf("%s answers with another feed", owner)
	case err == nil && row.State == string(stateElsewhere):
		err = fmt.Errorf("%s does not run the feed either; the fleet is dividing its feeds", owner)
	}
	if err != nil {
		row = f.feedDetails(time.Now())
		row.OwnerError = n.redact.Clip(err.Error(), longestError)
		return row
	}
	row.Owner = n.redact.Clip(owner, longestName)
	return row
}

// feedDetails returns the status of the feed with its recent errors and entities.
func (f *Feed) feedDetails(now time.Time) status.Feed {
	row := f.feedStatus(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history.addTo(&row, now)
	return row
}

// feedStatus returns the row of the feed in /status and on the status page. Its texts have no secrets of
// URLs, and their length is bounded, except for the cursor.
func (f *Feed) feedStatus(now time.Time) status.Feed {
	f.mu.Lock()
	r := f.record.deepCopy()
	recent, lastHour := f.history.activity.total(status.Minutes, now), f.history.activity.total(60, now)
	f.mu.Unlock()
	cp := r.status.Checkpoint
	state, since := f.currentState(&r, now)
	row := status.Feed{
		Feed:              f.opts.Name,
		Title:             f.title(),
		State:             string(state),
		Since:             formatTime(since),
		Explanation:       f.explainState(&r, now),
		URL:               f.redact.Clip(f.opts.URL, longestText),
		Every:             status.FormatDuration(f.opts.Every),
		Bus:               f.opts.Bus,
		Topic:             f.opts.Topic,
		Entities:          cp.Count,
		Published:         r.published,
		Duplicates:        r.duplicates,
		Oversized:         r.oversized,
		DeadLetters:       deadLetters(r.dead),
		Violations:        r.violations,
		LastSuccess:       formatTime(r.goodPoll),
		Paused:            formatTime(cp.Paused),
		RecentlyPublished: recent,
		EntitiesLastHour:  lastHour,
		LastPoll:          r.lastPoll,
		LastError:         r.lastError,
	}
	row.Attention, _ = f.attention(&r, now)
	owner, _ := f.fleet.ownerElsewhere(f.opts.Topic)
	row.Owner = f.redact.Clip(owner, longestName)
	described := f.describe(&r)
	row.Format, row.Cursor = described.Format, described.Cursor
	if lag, known := r.publishLag(); known {
		seconds := lag.Seconds()
		row.Lag.Seconds = &seconds
		if r.caughtUp {
			row.Lag.Entities = new(uint64)
		}
	}
	if !cp.At.IsZero() {
		row.LastCommit = &status.Commit{At: formatTime(cp.At), Writer: f.redact.Clip(cp.Writer, longestName)}
	}
	if f.opts.CommitsBy != nil {
		row.CommitsBy = f.opts.CommitsBy()
	}
	if r.status.Confirmed != nil {
		row.ConfirmedAt = formatTime(r.status.Confirmed())
	}
	if r.status.Until.After(now) {
		row.NextAttempt = formatTime(r.status.Until)
	}
	return row
}

// deadLetters returns the counts with the reasons as text.
func deadLetters(counts counterMap[feed.DeadKind]) map[string]uint64 {
	named := make(map[string]uint64, len(counts.keys))
	for kind, n := range counts.all() {
		named[string(kind)] = n
	}
	return named
}
