package nats_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// Many topics of one stream commit at the same time, as when their feeds start together. The server
// allows 20 incomplete batches in a stream here, and drops those beyond.
func TestCommitsOfManyTopicsAreNotDropped(t *testing.T) {
	t.Parallel()
	const topics = 200
	srv := runServer(t, &server.Options{JetStream: true, JetStreamLimits: server.JSLimitOpts{MaxBatchInflightPerStream: 20, MaxBatchTimeout: time.Hour}})
	js := admin(t, srv.ClientURL())
	createStream(t, js, jetstream.StreamConfig{
		Name: "feeds", Subjects: []string{"feeds.>", "_feedbridge.feeds.>"}, Storage: jetstream.MemoryStorage,
		AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
	})
	c := connect(t, nats.Config{URL: srv.ClientURL()})
	sinks := make([]*nats.Sink, topics)
	for n := range sinks {
		sinks[n] = c.Sink(nats.Topic{Feed: "f", Subject: fmt.Sprintf("feeds.%d", n), Stream: nats.Stream{Name: "feeds"}})
		resume(t, sinks[n])
		// Its commit reads the checkpoint after it has sent its entities, so its batch stays incomplete
		// until the server has answered.
		sinks[n].Rest()
	}
	var commits errgroup.Group
	for _, s := range sinks {
		commits.Go(func() error {
			cp := checkpoint.Checkpoint{Feed: "f", Source: "test", Cursor: feed.Cursor("1"), Count: 300, At: time.Now(), Writer: "a"}
			return s.Commit(t.Context(), sinktest.Entities(0, 300), cp)
		})
	}
	must.Succeed(t, commits.Wait())
}
