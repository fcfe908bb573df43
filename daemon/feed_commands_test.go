package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
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
			"conflicts for ever":            {1e9, nil, "nothing was changed: another copy has committed to this topic, again and again", pauseTimeout + time.Second},
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
	removeFirst := c.add(first)
	removeSecond := c.add(second)
	removeFirst()
	if c.bridges["orders"] != second {
		t.Error("the end of the first bridge has removed the second")
	}
	removeSecond()
	if len(c.bridges) > 0 {
		t.Error("a bridge that has ended is still there")
	}
}
