package admin_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must.Succeed(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must.Succeed(t, err)
	must.Match(t, file, string(want), got)
}

// busy is a feed to which a bit of everything has happened.
func busy(f *admin.Feed) {
	enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
	first := batch("page-1", 4, true)
	first.Newest = time.Date(1999, 1, 1, 0, 4, 30, 0, time.UTC)
	f.Exchanged("GET", 200, nil, 30*time.Millisecond)
	f.Polled(first, nil, 70*time.Millisecond)
	time.Sleep(time.Second)
	f.Processed(first, 2*time.Millisecond)

	second := batch("page-2", 2, false)
	second.Duplicates = 1
	second.Oversized = 1
	large := batch("", 1, false).Entities[0]
	large.Dead = &feed.DeadReason{Kind: feed.DeadTooLarge}
	second.Entities = append(second.Entities[:1:1], large, second.Entities[1])
	second.Bytes = feed.Batch{Entities: second.Entities}.Size()
	second.Violations = []feed.Violation{
		{Kind: "time_runs_back", Page: "https://shop.example.com/feed/1?a=1&b=2", Detail: "the entity is older than the one before it"},
		{Kind: "time_runs_back", Page: "https://shop.example.com/feed/2", Detail: strings.Repeat("é", 400)},
		{Kind: "empty_page", Page: "https://shop.example.com/feed/2", Detail: "no\nentities"},
	}
	f.Exchanged("GET", 200, nil, 30*time.Millisecond)
	f.Polled(second, nil, 50*time.Millisecond)
	time.Sleep(time.Second)
	f.Processed(second, 20*time.Millisecond)
	cp := checkpoint.Checkpoint{Feed: "orders", Source: "datareplication", Cursor: second.Cursor, Count: 6, At: time.Now().Add(-20 * time.Millisecond), Writer: own}
	enter(f, bridge.Idle, cp, 10*time.Second, nil)

	time.Sleep(10 * time.Second)
	f.Exchanged("HEAD", 503, nil, 10*time.Millisecond)
	f.Polled(feed.Batch{}, errDown, 10*time.Millisecond)
	enter(f, bridge.Retrying, cp, time.Second, errDown)
	time.Sleep(time.Second)
	enter(f, bridge.Reading, cp, 0, nil)
	nothing := feed.Batch{Cursor: cp.Cursor}
	f.Exchanged("HEAD", 304, nil, 10*time.Millisecond)
	f.Polled(nothing, nil, 10*time.Millisecond)
	f.Processed(nothing, 0)
	enter(f, bridge.Idle, cp, 10*time.Second, nil)
	time.Sleep(3 * time.Second)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(
			admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }},
			admin.Bus{Name: "lake", Kind: "kafka", Check: func(context.Context) error { return errors.New("no broker answers") }},
		)
		busy(addOrders(s))
		s.AddFeed(admin.FeedOptions{Name: "invoices", URL: "https://shop.example.com/invoices", Format: "auto", Bus: "main", Topic: "invoices", Every: time.Minute})
		addServed(s, "orders", admin.ServedTopic{
			Span: feed.Span{First: 3, End: 1300, Epoch: "dn1312s28mre"}, Newest: time.Now().Add(-12 * time.Second),
			Snapshot: "dn1312s28mre-1200-01234567", Created: time.Now().Add(-time.Hour), Unmatched: 2,
		}, nil)
		addServed(s, "news", admin.ServedTopic{}, errors.New("no NATS server answers"))
		code, body := get(t, s, "/status")
		if code != 200 {
			t.Errorf("status is %d", code)
		}
		golden(t, "testdata/status.json", body)
	})
}

