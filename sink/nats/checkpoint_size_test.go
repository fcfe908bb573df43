package nats_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// largeCheckpoint has a cursor of n bytes.
func largeCheckpoint(count, n int) checkpoint.Checkpoint {
	cp := sinktest.At(count)
	cp.Cursor = make([]byte, n)
	return cp
}

// A checkpoint for which there is just enough room does not have another one in its header.
func TestLargeCheckpointsAreStored(t *testing.T) {
	t.Parallel()
	for maxMsgSize, cursor := range map[int32]int{2000: 1000, 0: 50_000} {
		server := runServer(t, &server.Options{JetStream: true})
		config := fitting()
		config.MaxMsgSize = maxMsgSize
		createStream(t, admin(t, server.ClientURL()), config)
		s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
		resume(t, s)
		for n := range 3 {
			must.Succeed(t, s.Commit(t.Context(), sinktest.Entities(2*n, 2), largeCheckpoint(2*n+2, cursor)))
		}
	}
}

// A checkpoint that is too large is reported as that: no entity is blamed, and the error names the limit.
// The entities of a fast batch are stored before, and are known afterwards.
func TestCheckpointIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		maxPayload, maxMsgSize int32
		fast                   bool
		want                   string
	}{
		"for the stream":                  {0, 2000, false, "raise max_msg_size with 'nats stream edit shop_orders --max-msg-size'"},
		"for the server":                  {2000, 0, false, "raise max_payload of the server"},
		"for the stream, by fast batches": {0, 2000, true, "raise max_msg_size with 'nats stream edit shop_orders --max-msg-size'"},
		"for the server, by fast batches": {2000, 0, true, "raise max_payload of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := runServer(t, &server.Options{JetStream: true, MaxPayload: test.maxPayload})
			js := admin(t, server.ClientURL())
			config := fitting()
			config.MaxMsgSize, config.AllowBatchPublish = test.maxMsgSize, test.fast
			createStream(t, js, config)
			s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			for _, n := range []int{3, 0} {
				resume(t, s)
				err := s.Commit(t.Context(), sinktest.Entities(2, n), largeCheckpoint(2+n, 2000))
				wantError(t, err, true, nil, "that is the checkpoint", test.want)
				if errors.Is(err, sink.ErrTooLarge) {
					t.Errorf("an entity is blamed: %v", err)
				}
			}
			wantError(t, s.Overwrite(t.Context(), sinktest.MoveTo(largeCheckpoint(2, 2000))), true, nil, test.want)
			resume(t, s)
			stored := 0
			if test.fast {
				stored = 3
			}
			wantIDs(t, s, 2+stored)
			must.Succeed(t, s.Commit(t.Context(), sinktest.Entities(2+stored, 3-stored), sinktest.At(5)))
			wantFeed(t, s, 5)
		})
	}
}
