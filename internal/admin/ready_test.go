package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// reasons returns why the server is not ready, and checks that the answer's
// parts agree.
func reasons(t *testing.T, s *admin.Server) []string {
	t.Helper()
	code, body := get(t, s, "/readyz")
	var answer struct {
		Ready   bool
		Reasons []string
	}
	must.Succeed(t, json.Unmarshal([]byte(body), &answer))
	if answer.Ready != (code == 200) || answer.Ready != (len(answer.Reasons) == 0) || code != 200 && code != 503 {
		t.Errorf("status %d with %s", code, body)
	}
	return answer.Reasons
}

func wantReasons(t *testing.T, s *admin.Server, want ...string) {
	t.Helper()
	if got := reasons(t, s); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		cp := checkpoint.Checkpoint{}
		wantReasons(t, s, "feed orders: has not been read yet: starting for 0s")

		f.Polled(feed.Batch{}, errDown, 0)
		enter(f, bridge.Retrying, cp, time.Second, errDown)
		wantReasons(t, s, "feed orders: has not been read yet: "+errDown.Error())

		enter(f, bridge.Reading, cp, 0, nil)
		b := batch("a", 1, false)
		f.Polled(b, nil, 0)
		time.Sleep(3 * time.Second)
		wantReasons(t, s, "feed orders: has not been published yet: reading for 3s")

		f.Processed(b, time.Second)
		cp.Cursor = b.Cursor
		wantReasons(t, s)
		time.Sleep(5 * time.Minute)
		wantReasons(t, s)
		time.Sleep(2 * time.Minute)
		wantReasons(t, s, "feed orders: has not been read for 7m (limit 5m): reading for 7m3s")

		// A poll that finds nothing is good enough.
		f.Polled(feed.Batch{Cursor: cp.Cursor}, nil, 0)
		f.Processed(feed.Batch{Cursor: cp.Cursor}, 0)
		enter(f, bridge.Idle, cp, 10*time.Second, nil)
		wantReasons(t, s)

		// Nor is it missed while upstream asks not to be asked; the limit counts from
		// there.
		enter(f, bridge.Idle, cp, time.Hour, nil)
		time.Sleep(59 * time.Minute)
		wantReasons(t, s)
		time.Sleep(3 * time.Minute)
		wantReasons(t, s)
		time.Sleep(4 * time.Minute)
		wantReasons(t, s, "feed orders: has not been read for 6m (limit 5m): reading for 6m")
		f.Processed(feed.Batch{Cursor: cp.Cursor}, 0)
		enter(f, bridge.Idle, cp, 10*time.Second, nil)
		wantReasons(t, s)

		// What the topic has is not known for ever.
		f.Entered(waiting(cp, time.Hour, time.Now().Add(time.Minute)))
		time.Sleep(2 * time.Minute)
		wantReasons(t, s)
		time.Sleep(10 * time.Second)
		wantReasons(t, s, "feed orders: bus main has not confirmed its checkpoint for 1m10s")
		f.Processed(feed.Batch{Cursor: cp.Cursor}, 0)
		enter(f, bridge.Idle, cp, 10*time.Second, nil)

		// A halt is tolerated for as long as any other silence.
		halt := feed.Permanent(errors.New("the feed has no rel=\"next\""))
		f.Polled(feed.Batch{}, halt, 0)
		enter(f, bridge.Halted, cp, 15*time.Second, halt)
		wantReasons(t, s)
		time.Sleep(6 * time.Minute)
		wantReasons(t, s, `feed orders: has not been read for 6m (limit 5m): the feed has no rel="next"`)

		// Reading again and again, and never getting it published, is not.
		full := errors.New("the stream is full")
		f.Polled(batch("b", 1, false), nil, 0)
		enter(f, bridge.Retrying, cp, time.Second, full)
		wantReasons(t, s, "feed orders: is read, but has not been published for 6m (limit 5m): the stream is full")

		// Another copy that publishes it is.
		enter(f, bridge.Standby, cp, time.Second, checkpoint.ErrConflict)
		wantReasons(t, s)
		time.Sleep(4 * time.Minute)
		enter(f, bridge.Standby, cp, time.Second, checkpoint.ErrConflict)
		time.Sleep(4 * time.Minute)
		wantReasons(t, s)

		// A pause is no failure, and the limit begins when it ends.
		enter(f, bridge.Paused, cp, 0, nil)
		time.Sleep(48 * time.Hour)
		wantReasons(t, s)
		enter(f, bridge.Reading, cp, 0, nil)
		time.Sleep(4 * time.Minute)
		wantReasons(t, s)
		time.Sleep(2 * time.Minute)
		wantReasons(t, s, "feed orders: has not been read for 6m (limit 5m): reading for 6m")

		enter(f, bridge.Stopped, cp, 0, nil)
		wantReasons(t, s, "feed orders: stopping")
	})
}

