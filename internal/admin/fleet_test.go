package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// newFleetServer returns the server of the copy a, which has the feeds orders, parcels and invoices
// in the fleet shop.
func newFleetServer() (*admin.Server, *admin.Fleet, map[string]*admin.Feed) {
	shop := admin.NewFleet("shop", "main")
	s := admin.New(admin.Options{
		Version: "v1.2.3", Started: time.Now(), Writer: own, Log: slog.New(slog.DiscardHandler), Fleet: shop,
		Buses: []admin.Bus{{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }}},
	})
	feeds := map[string]*admin.Feed{}
	for _, name := range []string{"orders", "parcels", "invoices"} {
		feeds[name] = s.AddFeed(admin.FeedOptions{Name: name, URL: "https://shop.example.com/" + name, Format: "auto", Bus: "main", Topic: "shop." + name, Every: 10 * time.Second, Freshness: time.Minute})
	}
	return s, shop, feeds
}

// shared is the assignment of orders to a, of parcels to b, and of invoices to nobody.
func shared(members ...string) fleet.Assignment {
	return fleet.Assignment{Self: "a", Members: members, Owner: func(topic string) string {
		return map[string]string{"shop.orders": "a", "shop.parcels": "b"}[topic]
	}}
}

// runs makes a feed idle, as after a poll.
func runs(f *admin.Feed) {
	f.Polled(feed.Batch{}, nil, 10*time.Millisecond)
	f.Processed(feed.Batch{}, 0)
	enter(f, bridge.Idle, checkpoint.Checkpoint{}, 10*time.Second, nil)
}

func readStatus(t *testing.T, s *admin.Server) (p status.Process, body string) {
	t.Helper()
	_, body = get(t, s, "/status")
	must.Succeed(t, json.Unmarshal([]byte(body), &p))
	return p, body
}

func TestStatusShowsWhoRunsWhat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, shop, feeds := newFleetServer()
		shop.Assigned(shared("a", "b"))
		runs(feeds["orders"])
		p, body := readStatus(t, s)
		golden(t, "testdata/fleet.json", body)
		want := map[string][2]string{"orders": {"idle", ""}, "parcels": {"elsewhere", "b"}, "invoices": {"elsewhere", ""}}
		for _, f := range p.Feeds {
			if got := [2]string{f.State, f.Owner}; got != want[f.Feed] {
				t.Errorf("%s: state and owner are %q, want %q", f.Feed, got, want[f.Feed])
			}
		}
		// Only its own feed counts, and that was read.
		wantReasons(t, s)
		time.Sleep(2 * time.Minute)
		if got := reasons(t, s); len(got) != 1 || !strings.HasPrefix(got[0], "feed orders: ") {
			t.Errorf("after two minutes without a poll: %q", got)
		}
	})
}

func TestPageShowsTheFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, shop, feeds := newFleetServer()
		page := func(want ...string) {
			t.Helper()
			_, body := get(t, s, "/")
			for _, part := range want {
				if !strings.Contains(body, part) {
					t.Errorf("the page lacks %q", part)
				}
			}
		}
		page("Fleet shop", "This copy has not joined yet.")
		shop.Failed(feed.Permanent(errors.New("the bucket is <gone>")))
		page("the bucket is &lt;gone&gt;")
		shop.Assigned(shared("a", "b"))
		runs(feeds["orders"])
		page("<strong>a</strong> (this copy) 1 feed: nothing needs you, ", "<strong>b</strong> 1 feed<", "elsewhere")
	})
}

// A copy that is not a member is not ready, whatever feeds it still runs.
func TestACopyThatIsNoMemberIsNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, shop, _ := newFleetServer()
		wantReasons(t, s, "fleet shop: this copy is not a member, and runs no feeds")
		shop.Failed(feed.Permanent(errors.New("no permission")))
		wantReasons(t, s, "fleet shop: this copy is not a member, and runs no feeds: no permission")
		shop.Failed(nil)
		shop.Assigned(fleet.Assignment{Self: "a", Members: []string{"b"}, Owner: func(string) string { return "b" }})
		wantReasons(t, s, "fleet shop: this copy is not a member, and runs no feeds")
		if p, _ := readStatus(t, s); p.Fleet.Error != "" || len(p.Fleet.Members) != 1 || p.Fleet.Members[0].Self || p.Fleet.Members[0].Feeds != 3 {
			t.Errorf("the fleet is %+v", p.Fleet)
		}
		counts(t, s, "feedbridge_fleet_member", "feedbridge_fleet_member{fleet=\"shop\"} 0\n")
		counts(t, s, "feedbridge_fleet_feeds", "feedbridge_fleet_feeds{fleet=\"shop\"} 0\n")
	})
}

func TestMetricsOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, shop, feeds := newFleetServer()
		counts(t, s, "feedbridge_fleet_members", "feedbridge_fleet_members{fleet=\"shop\"} 0\n")
		shop.Assigned(shared("a", "b"))
		runs(feeds["orders"])
		// Those that a fleet changes.
		var changed strings.Builder
		for line := range strings.Lines(ours(t, s)) {
			if regexp.MustCompile(`feedbridge_(fleet_|feeds|stale_feeds|feed_state|feed_fresh|lag_seconds|last_successful_poll)`).MatchString(line) {
				changed.WriteString(line)
			}
		}
		golden(t, "testdata/fleet.metrics", changed.String())
	})
}

// The bus may refuse a copy that was a member. It keeps its feeds, since nobody else may have them.
func TestAMemberThatFailsIsNotReadyUntilItTakesPartAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, shop, feeds := newFleetServer()
		shop.Assigned(shared("a", "b"))
		runs(feeds["orders"])
		wantReasons(t, s)
		shop.Failed(feed.Permanent(errors.New("no permission")))
		wantReasons(t, s, "fleet shop: this copy cannot take part, and keeps the feeds that it had: no permission")
		counts(t, s, "feedbridge_fleet_member", "feedbridge_fleet_member{fleet=\"shop\"} 0\n")
		counts(t, s, "feedbridge_fleet_feeds", "feedbridge_fleet_feeds{fleet=\"shop\"} 1\n")
		if p, _ := readStatus(t, s); p.Fleet.Error != "no permission" {
			t.Errorf("the error is %q", p.Fleet.Error)
		}
		shop.Assigned(shared("a", "b", "c")) // decided before
		shop.Failed(errors.New("no answer")) // in between
		wantReasons(t, s, "fleet shop: this copy cannot take part, and keeps the feeds that it had: no permission")
		shop.Failed(nil)
		wantReasons(t, s)
		counts(t, s, "feedbridge_fleet_member", "feedbridge_fleet_member{fleet=\"shop\"} 1\n")
	})
}

// Members with different feeds are shown at once, and after a minute by /readyz, too, which stays ready: a
// rollout must be able to go on.
func TestMembersWithDifferentFeedsAreShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, shop, feeds := newFleetServer()
		notes := func() (notes []string) {
			t.Helper()
			var answer struct{ Notes []string }
			_, body := get(t, s, "/readyz")
			must.Succeed(t, json.Unmarshal([]byte(body), &answer))
			return answer.Notes
		}
		a := shared("a", "b", "c")
		a.Different, a.DifferentSince = []string{"b"}, time.Now()
		shop.Assigned(a)
		runs(feeds["orders"])
		p, _ := readStatus(t, s)
		if f := p.Fleet; f.FeedsDifferSince == nil || !f.FeedsDifferSince.Equal(time.Now()) || f.Members[0].OtherFeeds || !f.Members[1].OtherFeeds || f.Members[2].OtherFeeds {
			t.Errorf("the fleet is %+v", f)
		}
		counts(t, s, "feedbridge_fleet_members_with_other_feeds", "feedbridge_fleet_members_with_other_feeds{fleet=\"shop\"} 1\n")
		if _, body := get(t, s, "/"); !strings.Contains(body, "has other feeds than this copy") {
			t.Error("the page does not show it")
		}
		if n := notes(); len(n) > 0 {
			t.Errorf("notes: %q", n)
		}
		time.Sleep(fleet.Rollout)
		runs(feeds["orders"])
		if n := notes(); len(n) != 1 || n[0] != "fleet shop: for 1m members have had other feeds than this copy (b); each feed is run by a member that has it" {
			t.Errorf("notes: %q", n)
		}
		wantReasons(t, s)
	})
}

// "run by" names only a member that is known to run the feed.
func TestExplanationsOfFeedsElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, shop, _ := newFleetServer()
		want := func(parcels, invoices string) {
			t.Helper()
			p, _ := readStatus(t, s)
			got := map[string]string{}
			for _, f := range p.Feeds {
				got[f.Feed] = f.Explanation
			}
			if got["parcels"] != parcels || got["invoices"] != invoices {
				t.Errorf("explanations: %q", got)
			}
		}
		const no = "fleet shop: this copy is not a member, and runs no feeds"
		want(no, no)
		shop.Assigned(shared("a", "b"))
		want("run by b, another member of the fleet", "waiting: no member of the fleet runs this feed yet")
		shop.Failed(errors.New("no answer"))
		want("run by b, another member of the fleet, when this copy last saw it", "waiting: no member of the fleet runs this feed yet")
		shop.Failed(nil)
		shop.Assigned(shared("b"))
		want("run by b, another member of the fleet", "not run: no member of the fleet has this feed; "+no)
		shop.Failed(feed.Permanent(errors.New("no permission")))
		want("run by b, another member of the fleet, when this copy last saw it", "not run: no member of the fleet has this feed; "+no+": no permission")
	})
}
