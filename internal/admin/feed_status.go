package admin

import (
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// details returns the status of the feed with its recent errors and entities.
func (f *Feed) details(now time.Time) status.Feed {
	row := f.status(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history.addTo(&row, now)
	return row
}

// status returns the row of the feed in /status and on the status page. Its texts have no secrets of
// URLs, and their length is bounded, except for the cursor.
func (f *Feed) status(now time.Time) status.Feed {
	f.mu.Lock()
	r := f.record.deepCopy()
	recent, lastHour := f.history.activity.total(status.Minutes, now), f.history.activity.total(60, now)
	f.mu.Unlock()
	v := f.feedInfo.view(&r, now)
	cp := r.status.Checkpoint
	state, since := v.shownState()
	row := status.Feed{
		Feed:              f.opts.Name,
		Title:             v.title(),
		State:             string(state),
		Since:             since,
		Explanation:       v.explainState(),
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
	if v.elsewhere {
		row.LastError = nil // from the time when this copy ran the feed
	}
	row.Attention, _ = v.attention()
	row.Owner = f.redact.Clip(v.owner, longestName)
	described := v.describe()
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
func deadLetters(counts map[feed.DeadKind]uint64) map[string]uint64 {
	named := make(map[string]uint64, len(counts))
	for kind, n := range counts {
		named[string(kind)] = n
	}
	return named
}
