package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

func TestFormatAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for _, test := range []struct {
		at   time.Time
		want string
	}{
		{now, "0s ago"},
		{now.Add(-90 * time.Second), "1m30s ago"},
		{now.Add(-49 * time.Hour), "2025-12-31 02:04:05"},
		{now.Add(200 * time.Millisecond), "in 0s"},
		{now.Add(90 * time.Second), "in 1m30s"},
	} {
		if got := formatAge(&test.at, now); got != test.want {
			t.Errorf("formatAge(%s) = %q, want %q", test.at, got, test.want)
		}
	}
	if got := formatAge(nil, now); got != "-" {
		t.Errorf("formatAge(nil) = %q", got)
	}
	for _, d := range []time.Duration{-time.Second, 0, 200 * time.Millisecond} {
		if next := now.Add(d); formatNext(&next, now) != "now" {
			t.Errorf("an attempt in %s is %q", d, formatNext(&next, now))
		}
	}
}

// A daemon can be ready and use an old configuration, because the newer one was refused, and have feeds that
// were left behind.
func TestTroublesOfTheProcessArePrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	at := time.Now().Add(-time.Minute)
	process := status.Process{
		Config:     status.Config{Error: &status.Error{At: &at, Text: "feedbridge.yaml:3: feeds.orders.evry: unknown key"}},
		LeftBehind: []status.LeftBehind{{Feed: "orders", Since: &at, Work: "reading the feed for 1m5s"}},
		SlowHosts: []status.SlowHost{
			{Host: "feeds.example.com:443", RequestsPerMinute: 1, Share: 0.25, Status: 429, Since: &at},
			{Host: "shop.example.com:443", RequestsPerMinute: 120, Share: 1, Status: 403, Since: &at},
		},
	}
	statusReport{}.printProcess(&printer{w: &out}, &process, daemonReadiness{Ready: true}, time.Now(), look{})
	const want = "ready\nthe configuration was not reloaded (1m0s ago); the one before stays in use: feedbridge.yaml:3: feeds.orders.evry: unknown key\n" +
		"the feed orders was stopped (1m0s ago) and does not end: reading the feed for 1m5s\n" +
		"feeds.example.com:443 has answered 429: requests of all its feeds are limited to 1 a minute, this copy 25% of them; set their limits.rate if the provider allows more (first 1m0s ago)\n" +
		"shop.example.com:443 has answered 403: requests of all its feeds are limited to 120 a minute; set their limits.rate if the provider allows more (first 1m0s ago)\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("printed\n%swant in it\n%s", out.String(), want)
	}
}

// With thousands of feeds, the buses and the table stay near the beginning.
func TestFewReasonsArePrinted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{10: "  reason 9\n\n", 13: "  reason 9\n  and 3 more\n\n"} {
		var out strings.Builder
		ready := daemonReadiness{}
		for i := range n {
			ready.Reasons = append(ready.Reasons, fmt.Sprintf("reason %d", i))
		}
		statusReport{}.printProcess(&printer{w: &out}, &status.Process{}, ready, time.Now(), look{})
		if !strings.Contains(out.String(), want) {
			t.Errorf("%d reasons are printed as\n%s", n, out.String())
		}
	}
}

// Why a bus makes the process not ready is said at the top, and once.
func TestReasonOfABusIsPrintedOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	ready, process := daemonReadiness{Reasons: []string{"bus main: no servers"}}, &status.Process{Buses: []status.Bus{{Bus: "main", Kind: "nats", Error: "no servers"}, {Bus: "b", Kind: "nats", Error: "late"}}}
	statusReport{}.printProcess(&printer{w: &out}, process, ready, time.Now(), look{})
	if want := "not ready:\n  bus main: no servers\n\nbus main (nats): not available\nbus b (nats): late\n"; !strings.Contains(out.String(), want) {
		t.Errorf("printed\n%swant in it\n%s", out.String(), want)
	}
}

// The members of a fleet are printed with the number of feeds that each of them runs, and why this copy
// is none of them.
func TestFleetIsPrinted(t *testing.T) {
	t.Parallel()
	fleet := &status.Fleet{Fleet: "shop", Bus: "main", Error: "no right to the bucket", Members: []status.Member{{Member: "host-1", Self: true, Feeds: 1}, {Member: "host-2", Feeds: 2, OtherFeeds: true}}}
	var b strings.Builder
	printFleet(&printer{w: &b}, fleet, time.Now())
	want := "\nfleet shop on bus main: 2 members\n  host-1: 1 feed (this copy)\n  host-2: 2 feeds, has other feeds than this copy\n  this copy cannot take part: no right to the bucket\n"
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Of thousands of feeds those in trouble are printed, up to a limit, and the others if there is room.
func TestFewFeedsArePrinted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		situation              string
		idle, halted           int
		all                    bool
		wantIdle, wantHalted   int
		wantMore, wantSentence string
	}{
		{"a few", 60, 40, false, 60, 40, "", "why halted099"},
		{"some in trouble", 300, 20, false, 80, 20, "and 220 more feeds; --all prints all\n", "why halted319"},
		{"all in trouble", 0, 10_000, false, 0, 100, "and 9900 more feeds; --all prints all\n", "why halted099"},
		{"one more", 101, 0, false, 100, 0, "and 1 more feed; --all prints all\n", ""},
		{"all of them", 300, 20, true, 300, 20, "", "why halted319"},
	} {
		var process status.Process
		for i := range test.idle + test.halted {
			f := status.Feed{Feed: fmt.Sprintf("idle%03d", i), State: "idle"}
			if i >= test.idle {
				f = status.Feed{Feed: fmt.Sprintf("halted%03d", i), State: "halted", Explanation: fmt.Sprintf("why halted%03d", i)}
			}
			process.Feeds = append(process.Feeds, f)
		}
		var out strings.Builder
		statusReport{all: test.all}.printProcess(&printer{w: &out}, &process, daemonReadiness{Ready: true}, time.Now(), look{})
		text := out.String()
		idle, halted := strings.Count(text, "\nidle"), strings.Count(text, "\nhalted")
		if idle != test.wantIdle || halted != test.wantHalted || !strings.Contains(text, test.wantSentence) ||
			!strings.HasSuffix(text, test.wantMore) || strings.Contains(text, "--all") != (test.wantMore != "") {
			t.Errorf("%s: %d idle and %d halted are printed:\n%s", test.situation, idle, halted, text)
		}
	}
}
