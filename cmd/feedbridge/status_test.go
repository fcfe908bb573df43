package main

import (
	"testing"
	"time"
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
