package admin

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace is the prefix of the names of all metrics.
const namespace = "feedbridge"

// PerFeed selects the metrics that have a series for each feed, which are those with the
// label feed. Of the others, counters and histograms lose that label and are the sums over
// all feeds, and gauges are absent.
type PerFeed string

const (
	// Full keeps the label on all metrics. It is the default.
	Full PerFeed = "full"
	// Core keeps it on the metrics in coreMetrics.
	Core PerFeed = "core"
	// None keeps it on no metric.
	None PerFeed = "none"
)

// coreMetrics are the metrics that keep the label feed at Core, without the prefix of their
// names: those of the alerts in deploy/alerts.yaml, and the few that show whether a feed
// works.
var coreMetrics = []string{
	"feed_info", "feed_state", "feed_fresh", "lag_seconds", "last_successful_poll_timestamp_seconds",
	"entities_published_total", "oversized_total", "dead_letters_total", "violations_total", "commit_errors_total",
	"feed_gaps", "feed_deletes_held",
	"served_up", "served_requests_total",
}

// keepsFeed reports whether a metric has the label feed.
func (p PerFeed) keepsFeed(name string) bool {
	switch p {
	case None:
		return false
	case Core:
		return slices.Contains(coreMetrics, name)
	}
	return true
}

// description describes a metric that may have the label feed.
type description struct {
	name, help string
	labels     []string // besides feed
}

// newDesc describes a metric of feeds. labels are those that it has besides feed.
func newDesc(name, help string, labels ...string) description {
	return description{name, help, labels}
}

// processMetric describes a metric of the process, which never has the label feed.
func processMetric(name, help string, labels ...string) *prometheus.Desc {
	desc, _ := newDesc(name, help, labels...).at(None)
	return desc
}

// at returns the description as a registry needs it, and whether it has the label feed.
func (d description) at(p PerFeed) (desc *prometheus.Desc, perFeed bool) {
	perFeed = p.keepsFeed(d.name)
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", d.name), d.help, withFeed(perFeed, "feed", d.labels), nil), perFeed
}

// withFeed returns labels, or their values, of a metric that has the label feed first if perFeed is set.
func withFeed(perFeed bool, feed string, others []string) []string {
	if !perFeed {
		return others
	}
	return append([]string{feed}, others...)
}
