package admin

import (
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// history holds the recent activity of a feed, for people. Its size is bounded: about 100 bytes for a
// feed that does nothing, three or four kilobytes for one that has published entities, and about five more
// for one that has published dead letters.
type history struct {
	activity *activity // nil before the first entity or error
	// errors are different ones, the newest first.
	errors []status.RepeatedError
	// entities are the newest that were published, the newest last.
	entities []publishedEntity
	// dead are the last dead letters, the newest first.
	dead []status.DeadLetter
}

// publishedEntity is kept small, because there are 20 of them for each of thousands of feeds.
type publishedEntity struct {
	id, page, op        string
	modified, published int64 // milliseconds of Unix time
	position            uint64
}

// longestID limits the ID of an entity in a history, in characters, longestPage its page, longestOperation its operation,
// and longestReason the reason why it is a dead letter.
const (
	longestID        = 160
	longestPage      = 300
	longestOperation = 20
	longestReason    = 500
)

// newestEntities returns a copy of the last entities that were published at that time, without
// their headers and bodies. The first of all has the position first.
func newestEntities(entities []feed.Entity, first uint64, now time.Time, redact *safetext.Redactor) []publishedEntity {
	skipped := max(0, len(entities)-status.MostEntities)
	newest := make([]publishedEntity, 0, len(entities)-skipped)
	page, shown := "", ""
	for i, e := range entities[skipped:] {
		if i == 0 || e.Page != page {
			page, shown = e.Page, redact.Excerpt(e.Page, longestPage)
		}
		newest = append(newest, publishedEntity{
			id: redact.Excerpt(e.ID, longestID), page: shown, op: redact.Excerpt(string(e.Op), longestOperation),
			modified: e.Modified.UnixMilli(), published: now.UnixMilli(), position: first + uint64(skipped+i),
		})
	}
	return newest
}

// publish records n entities that were published at that time by a commit that took so long. The newest of
// them are newest.
func (h *history) publish(n int, newest []publishedEntity, took time.Duration, now time.Time) {
	h.counters().published(n, took, now)
	if drop := len(h.entities) + len(newest) - status.MostEntities; drop > 0 {
		h.entities = slices.Delete(h.entities, 0, min(drop, len(h.entities)))
	}
	if h.entities == nil {
		h.entities = newest // it is not shared
		return
	}
	h.entities = append(h.entities, newest...)
}

// counters returns the activity, which it makes if there is none.
func (h *history) counters() *activity {
	if h.activity == nil {
		h.activity = &activity{}
	}
	return h.activity
}

// fail records an error.
func (h *history) fail(e *status.Error, now time.Time) {
	h.counters().failed(now)
	latest := status.RepeatedError{First: e.At, Text: e.Text}
	if same := slices.IndexFunc(h.errors, func(had status.RepeatedError) bool { return had.Text == e.Text }); same >= 0 {
		latest = h.errors[same]
		h.errors = slices.Delete(h.errors, same, same+1)
	}
	latest.Last = e.At
	latest.Count++
	h.errors = slices.Insert(h.errors, 0, latest)
	h.errors = h.errors[:min(len(h.errors), status.MostErrors)]
}

// addDead records dead letters that were published at that time.
func (h *history) addDead(letters []*feed.Entity, now time.Time, redact *safetext.Redactor) {
	for _, e := range letters[max(0, len(letters)-status.MostDeadLetters):] {
		h.dead = slices.Insert(h.dead, 0, status.DeadLetter{
			ID: redact.Excerpt(e.ID, longestID), Reason: redact.Clip(e.Dead.Text, longestReason),
			Published: formatTime(now), Page: redact.Excerpt(e.Page, longestPage),
		})
	}
	h.dead = h.dead[:min(len(h.dead), status.MostDeadLetters)]
}

// addTo adds the hours, errors, entities and dead letters to the status of a feed.
func (h *history) addTo(row *status.Feed, now time.Time) {
	row.ByHour = status.NewHourly()
	h.activity.addTo(&row.ByHour, now)
	row.RecentErrors, row.RecentEntities = append([]status.RepeatedError{}, h.errors...), []status.Entity{}
	row.RecentDeadLetters = append([]status.DeadLetter{}, h.dead...)
	for _, e := range slices.Backward(h.entities) {
		row.RecentEntities = append(row.RecentEntities, status.Entity{
			Position: e.position, ID: e.id, Operation: e.op, Page: e.page,
			Modified: formatTime(time.UnixMilli(e.modified)), Published: formatTime(time.UnixMilli(e.published)),
		})
	}
}
