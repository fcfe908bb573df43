package admin

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/bridge"
)

// totals are the sums over all feeds that are made in one scrape.
type totals struct {
	counters map[series]float64
	states   map[bridge.State]int
	stale    int
}

// series identifies a sum by its metric and the values of its labels, joined by zero bytes.
type series struct {
	desc   *prometheus.Desc
	labels string
}

// countFeed counts a feed by its state.
func (t *totals) countFeed(v *feedView) {
	state, _ := v.currentState()
	t.states[state]++
	if v.staleReason() != "" {
		t.stale++
	}
}

// emit sends all sums. states are those that feeds can be in.
func (t *totals) emit(out chan<- prometheus.Metric, states []bridge.State) {
	for _, state := range states {
		sendGauge(out, feedsInState, float64(t.states[state]), string(state))
	}
	sendGauge(out, staleFeeds, float64(t.stale))
	for s, sum := range t.counters {
		var labels []string
		if s.labels != "" {
			labels = strings.Split(s.labels, "\x00")
		}
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, sum, labels...)
	}
}
