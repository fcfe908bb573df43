package admin

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/feedbridge/feedbridge/bridge"
)

// namespace is the prefix of the names of all metrics.
const namespace = "feedbridge"

// register fills the registry. There is no default one: two Servers in one
// process do not meet.
func register(registry *prometheus.Registry, s *Server, version string) histograms {
	perFeed := s.opts.PerFeed
	histogram := func(name, help string, buckets ...float64) feedHistogram {
		labels, values := perFeed.feedLabels(name)
		return feedHistogram{prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		}, labels), values}
	}
	const served = "served_requests_total"
	servedLabels, servedValues := perFeed.feedLabels(served, "code")
	h := histograms{
		requestSeconds: histogram("http_request_duration_seconds",
			"How long the HTTP requests to the feed's upstream took, to the end of the response's header.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		commitSeconds: histogram("commit_duration_seconds",
			"How long the bus took to make a commit durable.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30),
		commitEntities: histogram("commit_entities",
			"How many entities a commit published.",
			0, 1, 10, 50, 100, 250, 500, 1000, 5000, 10000),
		servedSeconds: histogram("served_request_duration_seconds",
			"How long the answers to requests for a served feed took, to their last byte.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30),
		served: feedCounterVec{prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: served, Help: "Requests for a served feed, by the status of the answer.",
		}, servedLabels), servedValues},
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace:   namespace,
		Name:        "build_info",
		Help:        "Always 1; the labels are the version of feedbridge and the version of Go that built it.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	registry.MustRegister(h.requestSeconds.vec, h.commitSeconds.vec, h.commitEntities.vec, h.servedSeconds.vec, h.served.vec, build, newCollector(s, perFeed),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return h
}

// forgetFeed removes the series of a feed. Sums over all feeds keep what it has added.
func (h histograms) forgetFeed(name string) {
	for _, h := range []feedHistogram{h.requestSeconds, h.commitSeconds, h.commitEntities} {
		h.vec.DeletePartialMatch(prometheus.Labels{"feed": name})
	}
}

// forgetServed removes the series of a served feed. Sums over all feeds keep what it has added.
func (h histograms) forgetServed(name string) {
	h.servedSeconds.vec.DeletePartialMatch(prometheus.Labels{"feed": name})
	h.served.vec.DeletePartialMatch(prometheus.Labels{"feed": name})
}

// collector makes metrics from the feeds' records when they are asked for.
type collector struct {
	server   *Server
	metrics  []collected
	servedUp *prometheus.Desc // nil if it is absent
}

// collected is a metric with the labels that it has in this process.
type collected struct {
	metric
	desc    *prometheus.Desc
	perFeed bool // it has the label feed; otherwise it is a sum
}

func newCollector(s *Server, p PerFeed) *collector {
	c := &collector{server: s}
	for _, m := range metrics() {
		if desc, perFeed := m.at(p); perFeed || m.kind == prometheus.CounterValue {
			c.metrics = append(c.metrics, collected{m, desc, perFeed})
		}
	}
	if desc, perFeed := servedUp.at(p); perFeed {
		c.servedUp = desc
	}
	return c
}

// metric is made from a record by calling emit for each series, with the
// values of the labels that it has besides the feed. An unknown value is not
// emitted.
type metric struct {
	description
	kind prometheus.ValueType
	each func(f *Feed, r *feedRecord, now time.Time, emit func(v float64, labels ...string))
}

// busUp has other labels than the metrics of feeds.
var busUp = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "bus_up"),
	"1 if the bus answers and accepts the credentials, 0 if not; checked at each scrape, for 2 s at most.", []string{"bus", "kind"}, nil)

var (
	reloadSuccess = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "config_reload_success"),
		"1 if the last attempt to load the configuration worked, 0 if it was refused and the one before is still in use.", nil, nil)
	reloadedAt = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "config_reload_timestamp_seconds"),
		"When the configuration in use was loaded, in Unix time.", nil, nil)
)

var servedUp = newDesc("served_up", "1 if the topic of a served feed can be read, 0 if not; checked at each scrape, for 2 s at most.")

