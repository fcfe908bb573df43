package admin

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/bridge"
)

var states = []bridge.State{
	bridge.Starting, bridge.Reading, bridge.Idle, bridge.Standby, bridge.Paused, bridge.Retrying, bridge.Halted, bridge.Stopped,
}

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
func (t *totals) countFeed(f *Feed, r *feedRecord, now time.Time) {
	state, _ := f.currentState(r, now)
	t.states[state]++
	if f.staleReason(r, now) != "" {
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

func sendGauge(out chan<- prometheus.Metric, desc *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