// The lag is known when it can be, and never made up.
func TestLag(t *testing.T) {
	t.Parallel()
	const unknown = -1.0
	lost := checkpoint.ErrConflict
	first, last := batch("a", 3, true), batch("b", 1, false)
	first.Newest = time.Date(1999, 1, 1, 0, 12, 0, 0, time.UTC) // 10 minutes after its last entity
	last.Newest = first.Newest
	last.Entities[0].Modified = first.Newest
	after := func(b feed.Batch) checkpoint.Checkpoint {
		return checkpoint.Checkpoint{Feed: "orders", Source: "datareplication", Cursor: b.Cursor, Count: 3, Writer: own}
	}
	for _, c := range []struct {
		situation string
		do        func(f *admin.Feed)
		want      float64
		all       bool // is published
	}{
		{"nothing is known", func(*admin.Feed) {}, unknown, false},
		{"read, not published", func(f *admin.Feed) { f.Polled(first, nil, 0) }, unknown, false},
		{"published in part", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Processed(first, 0)
		}, 600, false},
		{"published in part, and the bus is down", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Processed(first, 0)
			enter(f, bridge.Retrying, after(first), time.Second, errors.New("no responders"))
		}, 600, false},
		{"published in whole", func(f *admin.Feed) {
			f.Polled(last, nil, 0)
			f.Processed(last, 0)
			enter(f, bridge.Idle, after(last), time.Second, nil)
		}, 0, true},
		{"caught up, and more is read", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Processed(first, 0)
			f.Polled(last, nil, 0)
			f.Processed(last, 0)
			enter(f, bridge.Idle, after(last), time.Second, nil)
			late := batch("c", 1, false)
			late.Newest = last.Newest.Add(time.Minute)
			f.Polled(late, nil, 0)
		}, 60, false},
		{"caught up, and upstream is down", func(f *admin.Feed) {
			f.Processed(last, 0)
			f.Polled(feed.Batch{}, errDown, 0)
			enter(f, bridge.Reading, after(last), 0, nil)
		}, unknown, false},
		{"caught up, and the bus is down", func(f *admin.Feed) {
			f.Processed(last, 0)
			enter(f, bridge.Retrying, after(last), time.Second, errors.New("no responders"))
		}, unknown, false},
		{"another copy publishes", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Processed(first, 0)
			enter(f, bridge.Standby, after(first), time.Second, lost)
		}, unknown, false},
		{"a person has moved the checkpoint", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Processed(first, 0)
			f.Polled(last, nil, 0)
			f.Processed(last, 0)
			enter(f, bridge.Reading, at(1, "a person", 0), 0, nil)
		}, unknown, false},
		{"upstream's clock runs back", func(f *admin.Feed) {
			b := batch("a", 1, true)
			b.Newest = b.Entities[0].Modified.Add(-time.Hour)
			f.Polled(b, nil, 0)
			f.Processed(b, 0)
		}, 0, false},
	} {
		parallel.Run(t, c.situation, func(t *testing.T) {
			s := newServer()
			f := addOrders(s)
			enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
			c.do(f)
			lag := row(t, s)["lag"].(map[string]any)
			got := unknown
			if v, ok := lag["seconds"].(float64); ok {
				got = v
			}
			if got != c.want {
				t.Errorf("lag is %v, want %v", got, c.want)
			}
			if all := lag["entities"] == 0.0; all != c.all {
				t.Errorf("entities is %v", lag["entities"])
			}
			if shown := strings.Contains(ours(t, s), fmt.Sprintf("\nfeedbridge_lag_seconds{feed=%q} %v\n", "orders", c.want)); shown != (c.want != unknown) {
				t.Errorf("the metric lag_seconds is there: %v", shown)
			}
			if shown := strings.Contains(ours(t, s), "\nfeedbridge_lag_entities{feed=\"orders\"} 0\n"); shown != c.all {
				t.Errorf("the metric lag_entities is there: %v", shown)
			}
		})
	}
}

// A paused feed has no next attempt, and no lag that grows.
func TestStatusOfAPausedFeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		enter(f, bridge.Reading, at(3, own, 0), 0, nil)
		older := batch("a", 1, true)
		older.Entities[0].Modified = time.Now().Add(-time.Hour)
		older.Newest = time.Now()
		f.Polled(older, nil, 0)
		f.Processed(older, 0)
		lag := func() any { return row(t, s)["lag"].(map[string]any)["seconds"] }
		if lag() == nil {
			t.Fatal("there is no lag before the pause, so nothing is tested")
		}
		cp := at(4, own, 0)
		cp.Cursor = older.Cursor
		cp.Paused = time.Now()
		enter(f, bridge.Paused, cp, 0, nil)
		got := row(t, s)
		if got["state"] != "paused" || got["next_attempt"] != nil || lag() != nil {
			t.Errorf("got %v", got)
		}
		if want := time.Now().UTC().Format(time.RFC3339); got["paused"] != want {
			t.Errorf("paused since %v, want %v", got["paused"], want)
		}
		cp.Paused = time.Time{}
		enter(f, bridge.Reading, cp, 0, nil)
		if got := row(t, s)["paused"]; got != nil {
			t.Errorf("after the pause: %v", got)
		}
	})
}

// Field next_attempt is the end of the wait. It is null during an attempt.
func TestNextAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		for _, state := range []bridge.State{bridge.Idle, bridge.Standby, bridge.Retrying, bridge.Halted} {
			enter(f, state, at(3, own, 0), 10*time.Second, errDown)
			want := time.Now().Add(10 * time.Second).UTC().Format(time.RFC3339)
			if got := row(t, s)["next_attempt"]; got != want {
				t.Errorf("%s: next attempt is %v, want %v", state, got, want)
			}
			time.Sleep(10 * time.Second)
			if got := row(t, s)["next_attempt"]; got != nil {
				t.Errorf("%s: next attempt is %v while it is made", state, got)
			}
		}
	})
}

func TestOutcomesOfPolls(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := addOrders(s)
	cp := func(cursor string) checkpoint.Checkpoint { return checkpoint.Checkpoint{Cursor: feed.Cursor(cursor)} }
	enter(f, bridge.Reading, cp("a"), 0, nil)
	for _, c := range []struct {
		situation string
		batch     feed.Batch
		err       error
		want      string
	}{
		{"nothing new after a restart", batch("a", 0, false), nil, "unchanged"},
		{"nothing new, though it says more", batch("a", 0, true), nil, "unchanged"},
		{"entities", batch("b", 1, false), nil, "moved"},
		{"another place without entities", batch("c", 0, true), nil, "moved"},
		{"nothing new there", batch("c", 0, false), nil, "unchanged"},
		{"upstream is down", feed.Batch{}, errDown, "error"},
		{"nothing new, still", batch("c", 0, false), nil, "unchanged"},
		{"a person has to act", feed.Batch{}, feed.Permanent(errDown), "permanent_error"},
	} {
		f.Polled(c.batch, c.err, 0)
		if got := row(t, s)["last_poll"].(map[string]any)["outcome"]; got != c.want {
			t.Errorf("%s: %v, want %s", c.situation, got, c.want)
		}
	}
}