func TestReadinessNamesEveryReason(t *testing.T) {
	t.Parallel()
	s := newServer(
		admin.Bus{Name: "lake", Check: func(context.Context) error { return errors.New("no broker answers") }},
		admin.Bus{Name: "main", Check: func(context.Context) error { return nil }},
	)
	for _, name := range []string{"c", "a", "b"} {
		s.AddFeed(admin.FeedOptions{Name: name, Freshness: time.Minute}).Entered(bridge.Status{State: bridge.Stopped})
	}
	wantReasons(t, s, "bus lake: no broker answers", "feed a: stopping", "feed b: stopping", "feed c: stopping")
}

func TestReadyBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return errors.New("no servers available") }})
		busy(addOrders(s))
		_, body := get(t, s, "/readyz")
		golden(t, "testdata/readyz.json", body)
	})
}

// However many ask how often, the bus is asked once a second.
func TestProbesDoNotHammerTheBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := newServer(admin.Bus{Name: "main", Check: func(context.Context) error {
			time.Sleep(100 * time.Millisecond)
			return fmt.Errorf("down the %d. time", asked.Add(1))
		}})
		for range 20 {
			go getWith(t.Context(), s, "/readyz")
		}
		wantReasons(t, s, "bus main: down the 1. time")
		for range 9 {
			time.Sleep(100 * time.Millisecond)
			wantReasons(t, s, "bus main: down the 1. time")
		}
		time.Sleep(100 * time.Millisecond)
		wantReasons(t, s, "bus main: down the 2. time")
		if n := asked.Load(); n != 2 {
			t.Errorf("the bus was asked %d times", n)
		}
	})
}

// Buses are asked at once, not one after the other, and what does not answer
// is waited for no longer than the timeout, even if it does not heed it.
func TestBusesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var started atomic.Int64
		s := newServer(
			admin.Bus{Name: "a", Check: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}},
			admin.Bus{Name: "b", Check: func(context.Context) error {
				started.Add(1)
				<-release
				return nil
			}},
			admin.Bus{Name: "c", Check: func(context.Context) error { return nil }},
		)
		for range 3 {
			start := time.Now()
			wantReasons(t, s, "bus a: no answer within 2s", "bus b: no answer within 2s")
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("took %v", took)
			}
			time.Sleep(time.Second)
		}
		if n := started.Load(); n != 1 {
			t.Errorf("%d checks were started beside one that hangs", n)
		}
		close(release)
		synctest.Wait()
		wantReasons(t, s, "bus a: no answer within 2s")
	})
}

// Requests leave nothing behind while a check hangs for good.
func TestACheckThatHangsHoldsNoRequests(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := newServer(admin.Bus{Name: "main", Check: func(context.Context) error { <-release; return nil }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	used := func() uint64 {
		for range 20_000 {
			s.CheckBus(ctx)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	if before, after := used(), used(); after > before+1<<20 {
		t.Errorf("20,000 requests hold %d bytes", after-before)
	}
}

// All waiting probes share an answer: it does not become an error when the one who asked
// first goes away.
func TestProbesThatGoAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(admin.Bus{Name: "main", Check: func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		go getWith(ctx, s, "/readyz")
		synctest.Wait()
		cancel()
		synctest.Wait()
		wantReasons(t, s)
	})
}

// A restart may make a pipe for the log that is read again.
func TestHealthFailsWhenTheLogIsNotReadForAMinute(t *testing.T) {
	t.Parallel()
	var stuck time.Duration
	s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler), LogStuck: func() time.Duration { return stuck }, LogDropped: func() uint64 { return 3 }})
	if code, text := get(t, s, "/metrics"); code != 200 || !strings.Contains(text, "\nfeedbridge_log_lines_dropped_total 3\n") {
		t.Errorf("metrics: status %d with %s", code, text)
	}
	for _, want := range []struct {
		stuck time.Duration
		code  int
	}{{0, 200}, {time.Minute - 1, 200}, {time.Minute, 503}} {
		stuck = want.stuck
		if code, text := get(t, s, "/healthz"); code != want.code {
			t.Errorf("stuck for %v: status %d with %s", stuck, code, text)
		}
	}
}
