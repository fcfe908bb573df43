package admin_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// busy is a feed to which a bit of everything has happened.
func busy(f *admin.Feed) {
	enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
	first := batch("page-1", 4, true)
	first.Newest = time.Date(1999, 1, 1, 0, 4, 30, 0, time.UTC)
	f.Exchanged("GET", 200, nil, 30*time.Millisecond)
	f.Polled(first, nil, 70*time.Millisecond)
	time.Sleep(time.Second)
	f.Settled(first, 2*time.Millisecond)

	second := batch("page-2", 2, false)
	second.Duplicates = 1
	second.Oversized = 1
	second.Violations = []feed.Violation{
		{Kind: "time_runs_back", Page: "https://shop.example.com/feed/1?a=1&b=2", Detail: "the entity is older than the one before it"},
		{Kind: "time_runs_back", Page: "https://shop.example.com/feed/2", Detail: strings.Repeat("é", 400)},
		{Kind: "empty_page", Page: "https://shop.example.com/feed/2", Detail: "no\nentities"},
	}
	f.Exchanged("GET", 200, nil, 30*time.Millisecond)
	f.Polled(second, nil, 50*time.Millisecond)
	time.Sleep(time.Second)
	f.Settled(second, 20*time.Millisecond)
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
	f.Settled(nothing, 0)
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
	}{
		{"nothing is known", func(*admin.Feed) {}, unknown},
		{"read, not published", func(f *admin.Feed) { f.Polled(first, nil, 0) }, unknown},
		{"published in part", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Settled(first, 0)
		}, 600},
		{"published in part, and the bus is down", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Settled(first, 0)
			enter(f, bridge.Retrying, after(first), time.Second, errors.New("no responders"))
		}, 600},
		{"published in whole", func(f *admin.Feed) {
			f.Polled(last, nil, 0)
			f.Settled(last, 0)
			enter(f, bridge.Idle, after(last), time.Second, nil)
		}, 0},
		{"caught up, and more is read", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Settled(first, 0)
			f.Polled(last, nil, 0)
			f.Settled(last, 0)
			enter(f, bridge.Idle, after(last), time.Second, nil)
			late := batch("c", 1, false)
			late.Newest = last.Newest.Add(time.Minute)
			f.Polled(late, nil, 0)
		}, 60},
		{"caught up, and upstream is down", func(f *admin.Feed) {
			f.Settled(last, 0)
			f.Polled(feed.Batch{}, errDown, 0)
			enter(f, bridge.Reading, after(last), 0, nil)
		}, unknown},
		{"caught up, and the bus is down", func(f *admin.Feed) {
			f.Settled(last, 0)
			enter(f, bridge.Retrying, after(last), time.Second, errors.New("no responders"))
		}, unknown},
		{"another copy publishes", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Settled(first, 0)
			enter(f, bridge.Standby, after(first), time.Second, lost)
		}, unknown},
		{"a person has moved the checkpoint", func(f *admin.Feed) {
			f.Polled(first, nil, 0)
			f.Settled(first, 0)
			f.Polled(last, nil, 0)
			f.Settled(last, 0)
			enter(f, bridge.Reading, at(1, "a person", 0), 0, nil)
		}, unknown},
		{"upstream's clock runs back", func(f *admin.Feed) {
			b := batch("a", 1, true)
			b.Newest = b.Entities[0].Modified.Add(-time.Hour)
			f.Polled(b, nil, 0)
			f.Settled(b, 0)
		}, 0},
	} {
		t.Run(c.situation, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			f := addOrders(s)
			enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
			c.do(f)
			got := unknown
			if v, ok := row(t, s)["lag"].(map[string]any)["seconds"].(float64); ok {
				got = v
			}
			if got != c.want {
				t.Errorf("lag is %v, want %v", got, c.want)
			}
		})
	}
}
