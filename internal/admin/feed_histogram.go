package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// feedHistogram is a histogram of each feed, or of all feeds together. That of an idle feed takes a
// tenth of the memory of a [prometheus.Histogram]. It is safe for concurrent use.
type feedHistogram struct {
	desc    *prometheus.Desc
	buckets []float64 // the upper bounds
	perFeed bool

	mu     sync.Mutex
	byFeed map[string]*observations // by feed, or by "" if it is of all feeds together
}

func newFeedHistogram(p PerFeed, name, help string, buckets ...float64) *feedHistogram {
	desc, perFeed := newDesc(name, help).at(p)
	return &feedHistogram{desc: desc, buckets: buckets, perFeed: perFeed, byFeed: map[string]*observations{}}
}

// of returns the observations of a feed.
func (h *feedHistogram) of(feed string) *observations {
	if !h.perFeed {
		feed = ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.byFeed[feed]
	if o == nil {
		o = &observations{buckets: h.buckets, created: time.Now()}
		h.byFeed[feed] = o
	}
	return o
}

// forget removes the series of a feed. A sum over all feeds keeps what it has added.
func (h *feedHistogram) forget(feed string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.perFeed {
		delete(h.byFeed, feed)
	}
}

// Describe implements [prometheus.Collector].
func (h *feedHistogram) Describe(descs chan<- *prometheus.Desc) { descs <- h.desc }

// Collect implements [prometheus.Collector].
func (h *feedHistogram) Collect(metrics chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for feed, o := range h.byFeed {
		count, sum, cumulative := o.cumulate()
		metrics <- prometheus.MustNewConstHistogramWithCreatedTimestamp(h.desc, count, sum, cumulative, o.created, withFeed(h.perFeed, feed, nil)...)
	}
}

// observations are those of one series of a histogram. They are safe for concurrent use.
type observations struct {
	buckets []float64
	created time.Time

	mu     sync.Mutex
	counts []uint64 // of each bucket, and of values above the last; nil before the first observation
	sum    float64
}

// Observe adds a value.
func (o *observations) Observe(value float64) {
	i, _ := slices.BinarySearch(o.buckets, value)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = make([]uint64, len(o.buckets)+1)
	}
	o.counts[i]++
	o.sum += value
}

// cumulate returns the number of observations, their sum, and for each bucket the number of those
// up to its bound.
func (o *observations) cumulate() (count uint64, sum float64, cumulative map[float64]uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cumulative = make(map[float64]uint64, len(o.buckets))
	for i, bound := range o.buckets {
		if o.counts != nil {
			count += o.counts[i]
		}
		cumulative[bound] = count
	}
	if o.counts != nil {
		count += o.counts[len(o.buckets)]
	}
	return count, o.sum, cumulative
}
