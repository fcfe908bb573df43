package admin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/bridge"
)

var states = []bridge.State{
	bridge.Starting, bridge.Reading, bridge.Idle, bridge.Standby, bridge.Paused, bridge.Retrying, bridge.Halted, bridge.Stopped,
}

var feedsInState = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "feeds"),
	"Number of feeds that are copied, by state.", []string{"state"}, nil)

var staleFeeds = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "stale_feeds"),
	"Number of feeds that were not copied within their freshness limit, as /readyz requires.", nil, nil)

// totals are the sums over all feeds that are made in one scrape.
type totals struct {
	counters map[*prometheus.Desc]map[string]float64 // by the label values, joined by zero bytes
	states   map[bridge.State]int
	stale    int
}

func newTotals() *totals {
	return &totals{counters: map[*prometheus.Desc]map[string]float64{}, states: map[bridge.State]int{}}
}

// countFeed counts a feed by its state.
func (t *totals) countFeed(f *Feed, r *feedRecord, now time.Time) {
	state, _ := f.currentState(r, now)
	t.states[state]++
	if f.staleReason(r, now) != "" {
		t.stale++
	}
}

// add adds a feed's value of a counter.
func (t *totals) add(desc *prometheus.Desc, v float64, labels []string) {
	if t.counters[desc] == nil {
		t.counters[desc] = map[string]float64{}
	}
	t.counters[desc][strings.Join(labels, "\x00")] += v
}

// emit sends all sums. states are those that feeds can be in.
func (t *totals) emit(out chan<- prometheus.Metric, states []bridge.State) {
	for _, state := range states {
		out <- prometheus.MustNewConstMetric(feedsInState, prometheus.GaugeValue, float64(t.states[state]), string(state))
	}
	out <- prometheus.MustNewConstMetric(staleFeeds, prometheus.GaugeValue, float64(t.stale))
	for desc, sums := range t.counters {
		for _, key := range slices.Sorted(maps.Keys(sums)) {
			var labels []string
			if key != "" {
				labels = strings.Split(key, "\x00")
			}
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, sums[key], labels...)
		}
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
