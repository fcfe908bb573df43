package admin

import "github.com/prometheus/client_golang/prometheus"

// histograms are the metrics that cannot be made from a record.
type histograms struct {
	requestSeconds, commitSeconds, commitEntities *feedHistogram
	servedSeconds                                 *feedHistogram
	served                                        feedCounterVec
}

// newHistograms returns histograms without observations.
func newHistograms(perFeed PerFeed) histograms {
	const served = "served_requests_total"
	servedPerFeed := perFeed.keepsFeed(served)
	return histograms{
		requestSeconds: newFeedHistogram(perFeed, "http_request_duration_seconds",
			"How long the HTTP requests to the feed's upstream took, to the end of the response's header.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		commitSeconds: newFeedHistogram(perFeed, "commit_duration_seconds",
			"How long the bus took to make a commit durable.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30),
		commitEntities: newFeedHistogram(perFeed, "commit_entities",
			"How many entities a commit published.",
			0, 1, 10, 50, 100, 250, 500, 1000, 5000, 10000),
		servedSeconds: newFeedHistogram(perFeed, "served_request_duration_seconds",
			"How long the answers to requests for a served feed took, to their last byte.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30),
		served: feedCounterVec{prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: served, Help: "Requests for a served feed, by the status of the answer.",
		}, withFeed(servedPerFeed, "feed", []string{"code"})), servedPerFeed},
	}
}

// forgetFeed removes the series of a feed. Sums over all feeds keep what it has added.
func (h histograms) forgetFeed(name string) {
	for _, h := range []*feedHistogram{h.requestSeconds, h.commitSeconds, h.commitEntities} {
		h.forget(name)
	}
}

// forgetServed removes the series of a served feed. Sums over all feeds keep what it has added.
func (h histograms) forgetServed(name string) {
	h.servedSeconds.forget(name)
	h.served.vec.DeletePartialMatch(prometheus.Labels{"feed": name})
}

// feedCounterVec is a counter of each feed, or of all feeds together.
type feedCounterVec struct {
	vec     *prometheus.CounterVec
	perFeed bool
}

func (c feedCounterVec) of(feed string, others ...string) prometheus.Counter {
	return c.vec.WithLabelValues(withFeed(c.perFeed, feed, others)...)
}
