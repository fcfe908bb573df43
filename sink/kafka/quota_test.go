package kafka_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
)

// A broker answers a fetch of a client that is over its quota at once, with a throttle time
// and without topics. A copy that starts waits for its turn, for longer than the time in which
// a broker must answer, and reads nothing again.
func TestFetchOverTheQuota(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		s := connect(t, configFor(c)).Sink(orders())
		resume(t, s)
		for n := range 6 {
			commit(t, s, n, n+1)
		}
		var asked, answered atomic.Int32
		c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			// Only every fourth fetch is within the quota.
			if asked.Add(1)%4 == 0 {
				answered.Add(1)
				return nil, nil, false
			}
			resp := r.ResponseKind().(*kmsg.FetchResponse)
			resp.ThrottleMillis = 400
			return resp, nil, true
		})
		cfg := configFor(c)
		cfg.Timeout = time.Second
		fresh := connect(t, cfg).Sink(orders())
		if cp := resume(t, fresh); cp.Count != 6 || fresh.IDs().Len() != 6 {
			t.Errorf("checkpoint %+v and %d IDs, want six", cp, fresh.IDs().Len())
		}
		// The checkpoint, the messages, and the checkpoint once more.
		if n := answered.Load(); n > 3 {
			t.Errorf("%d fetches were answered, want no more than 3", n)
		}
	})
}

// A leader that was just elected does not know its offsets at first.
func TestOffsetsAreNotAvailableAfterAnElection(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]kmsg.Key{"ListOffsets": kmsg.ListOffsets, "Fetch": kmsg.Fetch} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := startCluster(t)
				s := connect(t, configFor(c)).Sink(orders())
				resume(t, s)
				commit(t, s, 0, 3)
				const errors = 12
				h := c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.OffsetNotAvailable, Count: errors})
				fresh := connect(t, configFor(c)).Sink(orders())
				if cp := resume(t, fresh); cp.Count != 3 || fresh.IDs().Len() != 3 {
					t.Errorf("checkpoint %+v and %d IDs, want three", cp, fresh.IDs().Len())
				}
				if h.Hits() < errors {
					t.Errorf("the fault was met %d times", h.Hits())
				}
			})
		})
	}
}

// A broker that withholds records for long is reported in the log.
func TestFetchIsWithheldForLong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		s := connect(t, configFor(c)).Sink(orders())
		resume(t, s)
		commit(t, s, 0, 2)
		c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind().(*kmsg.FetchResponse)
			resp.ThrottleMillis = 100
			return resp, nil, true
		})
		var out logbuffer.Buffer
		cfg := configFor(c)
		cfg.Timeout = time.Second
		conn := connectLogging(t, cfg, slog.New(slog.NewTextHandler(&out, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Sink(orders()).Resume(ctx)
			ended <- err
		}()
		until(t, func() bool {
			return strings.Contains(out.String(), "the broker withholds records") && strings.Contains(out.String(), "topic=feedbridge.checkpoints")
		})
		cancel()
		wantError(t, <-ended, false, context.Canceled)
	})
}
