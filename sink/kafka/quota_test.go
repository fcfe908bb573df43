package kafka_test

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// A broker answers a fetch of a client that is over its quota at once, with a throttle time
// and without topics. A copy that starts waits for its turn, for longer than the time in which
// a broker must answer, and reads nothing again.
func TestFetchOverTheQuota(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
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
		cfg := configWithin(c, time.Second)
		fresh := connect(t, cfg).Sink(orders())
		wantCount(t, fresh, 6)
		wantIDs(t, fresh, 6)
		// The checkpoint, the messages, and the checkpoint once more.
		if n := answered.Load(); n > 3 {
			t.Errorf("%d fetches were answered, want no more than 3", n)
		}
	})
}

// A broker takes records over the quota of a client, and then asks it to wait. A commit outlasts the
// waits, from the second one on also if they take longer than it may take without them.
func TestCommitsOverTheQuotaAreNotAborted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, w := startWired(t)
		s := connect(t, configFor(c)).Sink(orders())
		resume(t, s)
		for n, wait := range []time.Duration{3 * time.Second, 8 * time.Second, 18 * time.Second, 18 * time.Second} {
			w.throttling(wait)
			begin := time.Now()
			commit(t, s, n, n+1)
			if took := time.Since(begin); took < wait {
				t.Errorf("commit %d took %v, and the broker has asked to wait %v", n, took, wait)
			}
		}
		wantFeed(t, s, 4)
	})
}

// An error that a quota has caused names it.
func TestQuotaIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, w := startWired(t)
		cfg := configFor(c)
		cfg.ClientID = "orders-copier"
		var log logbuffer.Buffer
		s := connectLogging(t, cfg, slog.New(slog.NewTextHandler(&log, nil))).Sink(orders())
		resume(t, s)
		w.throttling(50 * time.Second)
		err := s.Commit(t.Context(), sinktest.Entities(0, 1), sinktest.At(1))
		wantError(t, err, false, nil, "by a quota", "wait 50s", "producer_byte_rate", `client_id "orders-copier"`)
		w.throttling(0)
		continueTo(t, s, 0, 1)
		if n := strings.Count(log.String(), "the brokers hold this client back"); n != 1 {
			t.Errorf("%d messages in the log:\n%s", n, log.String())
		}
		// Later silence has another reason.
		time.Sleep(time.Hour)
		w.muting(func(kmsg.Key) bool { return true })
		wantError(t, s.Commit(t.Context(), sinktest.Entities(1, 1), sinktest.At(2)), false, nil, "no answer from Kafka")
	})
}

// A leader that was just elected does not know its offsets at first.
func TestOffsetsAreNotAvailableAfterAnElection(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]kmsg.Key{"ListOffsets": kmsg.ListOffsets, "Fetch": kmsg.Fetch} {
		t.Run(name, bubbled(func(t *testing.T) {
			s, c, _ := open(t, orders())
			commit(t, s, 0, 3)
			const errors = 12
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.OffsetNotAvailable, Count: errors})
			fresh := connect(t, configFor(c)).Sink(orders())
			wantCount(t, fresh, 3)
			wantIDs(t, fresh, 3)
			if h.Hits() < errors {
				t.Errorf("the fault was met %d times", h.Hits())
			}
		}))
	}
}
