package admin

import (
	"context"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/feedbridge/feedbridge/bridge"
)

const namespace = "feedbridge"

// register fills the registry. There is no default one: two Servers in one
// process do not meet.
func register(registry *prometheus.Registry, s *Server, version string) histograms {
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		}, []string{"feed"})
	}
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
		served: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "served_requests_total", Help: "Requests for a served feed, by the status of the answer.",
		}, []string{"feed", "code"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace:   namespace,
		Name:        "build_info",
		Help:        "Always 1; the labels say which version of feedbridge runs, and which version of Go built it.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	registry.MustRegister(h.requestSeconds, h.commitSeconds, h.commitEntities, h.servedSeconds, h.served, build, &collector{s, metrics()},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return h
}

// collector makes metrics from the feeds' records when they are asked for.
type collector struct {
	server  *Server
	metrics []metric
}

// metric is made from a record by calling emit for each series, with the
// values of the labels that it has besides the feed. An unknown value is not
// emitted.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	each func(f *Feed, r *record, now time.Time, emit func(v float64, labels ...string))
}

// busUp has other labels than the metrics of feeds.
var busUp = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "bus_up"),
	"1 if the bus answers and takes the credentials, 0 if not; asked for each scrape, for 2 s at most.", []string{"bus", "kind"}, nil)

var servedUp = describe("served_up", "1 if the topic of a served feed can be read, 0 if not; asked for each scrape, for 2 s at most.")

