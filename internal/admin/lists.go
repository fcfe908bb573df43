package admin

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// listStatus returns the rows of the lists of feeds. Its texts have no secrets of URLs, and their length is bounded.
func (n *inventory) listStatus() []status.List {
	rows := []status.List{}
	if n.lists != nil {
		rows = append(rows, n.lists()...)
	}
	for i := range rows {
		row := &rows[i]
		row.Source, row.Error = n.redact.Clip(row.Source, longestText), n.redact.Clip(row.Error, longestError)
		if agreed, heldBy := n.fleet.listVersion(row.List); row.Digest != "" && agreed != row.Digest {
			row.FleetDigest, row.HeldBy = agreed, heldBy
		}
	}
	return rows
}

// listVersion returns the digest of the version of a list on which the members agree, empty if there is none, and the
// members that hold the version of this copy.
func (f *Fleet) listVersion(list string) (digest string, heldBy []string) {
	if f == nil {
		return "", nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.assignment == nil {
		return "", nil
	}
	return f.assignment.Version(list), f.assignment.HeldBy(list)
}

// unreadLists returns the reasons for which the process is not ready: lists that it has never read.
func (n *inventory) unreadLists() (reasons []string) {
	for _, row := range n.listStatus() {
		if row.Digest == "" {
			reasons = append(reasons, fmt.Sprintf("list %s: %s", row.List, row.Explanation()))
		}
	}
	return reasons
}

// collectLists sends the metrics of the lists.
func (n *inventory) collectLists(out chan<- prometheus.Metric) {
	for _, row := range n.listStatus() {
		sendGauge(out, listUp, oneIf(row.Error == "" && row.LastSuccess != nil), row.List)
		sendGauge(out, listFeeds, float64(row.Feeds), row.List)
		sendGauge(out, listBadEntries, float64(row.BadEntries), row.List)
		sendGauge(out, listHeld, oneIf(row.Held != nil), row.List)
		if row.LastSuccess != nil {
			sendGauge(out, listSuccess, float64(row.LastSuccess.UnixMilli())/1000, row.List)
		}
		if n.fleet != nil {
			sendGauge(out, listDiffers, oneIf(row.FleetDigest != ""), row.List)
		}
	}
}
