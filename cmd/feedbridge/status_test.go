package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/admin/status"
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
}

// A daemon can be ready and use an old configuration, because the newer one was refused.
func TestRefusedConfigurationIsPrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	at := time.Now().Add(-time.Minute)
	process := status.Process{Config: status.Config{Error: &status.Error{At: &at, Text: "feedbridge.yaml:3: feeds.orders.evry: unknown key"}}}
	printProcess(&printer{w: &out}, &process, daemonReadiness{Ready: true})
	const want = "ready\nthe configuration was not reloaded (1m0s ago); the one before stays in use: feedbridge.yaml:3: feeds.orders.evry: unknown key\n"
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
		printProcess(&printer{w: &out}, &status.Process{}, ready)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%d reasons are printed as\n%s", n, out.String())
		}
	}
}
