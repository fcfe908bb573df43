package admin

import (
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// leftBehind is a feed that was stopped and has not ended.
type leftBehind struct {
	name  string
	since time.Time
	work  func() string
}

// showLeftBehind returns the status of the feeds.
func showLeftBehind(all []*leftBehind, redact *safetext.Redactor) []status.LeftBehind {
	rows := []status.LeftBehind{}
	for _, l := range all {
		rows = append(rows, status.LeftBehind{Feed: l.name, Since: formatTime(l.since), Work: redact.Clip(l.work(), longestError)})
	}
	return rows
}
