package admin_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// scrapeFeeds returns the lines of /metrics about feedbridge of a server whose n feeds have
// been copied and are served, without the comments.
func scrapeFeeds(t *testing.T, p admin.PerFeed, n int) []string {
	t.Helper()
	s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler), PerFeed: p})
	for i := range n {
		name := fmt.Sprintf("feed-%04d", i)
		f := s.AddFeed(admin.FeedOptions{
			Name: name, Format: "atom", Bus: "main", Topic: name, Every: time.Second, Freshness: time.Hour,
			Describe: func(checkpoint.Checkpoint) admin.Description {
				return admin.Description{Lacking: &admin.Lacking{Gaps: 1, Deletes: 2}}
			},
		})
		b := batch("a", 3, false)
		b.Violations = []feed.Violation{{Kind: "weak_identity"}}
		enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
		f.Polled(b, nil, time.Millisecond)
		f.Processed(b, time.Millisecond)
		f.Exchanged("GET", 200, nil, time.Millisecond)
		s.AddServed(admin.ServedOptions{Name: name, Look: func(context.Context) (admin.ServedTopic, error) {
			return admin.ServedTopic{}, nil
		}}).Answered(200, time.Millisecond)
	}
	var lines []string
	for line := range strings.Lines(ours(t, s)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A scrape grows with the number of feeds by what the level allows for each.
func TestSeriesPerFeed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		level         admin.PerFeed
		copied, bytes int // of each feed, at most; histograms and served feeds included
		served        int
	}{
		{admin.Full, 95, 8000, 20},
		{admin.Core, 23, 1600, 2},
		{admin.None, 0, 0, 0},
	} {
		parallel.Run(t, string(c.level), func(t *testing.T) {
			const feeds = 1000
			one, all := scrapeFeeds(t, c.level, 1), scrapeFeeds(t, c.level, feeds)
			ofServed := func(lines []string) (n int) {
				for _, line := range lines {
					if strings.HasPrefix(line, "feedbridge_served") {
						n++
					}
				}
				return n
			}
			served := (ofServed(all) - ofServed(one)) / (feeds - 1)
			copied := (len(all)-len(one))/(feeds-1) - served
			size := (len(strings.Join(all, "")) - len(strings.Join(one, ""))) / (feeds - 1)
			t.Logf("%s: %d series of each copied feed, %d of each served one, %d bytes of both", c.level, copied, served, size)
			if copied > c.copied || served > c.served || size > c.bytes {
				t.Errorf("each feed has %d series, %d more if it is served, and %d bytes; want at most %d, %d and %d", copied, served, size, c.copied, c.served, c.bytes)
			}
			if c.level != admin.None && (copied < 10 || served < 2) {
				t.Errorf("each feed has only %d series, and %d more if it is served", copied, served)
			}
			for _, line := range all {
				if c.level == admin.None && strings.Contains(line, "feed=") {
					t.Fatalf("a series has the label feed: %s", line)
				}
			}
		})
	}
}

// Counters and histograms that lose the label feed are the sums over all feeds.
func TestMetricsWithoutTheFeedAreSums(t *testing.T) {
	t.Parallel()
	for level, want := range map[admin.PerFeed][]string{
		admin.Full: {
			`feedbridge_entities_published_total{feed="feed-0001"} 3`,
			`feedbridge_commit_entities_sum{feed="feed-0001"} 3`,
			`feedbridge_feeds{state="reading"} 4`,
		},
		admin.Core: {
			`feedbridge_entities_published_total{feed="feed-0001"} 3`,
			`feedbridge_commits_total 4`,
			`feedbridge_http_requests_total{code="2xx",method="GET"} 4`,
			`feedbridge_commit_entities_sum 12`,
			`feedbridge_served_request_duration_seconds_count 4`,
			`feedbridge_feeds{state="reading"} 4`,
		},
		admin.None: {
			`feedbridge_entities_published_total 12`,
			`feedbridge_violations_total{kind="weak_identity"} 4`,
			`feedbridge_commit_errors_total{class="conflict"} 0`,
			`feedbridge_served_requests_total{code="200"} 4`,
			`feedbridge_feeds{state="halted"} 0`,
			`feedbridge_feeds{state="reading"} 4`,
			`feedbridge_stale_feeds 0`,
		},
	} {
		lines := scrapeFeeds(t, level, 4)
		for _, line := range want {
			if !slices.Contains(lines, line+"\n") {
				t.Errorf("%s: there is no series %s", level, line)
			}
		}
	}
}

// The alerts about feeds need the label feed on the metrics that they ask for.
func TestAlertsWorkWithCoreMetrics(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../../deploy/alerts.yaml")
	must.Succeed(t, err)
	full, core := strings.Join(scrapeFeeds(t, admin.Full, 1), ""), strings.Join(scrapeFeeds(t, admin.Core, 1), "")
	names := regexp.MustCompile(`\bfeedbridge_[a-z_]+`).FindAllString(string(alerts), -1)
	if len(names) < 10 {
		t.Fatalf("the alerts ask for only %v", names)
	}
	for _, name := range names {
		series := regexp.MustCompile(`(?m)^` + name + `\{[^}]*feed="feed-0000"`)
		if series.MatchString(full) && !series.MatchString(core) {
			t.Errorf("an alert asks for %s, which has no label feed at the level core: add it to coreMetrics", name)
		}
	}
}

// The core is documented, and has only metrics that exist.
func TestCoreMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics-and-alerts.md")
	must.Succeed(t, err)
	_, section, _ := strings.Cut(string(page), "\n`core` has ")
	section, _, _ = strings.Cut(section, "\n\n")
	var want []string
	for _, name := range admin.CoreMetrics {
		want = append(want, "feedbridge_"+name)
	}
	if got := regexp.MustCompile(`feedbridge_\w+`).FindAllString(section, -1); !slices.Equal(got, want) {
		t.Errorf("docs/metrics-and-alerts.md has the core metrics\n%v, want\n%v", got, want)
	}
	lines := strings.Join(scrapeFeeds(t, admin.Full, 1), "")
	for _, name := range admin.CoreMetrics {
		if !strings.Contains(lines, "\nfeedbridge_"+name+"{") {
			t.Errorf("coreMetrics has %s, which does not exist", name)
		}
	}
}
