package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
)

func TestPauseIsRetriedWhileAnotherCopyCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		paused := checkpoint.Checkpoint{Paused: time.Now()}
		for name, c := range map[string]struct {
			conflicts int
			err       error
			want      string
			takes     time.Duration
		}{
			"it works at once":              {0, nil, "", 0},
			"a few conflicts":               {9, nil, "", 9 * 500 * time.Millisecond},
			"conflicts for ever":            {1e9, nil, "nothing was changed: another copy has committed to this topic, again and again", conflictTime + time.Second},
			"the topic has lost its cursor": {0, checkpoint.ErrMissing, "the topic has lost its checkpoint", 0},
		} {
			calls, began := 0, time.Now()
			answer, err := retryPause(t.Context(), "orders", func(context.Context) (bridge.PauseResult, error) {
				if calls++; calls <= c.conflicts {
					return bridge.PauseResult{}, checkpoint.ErrConflict
				}
				return bridge.PauseResult{Checkpoint: paused, Changed: true}, c.err
			})
			switch {
			case c.want == "" && (err != nil || !answer.Changed || answer.Feed != "orders" || !answer.Paused.Equal(paused.Paused) || calls != c.conflicts+1):
				t.Errorf("%s: %+v, %v after %d calls", name, answer, err, calls)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want) || answer.Changed):
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
			if took := time.Since(began); took > c.takes {
				t.Errorf("%s: it took %v", name, took)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := retryPause(ctx, "orders", func(context.Context) (bridge.PauseResult, error) {
			return bridge.PauseResult{}, checkpoint.ErrConflict
		}); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
	})
}

// A feed that is started again under its name is the one that requests find, whichever of the two
// ends first.
func TestCommandsFindTheNewestBridge(t *testing.T) {
	t.Parallel()
	var c feedCommands
	first, second := &bridge.Bridge{Feed: "orders"}, &bridge.Bridge{Feed: "orders"}
	removeFirst := c.add(first, config.Feed{}, nil)
	removeSecond := c.add(second, config.Feed{}, nil)
	removeFirst()
	if c.feeds["orders"].bridge != second {
		t.Error("the end of the first bridge has removed the second")
	}
	removeSecond()
	if len(c.feeds) > 0 {
		t.Error("a bridge that has ended is still there")
	}
}

// A member that does not answer is of no use to the person either.
func TestPollOfAMemberThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := feedCommands{forward: func(context.Context, string, string, string, time.Duration, any) error {
		return errors.New("b does not answer")
	}}
	got := c.pollElsewhere(t.Context(), httptest.NewRequest(http.MethodPost, "/feeds/orders/poll", nil), "orders", "b", &Poll{})
	if want := "feed orders: it is run by b, which cannot be asked: b does not answer"; got == nil || got.Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// While a reload stops a feed, its successor is not started yet.
func TestCommandsWaitForTheRestartOfTheirFeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c feedCommands
		newBridge := func(down bool) *bridge.Bridge {
			var isDown atomic.Bool
			isDown.Store(down)
			return &bridge.Bridge{
				Feed: "orders", Every: time.Hour, Log: slog.New(slog.DiscardHandler), Sink: slowSink{brokenSink{"orders", &isDown}},
				Open:     func(context.Context, string) (feed.Source, string, error) { return emptySource{}, "x", nil },
				Observer: observers{},
			}
		}
		run := func(b *bridge.Bridge) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			b.Start(ctx, func() { close(stopped) })
			return func() { cancel(); <-stopped }
		}
		first, second := newBridge(true), newBridge(false)
		removeFirst := c.add(first, config.Feed{}, nil)
		stopFirst := run(first)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/feeds/orders/poll", nil)
		r.SetPathValue("feed", "orders")
		var answer any
		var err error
		var request sync.WaitGroup
		request.Go(func() { answer, err = c.servePoll(t.Context(), r) })
		time.Sleep(time.Second)
		defer c.add(second, config.Feed{}, nil)()
		stopFirst()
		removeFirst()
		time.Sleep(10 * time.Second)
		defer run(second)()
		request.Wait()
		if polled, ok := answer.(Poll); !ok || err != nil || polled.State != bridge.Idle {
			t.Errorf("%+v, %v", answer, err)
		}
	})
}

// A checkpoint is overwritten beside a daemon that commits, or not changed at all.
func TestOverwriteBesideABusyDaemon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for conflicts, want := range map[int]error{0: nil, 5: nil, 1e9: checkpoint.ErrConflict} {
			snk, began := &busySink{conflicts: conflicts}, time.Now()
			if err := (&CheckpointStore{snk}).Overwrite(t.Context(), nil); !errors.Is(err, want) || snk.calls > conflicts+1 {
				t.Errorf("%d conflicts: %v after %d calls", conflicts, err, snk.calls)
			}
			if took := time.Since(began); want != nil && (took < conflictTime || took > 2*conflictTime) {
				t.Errorf("it gave up after %v", took)
			}
		}
	})
}

// busySink has conflicts before it overwrites a checkpoint.
type busySink struct {
	topicSink
	conflicts, calls int
}

func (s *busySink) Overwrite(context.Context, func(checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	if s.calls++; s.calls <= s.conflicts {
		return fmt.Errorf("overwrite: %w", checkpoint.ErrConflict)
	}
	return nil
}

// slowSink has no answer while its bus is down.
type slowSink struct{ brokenSink }

func (s slowSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	if !s.down.Load() {
		return s.brokenSink.Resume(ctx)
	}
	<-ctx.Done()
	return checkpoint.Checkpoint{}, ctx.Err()
}
