package admin

import (
	"fmt"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// feedLists are the lists of feeds.
type feedLists struct {
	read   func() []status.List // nil without any
	redact *safetext.Redactor
	fleet  *Fleet // nil without one
}

// status returns the rows of the lists. Its texts have no secrets of URLs, and their length is bounded.
func (l feedLists) status() []status.List {
	rows := []status.List{}
	if l.read != nil {
		rows = append(rows, l.read()...)
	}
	for i := range rows {
		row := &rows[i]
		row.Source, row.Error = l.redact.Clip(row.Source, longestText), l.redact.Clip(row.Error, longestError)
		if agreed, heldBy := l.fleet.membership().listVersion(row.List); row.Digest != "" && agreed != row.Digest {
			row.FleetDigest, row.HeldBy = agreed, heldBy
		}
	}
	return rows
}

// unread returns the reasons for which the process is not ready: lists that it has never read.
func (l feedLists) unread() (reasons []string) {
	for _, row := range l.status() {
		if row.Digest == "" {
			reasons = append(reasons, fmt.Sprintf("list %s: %s", row.List, row.Explanation()))
		}
	}
	return reasons
}