func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- busUp
	descs <- reloadSuccess
	descs <- reloadedAt
	descs <- feedsInState
	descs <- staleFeeds
	if c.servedUp != nil {
		descs <- c.servedUp
	}
	for _, m := range c.metrics {
		descs <- m.desc
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, b := range checkBuses(context.Background(), c.server.allBuses(), c.server.opts.Redact) {
		out <- prometheus.MustNewConstMetric(busUp, prometheus.GaugeValue, oneIf(b.OK), b.Bus.Bus, b.Kind)
	}
	if c.servedUp != nil {
		for _, f := range inspectServed(context.Background(), c.server.allServed()) {
			out <- prometheus.MustNewConstMetric(c.servedUp, prometheus.GaugeValue, oneIf(f.OK), f.Feed)
		}
	}
	loadedAt, err := c.server.config.lastAttempt()
	out <- prometheus.MustNewConstMetric(reloadSuccess, prometheus.GaugeValue, oneIf(err == nil))
	if seconds, known := unixSeconds(loadedAt); known {
		out <- prometheus.MustNewConstMetric(reloadedAt, prometheus.GaugeValue, seconds)
	}
	now, sums := time.Now(), newTotals()
	for _, f := range c.server.allFeeds() {
		r := f.copyRecord()
		sums.countFeed(f, &r, now)
		for _, m := range c.metrics {
			m.each(f, &r, now, func(v float64, labels ...string) {
				if !m.perFeed {
					sums.add(m.desc, v, labels)
					return
				}
				out <- prometheus.MustNewConstMetric(m.desc, m.kind, v, append([]string{f.opts.Name}, labels...)...)
			})
		}
	}
	sums.emit(out)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var states = []bridge.State{
	bridge.Starting, bridge.Reading, bridge.Idle, bridge.Standby, bridge.Paused, bridge.Retrying, bridge.Halted, bridge.Stopped,
}

// metrics returns the metrics that are made from records.
func metrics() []metric {
	return slices.Concat(plainCounters(), labeledCounters(), progressGauges(), stateGauges())
}

// plainCounters have no label besides the feed.
func plainCounters() []metric {
	return []metric{
		feedCounter("entities_published_total", "Entities that this process has published.",
			func(r *feedRecord) uint64 { return r.published }),
		feedCounter("bytes_published_total", "Bytes of the entities that this process has published: bodies and headers.",
			func(r *feedRecord) uint64 { return r.publishedBytes }),
		feedCounter("duplicates_total", "Entities that were left out because the topic already has their ID.",
			func(r *feedRecord) uint64 { return r.duplicates }),
		feedCounter("oversized_total", "Entities that were left out because they are too large for the bus.",
			func(r *feedRecord) uint64 { return r.oversized }),
		feedCounter("panics_total", "Panics of the feed's source or sink, each of which halted the feed.",
			func(r *feedRecord) uint64 { return r.panics }),
		feedCounter("commits_total", "Commits that this process has made.",
			func(r *feedRecord) uint64 { return r.commits }),
	}
}

// labeledCounters have labels besides the feed.
func labeledCounters() []metric {
	return []metric{
		{
			newDesc("polls_total", "Calls of the source, by outcome: it advanced, found the feed unchanged, or failed. A permanent_error needs a person.", "outcome"),
			prometheus.CounterValue,
			func(_ *Feed, r *feedRecord, _ time.Time, emit func(float64, ...string)) {
				for outcome, n := range r.polls {
					emit(float64(n), string(outcome))
				}
			},
		},
		{
			newDesc("violations_total", "Breaches of the feed's specification, by kind. One that halts the feed counts once, however often the feed is tried again.", "kind"),
			prometheus.CounterValue,
			func(_ *Feed, r *feedRecord, _ time.Time, emit func(float64, ...string)) {
				for kind, b := range r.violations {
					emit(float64(b.count), kind)
				}
			},
		},
		{
			newDesc("dead_letters_total", "Entities that this process has published to the dead-letter topic, by reason: too_large, no_key, header.", "reason"),
			prometheus.CounterValue,
			func(_ *Feed, r *feedRecord, _ time.Time, emit func(float64, ...string)) {
				for kind, n := range r.dead {
					emit(float64(n), string(kind))
				}
			},
		},
		{
			newDesc("http_requests_total", "HTTP requests to the feed's upstream, by the class of the response's status; error if there was no response.", "method", "code"),
			prometheus.CounterValue,
			func(_ *Feed, r *feedRecord, _ time.Time, emit func(float64, ...string)) {
				for request, n := range r.requests {
					emit(float64(n), request.method, request.code)
				}
			},
		},
		{
			newDesc("commit_errors_total", "Failed commits, and failed reads of the checkpoint before them: another copy was first (conflict), a retry will probably work (transient), or a person must act (permanent).", "class"),
			prometheus.CounterValue,
			func(_ *Feed, r *feedRecord, _ time.Time, emit func(float64, ...string)) {
				for class, n := range r.commitErrors {
					emit(float64(n), string(class))
				}
			},
		},
	}
}

// progressGauges are about how far the feed has been copied.
func progressGauges() []metric {
	return []metric{
		feedGauge("lag_seconds", "How much older the last published entity is than the newest known entity of the feed; 0 when all is published. Absent while unknown, for example while another copy publishes the feed.",
			func(_ *Feed, r *feedRecord, _ time.Time) (float64, bool) {
				lag, known := r.publishLag()
				return lag.Seconds(), known
			}),
		// Feeds do not report how many entities they still have, so there is no
		// other value. The series is for alerts and graphs that count entities.
		feedGauge("lag_entities", "0 when all is published; absent otherwise, because a feed does not show how many entities follow.",
			func(_ *Feed, r *feedRecord, _ time.Time) (float64, bool) {
				_, known := r.publishLag()
				return 0, known && r.caughtUp
			}),
		feedGauge("last_successful_poll_timestamp_seconds", "When a poll last worked, in Unix time. Absent before.",
			func(_ *Feed, r *feedRecord, _ time.Time) (float64, bool) { return unixSeconds(r.goodPoll) }),
		feedGauge("last_commit_timestamp_seconds", "When this process last made a commit, in Unix time. Absent before.",
			func(_ *Feed, r *feedRecord, _ time.Time) (float64, bool) { return unixSeconds(r.committedAt) }),
		feedGauge("checkpoint_age_seconds", "Age of the newest checkpoint that this process knows, made by any copy. It grows while the feed has nothing new.",
			func(_ *Feed, r *feedRecord, now time.Time) (float64, bool) {
				at := r.status.Checkpoint.At
				return max(now.Sub(at), 0).Seconds(), !at.IsZero()
			}),
		feedGauge("topic_entities", "Entities that any copy has ever published to the topic, according to the newest checkpoint that this process knows.",
			func(_ *Feed, r *feedRecord, _ time.Time) (float64, bool) {
				return float64(r.status.Checkpoint.Count), true
			}),
	}
}

// stateGauges are about the state of the feed, and about what the topic lacks of it.
func stateGauges() []metric {
	return []metric{
		feedGauge("feed_fresh", "1 if the feed was copied within its freshness limit, as /readyz requires; 0 if not.",
			func(f *Feed, r *feedRecord, now time.Time) (float64, bool) {
				return oneIf(f.staleReason(r, now) == ""), true
			}),
		feedGauge("feed_gaps", "Missing documents of an Atom or RSS feed, which hide all older ones; they are requested again. Absent while unknown, and for datareplication feeds.",
			func(f *Feed, r *feedRecord, _ time.Time) (float64, bool) {
				gaps, _, known := f.countLacking(r)
				return float64(gaps), known
			}),
		feedGauge("feed_deletes_held", "Deletes that are held back because most of the feed has vanished at once. Absent like feedbridge_feed_gaps.",
			func(f *Feed, r *feedRecord, _ time.Time) (float64, bool) {
				_, deletes, known := f.countLacking(r)
				return float64(deletes), known
			}),
		{
			newDesc("feed_info", "Always 1; the labels are the format of the feed, if it is known, and its bus and topic.", "format", "bus", "topic"),
			prometheus.GaugeValue,
			func(f *Feed, r *feedRecord, _ time.Time, emit func(float64, ...string)) {
				format, _ := f.describeCursor(r.status.Checkpoint)
				emit(1, format, f.opts.Bus, f.opts.Topic)
			},
		},
		{
			newDesc("feed_state", "1 for the state that the feed is in, 0 for the others.", "state"),
			prometheus.GaugeValue,
			func(_ *Feed, r *feedRecord, now time.Time, emit func(float64, ...string)) {
				current, _ := r.bridgeState(now)
				for _, state := range states {
					emit(oneIf(state == current), string(state))
				}
			},
		},
	}
}

func feedCounter(name, help string, value func(*feedRecord) uint64) metric {
	return metric{
		newDesc(name, help), prometheus.CounterValue,
		func(_ *Feed, r *feedRecord, _ time.Time, emit func(float64, ...string)) { emit(float64(value(r))) },
	}
}

func feedGauge(name, help string, value func(*Feed, *feedRecord, time.Time) (v float64, known bool)) metric {
	return metric{
		newDesc(name, help), prometheus.GaugeValue,
		func(f *Feed, r *feedRecord, now time.Time, emit func(float64, ...string)) {
			if v, known := value(f, r, now); known {
				emit(v)
			}
		},
	}
}

func unixSeconds(t time.Time) (seconds float64, known bool) {
	return float64(t.UnixMilli()) / 1000, !t.IsZero()
}