func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- busUp
	descs <- servedUp
	for _, m := range c.metrics {
		descs <- m.desc
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, b := range checkBuses(context.Background(), c.server.buses, c.server.opts.Redact) {
		out <- prometheus.MustNewConstMetric(busUp, prometheus.GaugeValue, oneIf(b.OK), b.Bus, b.Kind)
	}
	for _, f := range inspectServed(context.Background(), c.server.allServed()) {
		out <- prometheus.MustNewConstMetric(servedUp, prometheus.GaugeValue, oneIf(f.OK), f.Feed)
	}
	now := time.Now()
	for _, f := range c.server.allFeeds() {
		r := f.snapshot()
		for _, m := range c.metrics {
			m.each(f, &r, now, func(v float64, labels ...string) {
				out <- prometheus.MustNewConstMetric(m.desc, m.kind, v, append([]string{f.opts.Name}, labels...)...)
			})
		}
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var states = []bridge.State{
	bridge.Starting, bridge.Reading, bridge.Idle, bridge.Standby, bridge.Retrying, bridge.Halted, bridge.Stopped,
}

func metrics() []metric {
	return []metric{
		counter("entities_published_total", "Entities that this process has published.",
			func(r *record) uint64 { return r.published }),
		counter("bytes_published_total", "Bytes of the entities that this process has published: bodies and headers.",
			func(r *record) uint64 { return r.publishedBytes }),
		counter("duplicates_total", "Entities that were left out because the topic holds their ID already.",
			func(r *record) uint64 { return r.duplicates }),
		counter("oversized_total", "Entities that were left out because the bus does not take messages so large.",
			func(r *record) uint64 { return r.oversized }),
		counter("panics_total", "Panics of the feed's source or sink, each of which halted the feed.",
			func(r *record) uint64 { return r.panics }),
		counter("commits_total", "Commits that this process has made.",
			func(r *record) uint64 { return r.commits }),
		{
			describe("polls_total", "Calls of the source: it moved on, found the feed unchanged, or failed. Only a person can cure a permanent_error.", "outcome"),
			prometheus.CounterValue,
			func(_ *Feed, r *record, _ time.Time, emit func(float64, ...string)) {
				for outcome, n := range r.polls {
					emit(float64(n), string(outcome))
				}
			},
		},
		{
			describe("violations_total", "Breaches of the feed's specification, by kind. One that halts the feed counts once, however often the feed is tried again.", "kind"),
			prometheus.CounterValue,
			func(_ *Feed, r *record, _ time.Time, emit func(float64, ...string)) {
				for kind, b := range r.violations {
					emit(float64(b.count), kind)
				}
			},
		},
		{
			describe("http_requests_total", "HTTP requests to the feed's upstream, by the class of the response's status; error if there was no response.", "method", "code"),
			prometheus.CounterValue,
			func(_ *Feed, r *record, _ time.Time, emit func(float64, ...string)) {
				for request, n := range r.requests {
					emit(float64(n), request.method, request.code)
				}
			},
		},
		{
			describe("commit_errors_total", "Commits, and looks at the checkpoint before them, that failed: another copy was first (conflict), it will likely work again by itself (transient), or only a person can cure it (permanent).", "class"),
			prometheus.CounterValue,
			func(_ *Feed, r *record, _ time.Time, emit func(float64, ...string)) {
				for class, n := range r.commitErrors {
					emit(float64(n), string(class))
				}
			},
		},
		gauge("lag_seconds", "How much older the last entity published is than the newest that upstream is known to have; 0 when all is published. Absent while it is not known, as when another copy publishes the feed.",
			func(_ *Feed, r *record, _ time.Time) (float64, bool) {
				lag, known := r.lag()
				return lag.Seconds(), known
			}),
		// Feeds do not report how many entities they still have, so there is no
		// other value. The series is for alerts and graphs that count entities.
		gauge("lag_entities", "0 when all is published; absent otherwise, for feeds do not tell how much is to come.",
			func(_ *Feed, r *record, _ time.Time) (float64, bool) {
				_, known := r.lag()
				return 0, known && r.caughtUp
			}),
		gauge("last_successful_poll_timestamp_seconds", "When a poll last worked, in Unix time. Absent before.",
			func(_ *Feed, r *record, _ time.Time) (float64, bool) { return unix(r.goodPoll) }),
		gauge("last_commit_timestamp_seconds", "When this process last made a commit, in Unix time. Absent before.",
			func(_ *Feed, r *record, _ time.Time) (float64, bool) { return unix(r.committedAt) }),
		gauge("checkpoint_age_seconds", "How long ago the newest checkpoint was made that this process knows of, by whichever copy. It grows while the feed has nothing new.",
			func(_ *Feed, r *record, now time.Time) (float64, bool) {
				at := r.status.Checkpoint.At
				return max(now.Sub(at), 0).Seconds(), !at.IsZero()
			}),
		gauge("topic_entities", "Entities that were ever published to the topic, by whichever copy, according to the newest checkpoint that this process knows of.",
			func(_ *Feed, r *record, _ time.Time) (float64, bool) {
				return float64(r.status.Checkpoint.Count), true
			}),
		gauge("feed_fresh", "1 if the feed was copied within its freshness limit, which is what /readyz asks for; 0 if not.",
			func(f *Feed, r *record, now time.Time) (float64, bool) {
				return oneIf(f.stale(r, now) == ""), true
			}),
		gauge("feed_gaps", "Documents of the feed that are missing, and with them what is older; they are asked for again. Absent while it is not known, and for feeds that have no such thing.",
			func(f *Feed, r *record, _ time.Time) (float64, bool) {
				gaps, _, known := f.lacks(r)
				return float64(gaps), known
			}),
		gauge("feed_deletes_held", "Deletes that are held back, for most of the feed has vanished at once. Absent like feedbridge_feed_gaps.",
			func(f *Feed, r *record, _ time.Time) (float64, bool) {
				_, deletes, known := f.lacks(r)
				return float64(deletes), known
			}),
		{
			describe("feed_info", "Always 1; the labels say the format of the feed, as far as it is known, and where it is copied to.", "format", "bus", "topic"),
			prometheus.GaugeValue,
			func(f *Feed, r *record, _ time.Time, emit func(float64, ...string)) {
				format, _ := f.describe(r.status.Checkpoint)
				emit(1, format, f.opts.Bus, f.opts.Topic)
			},
		},
		{
			describe("feed_state", "1 for the state that the feed is in, 0 for the others.", "state"),
			prometheus.GaugeValue,
			func(_ *Feed, r *record, now time.Time, emit func(float64, ...string)) {
				current, _ := r.state(now)
				for _, state := range states {
					emit(oneIf(state == current), string(state))
				}
			},
		},
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, append([]string{"feed"}, labels...), nil)
}

func counter(name, help string, value func(*record) uint64) metric {
	return metric{
		describe(name, help), prometheus.CounterValue,
		func(_ *Feed, r *record, _ time.Time, emit func(float64, ...string)) { emit(float64(value(r))) },
	}
}

func gauge(name, help string, value func(*Feed, *record, time.Time) (v float64, known bool)) metric {
	return metric{
		describe(name, help), prometheus.GaugeValue,
		func(f *Feed, r *record, now time.Time, emit func(float64, ...string)) {
			if v, known := value(f, r, now); known {
				emit(v)
			}
		},
	}
}

func unix(t time.Time) (seconds float64, known bool) {
	return float64(t.UnixMilli()) / 1000, !t.IsZero()
}
