package status_test

import (
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	started := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	soon, later := started.Add(4*time.Minute), started.Add(time.Hour)
	for want, d := range map[string]status.Digest{
		"no feeds": {},
		"1 feed: nothing needs you, 1 entity in the last hour":                                             {Feeds: 1, EntitiesLastHour: 1},
		"1 feed: it needs you, 0 entities since the start 4m ago":                                          {Feeds: 1, NeedYou: 1, At: &soon, Started: &started},
		"1 feed: nothing needs you, it is behind, 0 entities in the last hour":                             {Feeds: 1, Behind: 1, At: &later, Started: &started},
		"30 feeds: 11 need you, 1 fails and is tried again, 2 are behind, 4,310 entities in the last hour": {Feeds: 30, NeedYou: 11, Failing: 1, Behind: 2, EntitiesLastHour: 4310},
		"2 feeds: all fail and are tried again, 0 entities in the last hour":                               {Feeds: 2, Failing: 2},
		"30 feeds: nothing needs you, 2 are behind, 0 entities in the last hour":                           {Feeds: 30, Behind: 2},
		"10,000 feeds: 1 needs you, 1 is behind, 1,234,567 entities in the last hour":                      {Feeds: 10_000, NeedYou: 1, Behind: 1, EntitiesLastHour: 1_234_567},
	} {
		if got := d.Describe(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A digest of the hour before has its counts one hour further back; one of another version may lack hours.
func TestAddJoinsTheHoursOfTheClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 1, 0, 0, time.UTC)
	before := now.Add(-2 * time.Minute)
	sum := status.Digest{States: map[string]int{}, ByHour: status.NewHourly()}
	a, b := status.NewHourly(), status.NewHourly()
	a.Entities[23], a.SlowestCommit[23], b.Entities[23], b.SlowestCommit[23] = 5, 7, 3, 9
	sum.Add(status.Digest{At: &now, ByHour: a}, "a", now)
	sum.Add(status.Digest{At: &before, ByHour: b, Troubles: []status.Trouble{{Feed: "x"}}}, "b", now)
	sum.Add(status.Digest{ByHour: status.Hourly{Errors: []uint64{1}}}, "c", now)
	if h := sum.ByHour; h.Entities[23] != 5 || h.Entities[22] != 3 || h.SlowestCommit[23] != 7 || h.SlowestCommit[22] != 9 || h.Errors[0] != 1 {
		t.Errorf("%+v", h)
	}
	if sum.Troubles[0].Member != "b" {
		t.Errorf("%+v", sum.Troubles)
	}
}

func TestCompareNames(t *testing.T) {
	t.Parallel()
	sorted := []string{"", "1", "2", "02b", "10", "a", "a-2", "a-10", "a-10-b", "a1", "b"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := status.CompareNames(a, b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("CompareNames(%q, %q) = %d", a, b, got)
			}
		}
	}
}

func TestListsExplainThemselves(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	for want, list := range map[string]status.List{
		"": {Digest: "d"},
		"has an entry with an error, which 'feedbridge check' prints": {Digest: "d", BadEntries: 1},
		"has lost 30 feeds since 10:00:00, which is not used yet; 'feedbridge reload --yes' uses it; has 2 entries with errors, which 'feedbridge check' prints": {
			Digest: "d", BadEntries: 2, Held: &status.HeldList{Lost: 30, Since: &since},
		},
	} {
		if got := list.Explanation(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
