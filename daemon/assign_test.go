package daemon

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/source"
)

// newTestFeeds returns feeds whose log and admin server are real.
func newTestFeeds(log *slog.Logger) *feeds {
	return &feeds{running: map[string]*runningFeed{}, commands: &feedCommands{}, pipelines: &pipelines{
		adm: admin.New(admin.Options{Log: log}), failures: newFailureLog(log), opts: Options{Log: log}, hosts: &source.Hosts{},
	}}
}

// addStuck adds a feed that was started, and ends when released is closed after its context has ended.
func (f *feeds) addStuck(ctx context.Context, name string, kind bridge.WorkKind, released <-chan struct{}) {
	began := time.Now()
	f.startAll(ctx, map[string]*runningFeed{name: {
		name: name, nextPoll: func(now time.Time) time.Time { return now }, work: func() bridge.Work { return bridge.Work{Kind: kind, Since: began} },
		run: func(ctx context.Context, stopped func()) {
			go func() {
				<-ctx.Done()
				<-released
				stopped()
			}()
		},
	}})
}

// A commit that hangs keeps neither a reload nor the next assignment from being carried out. A stop
// waits for it.
func TestAnAssignmentWaitsOnlyAMomentForCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := &config.Config{Fleet: &config.Fleet{Name: "shop", Bus: "main"}, Feeds: map[string]config.Feed{"orders": {To: config.To{Bus: "main", Topic: "orders"}}}}
		log := slog.New(slog.DiscardHandler)
		d := &daemon{cfg: cfg, ctx: t.Context(), log: log, lists: newLists("v0", nil, log), membership: newMembership(cfg, "a", nil, log), feeds: newTestFeeds(log)}
		committed := make(chan struct{})
		d.feeds.addStuck(d.ctx, "orders", bridge.Committing, committed)
		assigned := make(chan struct{})
		go func() {
			defer close(assigned)
			d.assign(fleet.Assignment{Self: "a", Members: []string{"a", "b"}, Owner: func(string) string { return "b" }})
		}()
		synctest.Wait()
		if !d.mu.TryLock() {
			t.Fatal("the daemon is locked while a commit is in flight")
		}
		d.mu.Unlock()
		select {
		case <-assigned:
			t.Fatal("the assignment does not wait for the commit")
		default:
		}
		time.Sleep(bridge.YieldTime)
		synctest.Wait()
		select {
		case <-assigned:
		default:
			t.Fatal("the next assignment has to wait for a commit that hangs")
		}
		if committing, others := endAll(d.feeds.all(), time.Minute); len(committing) != 1 || len(others) > 0 {
			t.Errorf("a stop does not wait for the commit: %v %v", committing, others)
		}
		close(committed)
		synctest.Wait()
		if all := d.feeds.all(); len(all) > 0 {
			t.Errorf("%d feeds are left after their end", len(all))
		}
	})
}

// Each assignment gives this copy another part of the rates of hosts.
func TestAnAssignmentDividesTheRatesOfHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := &config.Config{Fleet: &config.Fleet{Name: "shop", Bus: "main"}, Feeds: map[string]config.Feed{}}
		for _, name := range []string{"orders", "parcels", "returns", "stock"} {
			f := config.Feed{Source: source.Defaults(), To: config.To{Bus: "main", Topic: name}}
			f.Source.URL = "https://shop.example.com/" + name
			cfg.Feeds[name] = f
		}
		log := slog.New(slog.DiscardHandler)
		d := &daemon{cfg: cfg, ctx: t.Context(), log: log, lists: newLists("v0", nil, log), membership: newMembership(cfg, "a", nil, log), feeds: newTestFeeds(log)}
		ended := make(chan struct{})
		close(ended)
		for name := range cfg.Feeds {
			d.feeds.addStuck(d.ctx, name, bridge.ReadingFeed, ended)
		}
		for _, c := range []struct {
			own  string
			want time.Duration
		}{{"orders parcels returns stock", time.Second}, {"orders stock", 2 * time.Second}, {"stock", 4 * time.Second}} {
			d.assign(fleet.Assignment{Self: "a", Members: []string{"a", "b"}, Owner: func(topic string) string {
				if strings.Contains(c.own, topic) {
					return "a"
				}
				return "b"
			}})
			if host, gap := d.feeds.pipelines.hosts.StartGap("https://shop.example.com/orders", 200, time.Hour); gap != c.want || host != "shop.example.com:443" {
				t.Errorf("%s of four feeds: the feeds of %s start %v apart, want %v", c.own, host, gap, c.want)
			}
		}
	})
}
