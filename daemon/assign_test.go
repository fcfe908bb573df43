package daemon

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/fleet"
)

// A commit that hangs keeps neither a reload nor the next assignment from being carried out. A stop
// waits for it.
func TestAnAssignmentWaitsOnlyAMomentForCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := &config.Config{Fleet: &config.Fleet{Name: "shop", Bus: "main"}, Feeds: map[string]config.Feed{"orders": {To: config.To{Bus: "main", Topic: "orders"}}}}
		log := slog.New(slog.DiscardHandler)
		d := &daemon{cfg: cfg, ctx: t.Context(), log: log, membership: newMembership(cfg, "a", log), feeds: &feeds{running: map[string]*runningFeed{}}}
		committed := make(chan struct{})
		d.feeds.start(d.ctx, "orders", &runningFeed{run: func(ctx context.Context, stopped func()) {
			go func() {
				<-ctx.Done()
				<-committed
				stopped()
			}()
		}})
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
		time.Sleep(handOver)
		synctest.Wait()
		select {
		case <-assigned:
		default:
			t.Fatal("the next assignment has to wait for a commit that hangs")
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			d.feeds.wait()
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("a stop does not wait for the commit")
		default:
		}
		close(committed)
		<-stopped
	})
}
