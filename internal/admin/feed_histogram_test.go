package admin

import (
	"bytes"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// A scrape does not show that the histograms are not those of the library.
func TestHistogramsAreScrapedLikeThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	buckets := []float64{.001, .5, 1, 5}
	own := newFeedHistogram(Full, "commit_seconds", "Help.", buckets...)
	library := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "commit_seconds", Help: "Help.", Buckets: buckets}, []string{"feed"})
	for _, feed := range []string{"idle", "busy", "removed"} {
		own.of(feed)
		library.WithLabelValues(feed)
	}
	for _, value := range []float64{0, .001, .0011, .5, .7, 1, 4, 5, 5.1, 1e9, -1} {
		own.of("busy").Observe(value)
		library.WithLabelValues("busy").Observe(value)
	}
	own.forget("removed")
	library.DeleteLabelValues("removed")
	scrape := func(c prometheus.Collector) string {
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		families, err := registry.Gather()
		must.Succeed(t, err)
		var text bytes.Buffer
		for _, family := range families {
			if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
				t.Fatal(err)
			}
			for _, m := range family.GetMetric() {
				if m.GetHistogram().GetCreatedTimestamp() == nil {
					t.Error("a series has no time of its creation")
				}
			}
		}
		return text.String()
	}
	if got, want := scrape(own), scrape(library); got != want {
		t.Errorf("scraped:\n%s\nwant:\n%s", got, want)
	}
}
