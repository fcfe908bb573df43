package main

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/verify"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// records is a topic of messages at positions from 5 on, and what ends it.
type records struct {
	headers []feed.Header
	err     error
}

func (r records) Span(context.Context) (feed.Span, error) {
	return feed.Span{First: 5, End: 5 + uint64(len(r.headers))}, nil
}

func (r records) Read(_ context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		for at := from; at < to; at++ {
			if !yield(feed.Record{Position: at, Header: r.headers[at-5]}, nil) {
				return
			}
		}
		if r.err != nil {
			yield(feed.Record{}, r.err)
		}
	}
}

func TestTopicEntities(t *testing.T) {
	t.Parallel()
	gone := errors.New("the bus is gone")
	for _, tt := range []struct {
		name  string
		topic records
		ids   []string
		words string
	}{
		{"a message that feedbridge did not write", records{headers: []feed.Header{{{Name: "Content-ID", Value: "a"}}, nil, {{Name: "Content-ID", Value: "c"}}}}, []string{"a", "position 6", "c"}, ""},
		{"one that cannot be an entity", records{headers: []feed.Header{nil, {{Name: "Operation-Type", Value: "STIR"}}, nil}}, []string{"position 5"}, "position 6"},
		{"a bus that is away", records{headers: []feed.Header{nil}, err: gone}, []string{"position 5"}, "the bus is gone"},
	} {
		parallel.Run(t, tt.name, func(t *testing.T) {
			entities, err := (&verification{}).topicEntities(t.Context(), tt.topic, new(int))
			must.Succeed(t, err)
			var ids []string
			text := ""
			for e, err := range entities {
				if err != nil {
					text = err.Error()
					continue
				}
				ids = append(ids, e.ID)
			}
			must.Match(t, "", tt.ids, ids)
			if !strings.Contains(text, tt.words) || (text == "") != (tt.words == "") {
				t.Errorf("error %q, want %q", text, tt.words)
			}
		})
	}
}

func TestRemarks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, first, second, want string }{
		{"the same", "a b c", "a b c", ""},
		{"more differences than are wanted", "a b c d e f", "a b", "The second is shorter by at least 3, and otherwise the same."},
		{"more of them in the middle", "a b c d e f", "a e f", ""},
		{"the second ends earlier", "a b c d", "a b", "The second is shorter by 2, and otherwise the same."},
		{"the first does", "a b", "a b c", "The first is shorter by 1, and otherwise the same."},
		{"the second begins later", "a b c", "b c", ""},
		{"the first does, and ends later", "b c d", "a b c", ""},
		{"the second has others, too", "a b", "x a b", ""},
		{"one is in another place", "a b c d", "b c a", ""},
	} {
		parallel.Run(t, tt.name, func(t *testing.T) {
			var r comparison
			var err error
			r.Summary, err = verify.Compare(named(tt.first), named(tt.second), 0, func(d verify.Difference) bool {
				r.Differences = append(r.Differences, d)
				return len(r.Differences) < 3
			})
			must.Succeed(t, err)
			r.addRemarks(nil, 0)
			if got := strings.Join(r.Remarks, " "); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// named are entities with those IDs.
func named(ids string) iter.Seq2[feed.Entity, error] {
	return func(yield func(feed.Entity, error) bool) {
		for id := range strings.FieldsSeq(ids) {
			if !yield(feed.Entity{ID: id}, nil) {
				return
			}
		}
	}
}

// A URL is no feed of the configuration, so it needs no bus in it to go to.
func TestVerifyAURLWhereThereAreTwoBuses(t *testing.T) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstream.Close)
	buses := []string{"FEEDBRIDGE_BUSES_MAIN_KAFKA_BROKERS=" + twoTopics(t), "FEEDBRIDGE_BUSES_LAKE_NATS_URL=nats://127.0.0.1:1"}
	serve := []string{"FEEDBRIDGE_SERVE_FEEDS_ORDERS_FROM_TOPIC=one", "FEEDBRIDGE_SERVE_FEEDS_ORDERS_FROM_BUS=main"}
	for _, tt := range []struct{ env, with []string }{
		{buses, []string{"--topic", "one", "--bus", "main"}},
		{append(buses, serve...), []string{"--served", "orders"}},
	} {
		var out bytes.Buffer
		var errs logbuffer.Buffer
		code := runProgram(append([]string{"verify", "--feed", upstream.URL + "/latest"}, tt.with...), tt.env, nil, &out, &errs)
		if code != 1 || !strings.Contains(errs.String(), "404 Not Found") {
			t.Errorf("%v: exit code %d, and it is not the feed that could not be read:\n%s", tt.with, code, errs.String())
		}
	}
}

// twoTopics returns the address of a cluster with topics of one and of two
// partitions.
func twoTopics(t *testing.T) string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "one"), kfake.SeedTopics(2, "two"))
	must.Succeed(t, err)
	t.Cleanup(cluster.Close)
	return cluster.ListenAddrs()[0]
}

func TestTopicsOfSeveralPartitionsAreNotCompared(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Buses: map[string]config.Bus{"main": {Kafka: &kafka.Config{Brokers: []string{twoTopics(t)}}}}}
	bus, err := daemon.OpenBus(t.Context(), cfg, "main", slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(bus.Close)
	if _, err := (&verification{topic: "one"}).orderedLog(t.Context(), bus, true, nil); err != nil {
		t.Error(err)
	}
	if _, err := (&verification{topic: "two"}).orderedLog(t.Context(), bus, true, nil); err == nil || !strings.Contains(err.Error(), "several partitions") {
		t.Errorf("error %v", err)
	}
}

// growing is a topic that gets a message when it is looked at.
type growing struct{ records }

func (g *growing) Span(ctx context.Context) (feed.Span, error) {
	if len(g.headers) < 8 {
		g.headers = append(g.headers, feed.Header{})
	}
	return g.records.Span(ctx)
}

// With --wait the messages that a topic gets are read too, once each, until the feed has ended, or the topic
// has got nothing for that time.
func TestGrowingTopicIsAwaited(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wait   time.Duration
		enough int // the entities of the feed
		want   string
	}{
		"no wait":            {0, 100, "5 "},
		"the feed ends":      {time.Minute, 3, "5 6 7 "},
		"the feed has ended": {time.Minute, 1, "5 "},
		"the topic stops":    {250 * time.Millisecond, 100, "5 6 7 8 9 10 11 12 "},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			v := &verification{wait: tt.wait}
			entities, err := v.topicEntities(t.Context(), &growing{}, new(int))
			must.Succeed(t, err)
			got, n := "", 0
			for e, err := range entities {
				must.Succeed(t, err)
				got += strings.TrimPrefix(e.ID, "position ") + " "
				n++
				v.feedEnded = n == tt.enough
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The status line has the rate, and the time left by the positions of the topic.
func TestVerifyProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := verifyProgress{topic: &verification{}, began: time.Now()}
		want := func(line string) {
			t.Helper()
			if got := p.statusText(); got != line {
				t.Errorf("got  %q\nwant %q", got, line)
			}
		}
		p.first.n.Store(3)
		want("3 and 0 entities  0.0/s  0 differences") // two feeds
		p.topic.total.Store(10_000)
		p.topic.read.Store(100)
		p.second.n.Store(50)
		p.differences.Store(1)
		want("3 and 50 entities  1%  50/s  1m39s left  1 difference")
		p.topic.read.Store(10_000)
		want("3 and 50 entities  100%  50/s  1 difference")
	})
}
