package nats_test

import (
	"errors"
	"strings"
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

// A checkpoint that is too large is reported as that: no entity is blamed, and the error
// names the limit and the size that it has to have.
func TestCheckpointIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		maxPayload, maxMsgSize int32
		want                   string
	}{
		"for the stream": {0, 2000, "is larger than max_msg_size 2000 of stream shop_orders; raise it to at least "},
		"for the server": {2000, 0, "is larger than max_payload 2000 of the NATS server; raise it to at least "},
		"for both":       {2000, 3000, "is larger than max_payload 2000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := runServer(t, &server.Options{JetStream: true, MaxPayload: test.maxPayload})
			js := admin(t, server.ClientURL())
			config := fitting()
			config.MaxMsgSize = test.maxMsgSize
			createStream(t, js, config)
			s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
			for _, n := range []int{3, 0} {
				resume(t, s)
				err := s.Commit(t.Context(), sinktest.Entities(0, n), largeCheckpoint(n, 2000))
				wantError(t, err, true, nil, "the checkpoint of 2", test.want)
				if errors.Is(err, sink.ErrTooLarge) || strings.Contains(err.Error(), "entity") {
					t.Errorf("an entity is blamed: %v", err)
				}
			}
			wantError(t, s.Overwrite(t.Context(), sinktest.MoveTo(largeCheckpoint(0, 2000))), true, nil, test.want)
			continueTo(t, s, 0, 3)
		})
	}
}

func TestLargestCheckpointThatFitsIsStored(t *testing.T) {
	t.Parallel()
	server := runServer(t, &server.Options{JetStream: true})
	js := admin(t, server.ClientURL())
	config := fitting()
	config.MaxMsgSize = 2000
	createStream(t, js, config)
	s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
	resume(t, s)
	var err error
	for n := 1200; err == nil; n++ {
		err = s.Commit(t.Context(), nil, largeCheckpoint(0, n))
	}
	// A cursor that is larger by a byte makes up to four more of base64.
	wantError(t, err, true, nil, "the checkpoint of 200", "raise it to at least 200")
}

// The limit is lowered while the sink runs.
func TestCheckpointBecomesTooLarge(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	stream := ordersStream(t, js)
	lower := func(size int32) {
		t.Helper()
		config := stream.CachedInfo().Config
		config.MaxMsgSize = size
		updateStream(t, js, config)
	}
	lower(2000)
	want := "that is the checkpoint: raise max_msg_size with 'nats stream edit shop_orders --max-msg-size'"
	wantError(t, s.Commit(t.Context(), sinktest.Entities(0, 3), largeCheckpoint(3, 2000)), true, nil, want)
	resume(t, s)
	wantFeed(t, s, 0)
	// The server reads its configuration without a lock when it refuses a message. The race
	// detector notices an update of the stream after that, unless a commit was made in between.
	must.Succeed(t, s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)))
	lower(-1)
	resume(t, s)
	must.Succeed(t, s.Commit(t.Context(), sinktest.Entities(2, 3), largeCheckpoint(5, 2000)))
	wantFeed(t, s, 5)
}
