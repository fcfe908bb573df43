package admin_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// ours are the lines of /metrics that are about feedbridge.
func ours(t *testing.T, s *admin.Server) string {
	t.Helper()
	_, body := get(t, s, "/metrics")
	var ours strings.Builder
	for line := range strings.Lines(body) {
		if strings.Contains(line, "feedbridge_") {
			ours.WriteString(line)
		}
	}
	return regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(ours.String(), `goversion="go1"`)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	for file, do := range map[string]func(*admin.Feed){
		"testdata/fresh.metrics": func(*admin.Feed) {},
		"testdata/busy.metrics":  busy,
	} {
		parallel.RunVirtual(t, file, func(t *testing.T) {
			s := newServer()
			do(addOrders(s))
			golden(t, file, ours(t, s))
		})
	}
}

func TestMetricsSayWhichBusAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(
			admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }},
			admin.Bus{Name: "lake", Kind: "kafka", Check: func(context.Context) error { return errors.New("no broker answers") }},
		)
		counts(t, s, "feedbridge_bus_up", `feedbridge_bus_up{bus="main",kind="nats"} 1
feedbridge_bus_up{bus="lake",kind="kafka"} 0
`)
	})
}

func TestMetricsAreNamedAsIsUsual(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		busy(addOrders(s))
		problems, err := testutil.GatherAndLint(s.Registry())
		must.Succeed(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

func counts(t *testing.T, s *admin.Server, metric, want string) {
	t.Helper()
	var header strings.Builder
	for line := range strings.Lines(ours(t, s)) {
		if strings.HasPrefix(line, "# HELP "+metric+" ") || strings.HasPrefix(line, "# TYPE "+metric+" ") {
			header.WriteString(line)
		}
	}
	must.Succeed(t, testutil.GatherAndCompare(s.Registry(), strings.NewReader(header.String()+want), metric))
}

func TestErrorsOfTheBusAreToldFromThoseOfTheFeed(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := addOrders(s)
	cp := at(3, own, 0)
	lost := fmt.Errorf("publish 3 entities: %w", checkpoint.ErrConflict)
	down := errors.New("no responders")

	f.Polled(feed.Batch{}, errDown, 0)
	enter(f, bridge.Retrying, cp, time.Second, errDown)
	f.Polled(batch("a", 1, false), nil, 0)
	enter(f, bridge.Retrying, cp, time.Second, down)
	enter(f, bridge.Retrying, cp, time.Second, down)
	// Reading ahead has failed already when the commit does.
	f.Polled(feed.Batch{}, errDown, 0)
	enter(f, bridge.Retrying, cp, time.Second, down)
	enter(f, bridge.Halted, cp, time.Second, feed.Permanent(errors.New("the stream is full")))
	// The bridge reports Standby repeatedly while it lasts.
	enter(f, bridge.Standby, cp, time.Second, lost)
	enter(f, bridge.Standby, cp, time.Second, lost)
	enter(f, bridge.Reading, cp, 0, nil)
	enter(f, bridge.Standby, cp, time.Second, lost)

	counts(t, s, "feedbridge_commit_errors_total", `
feedbridge_commit_errors_total{class="conflict",feed="orders"} 2
feedbridge_commit_errors_total{class="permanent",feed="orders"} 1
feedbridge_commit_errors_total{class="transient",feed="orders"} 3
`)
	counts(t, s, "feedbridge_polls_total", `
feedbridge_polls_total{feed="orders",outcome="error"} 2
feedbridge_polls_total{feed="orders",outcome="moved"} 1
feedbridge_polls_total{feed="orders",outcome="permanent_error"} 0
feedbridge_polls_total{feed="orders",outcome="unchanged"} 0
`)
}

// A batch that was read, dropped with its session and read again has been
// published once.
func TestEntitiesThatAreReadTwiceCountOnce(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := addOrders(s)
	b := batch("a", 2, false)
	b.Duplicates = 1
	b.Violations = []feed.Violation{{Kind: "repeated_content_id"}}
	for range 3 {
		enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
		f.Polled(b, nil, 0)
		enter(f, bridge.Retrying, checkpoint.Checkpoint{}, time.Second, errors.New("no responders"))
	}
	f.Processed(b, 0)
	for metric, want := range map[string]string{"entities_published_total": "2", "bytes_published_total": "6", "duplicates_total": "1", "topic_entities": "2"} {
		counts(t, s, "feedbridge_"+metric, fmt.Sprintf("\nfeedbridge_%s{feed=%q} %s\n", metric, "orders", want))
	}
	counts(t, s, "feedbridge_violations_total", "\nfeedbridge_violations_total{feed=\"orders\",kind=\"repeated_content_id\"} 1\n")
}

func TestAViolationThatHaltsCountsOncePerHalt(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := addOrders(s)
	halted := func() {
		// The evidence may differ from attempt to attempt.
		for i := range 5 {
			err := feed.Permanent(&feed.Violation{Kind: "missing_next_link", Page: "https://shop.example.com/1", Detail: fmt.Sprint(i)})
			f.Polled(feed.Batch{}, err, 0)
			enter(f, bridge.Halted, checkpoint.Checkpoint{}, time.Second, err)
		}
	}
	halted()
	f.Polled(batch("a", 1, false), nil, 0) // mended
	halted()
	counts(t, s, "feedbridge_violations_total", "\nfeedbridge_violations_total{feed=\"orders\",kind=\"missing_next_link\"} 2\n")
	counts(t, s, "feedbridge_polls_total", `
feedbridge_polls_total{feed="orders",outcome="error"} 0
feedbridge_polls_total{feed="orders",outcome="moved"} 1
feedbridge_polls_total{feed="orders",outcome="permanent_error"} 10
feedbridge_polls_total{feed="orders",outcome="unchanged"} 0
`)
}

// Labels are bounded, whatever upstream does.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := addOrders(s)
	before, err := testutil.GatherAndCount(s.Registry(), "feedbridge_http_requests_total")
	must.Succeed(t, err)
	for i := range 1000 {
		f.Processed(feed.Batch{Violations: []feed.Violation{{Kind: fmt.Sprint("kind_", i)}}}, 0)
		f.Exchanged(fmt.Sprint("METHOD", i), i, nil, 0)
		f.Exchanged("GET", i, errors.New("cut off"), 0)
	}
	if n, err := testutil.GatherAndCount(s.Registry(), "feedbridge_violations_total"); err != nil || n != 65 {
		t.Errorf("%d kinds of violation, %v; want 64 and other", n, err)
	}
	if n, err := testutil.GatherAndCount(s.Registry(), "feedbridge_http_requests_total"); err != nil || n != before {
		t.Errorf("%d series of requests, %v; want %d as before", n, err, before)
	}
	row := row(t, s)["violations"].(map[string]any)
	if got := row["other"].(map[string]any)["count"]; got != 936.0 {
		t.Errorf("%v violations are of other kinds, want 936", got)
	}
}

func TestRequestsAreCountedByClass(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := addOrders(s)
	f.Exchanged("GET", 200, nil, 0)
	f.Exchanged("GET", 206, nil, 0)
	f.Exchanged("HEAD", 404, nil, 0)
	f.Exchanged("GET", 0, errors.New("connection refused"), 0)
	f.Exchanged("POST", 503, nil, 0)
	want := map[[2]string]int{{"GET", "2xx"}: 2, {"HEAD", "4xx"}: 1, {"GET", "error"}: 1, {"other", "5xx"}: 1}
	got := map[[2]string]int{}
	for m := range maps.Keys(want) {
		line := fmt.Sprintf("feedbridge_http_requests_total{code=%q,method=%q} %d\n", m[1], m[0], want[m])
		if strings.Contains(ours(t, s), line) {
			got[m] = want[m]
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestMetricsOfMissingDocuments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		cp := at(9, own, 0)
		cp.Cursor = feed.Cursor("2 gaps, 30 deletes")
		enter(f, bridge.Idle, cp, time.Second, nil)
		got := ours(t, s)
		for _, line := range []string{`feedbridge_feed_gaps{feed="orders"} 2`, `feedbridge_feed_deletes_held{feed="orders"} 30`} {
			if !strings.Contains(got, "\n"+line+"\n") {
				t.Errorf("there is no %s", line)
			}
		}
	})
}

func TestPanicsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		enter(f, bridge.Halted, checkpoint.Checkpoint{}, time.Second, feed.Permanent(errors.New("no self link")))
		enter(f, bridge.Halted, checkpoint.Checkpoint{}, time.Second, feed.Permanent(&bridge.PanicError{Value: "index out of range"}))
		counts(t, s, "feedbridge_panics_total", `feedbridge_panics_total{feed="orders"} 1
`)
		if sentence := fmt.Sprint(row(t, s)); !strings.Contains(sentence, "panic: index out of range; this is a bug of feedbridge") {
			t.Errorf("the status is %s", sentence)
		}
	})
}
