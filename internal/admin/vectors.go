package admin

import "github.com/prometheus/client_golang/prometheus"

// namespace is the prefix of the names of all metrics.
const namespace = "feedbridge"

// vectors are the metrics that cannot be made from a record. Only those of served feeds have the label feed: a copy may
// have thousands of copied feeds, and a histogram has a dozen series.
type vectors struct {
	requests                      *prometheus.CounterVec // by method and code
	requestSeconds                prometheus.Histogram
	commitSeconds, commitEntities *prometheus.HistogramVec // by bus
	served                        *prometheus.CounterVec   // by feed and code
	servedSeconds                 *prometheus.HistogramVec // by feed
}

// newVectors returns vectors without observations.
func newVectors() *vectors {
	histogram := func(name, help string, buckets ...float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
	}
	v := &vectors{
		requests: prometheus.NewCounterVec(counter("http_requests_total",
			"HTTP requests to the upstreams of feeds, by the class of the response's status; error if there was no response."), []string{"method", "code"}),
		requestSeconds: prometheus.NewHistogram(histogram("http_request_duration_seconds",
			"How long the HTTP requests to the upstreams of feeds took, to the end of the response's header.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)),
		commitSeconds: prometheus.NewHistogramVec(histogram("commit_duration_seconds",
			"How long the bus took to make a commit durable.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30), []string{"bus"}),
		commitEntities: prometheus.NewHistogramVec(histogram("commit_entities",
			"How many entities a commit published.",
			0, 1, 10, 50, 100, 250, 500, 1000, 5000, 10000), []string{"bus"}),
		served: prometheus.NewCounterVec(counter("served_requests_total",
			"Requests for a served feed, by the status of the answer."), []string{"feed", "code"}),
		servedSeconds: prometheus.NewHistogramVec(histogram("served_request_duration_seconds",
			"How long the answers to requests for a served feed took, to their last byte.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30), []string{"feed"}),
	}
	// All are there from the start, so that rates are right from the first event on.
	for _, method := range []string{"GET", "HEAD", "other"} {
		for _, code := range []string{"2xx", "3xx", "4xx", "5xx", "error"} {
			v.requests.WithLabelValues(method, code)
		}
	}
	return v
}

func (v *vectors) register(r *prometheus.Registry) {
	r.MustRegister(v.requests, v.requestSeconds, v.commitSeconds, v.commitEntities, v.served, v.servedSeconds)
}

// forgetServed removes the series of a served feed.
func (v *vectors) forgetServed(name string) {
	v.servedSeconds.DeleteLabelValues(name)
	v.served.DeletePartialMatch(prometheus.Labels{"feed": name})
}
