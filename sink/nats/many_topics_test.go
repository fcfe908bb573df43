package nats_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// The number of requests at a feed's start does not grow with the topics of the stream. The server
// syncs its files for each commit, so MANY_TOPICS=10000 takes minutes.
func TestManyTopicsInOneStream(t *testing.T) {
	topics := 1_000
	if testing.Short() {
		topics = 300
	}
	if n, err := strconv.Atoi(os.Getenv("MANY_TOPICS")); err == nil {
		topics = n
	}
	srv := runServer(t, &server.Options{JetStream: true})
	js := admin(t, srv.ClientURL())
	createStream(t, js, jetstream.StreamConfig{
		Name: "feeds", Subjects: []string{"feeds.>", "_feedbridge.feeds.>"},
		AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
	})
	topic := func(n int) nats.Topic {
		subject := fmt.Sprintf("feeds.%d", n)
		return nats.Topic{Feed: subject, Subject: subject, Stream: nats.Stream{Name: "feeds"}}
	}
	cfg := nats.Config{URL: srv.ClientURL()}
	c := connect(t, cfg)
	publish := func(n int) error {
		snk := c.Sink(topic(n))
		defer snk.Close()
		cp, err := snk.Resume(t.Context())
		if err != nil || !cp.IsZero() {
			return fmt.Errorf("topic %d: %+v, %w", n, cp, err)
		}
		cp = checkpoint.Checkpoint{Feed: topic(n).Feed, Source: "test", Cursor: feed.Cursor("3"), Count: 3, At: time.Now(), Writer: "a"}
		return snk.Commit(t.Context(), sinktest.Entities(0, 3), cp)
	}
	// received returns the bytes that a new process needs to resume a topic.
	received := func(n int) uint64 {
		c := connect(t, cfg)
		c.RequestOnce()
		before := c.Received()
		snk := c.Sink(topic(n))
		defer snk.Close()
		cp, err := snk.Resume(t.Context())
		if err != nil || cp.Count != 3 {
			t.Fatalf("topic %d: %+v, %v", n, cp, err)
		}
		if got := snk.IDs().Len(); got != 3 {
			t.Errorf("topic %d: %d IDs, want 3", n, got)
		}
		return c.Received() - before
	}
	must.Succeed(t, publish(0))
	alone := received(0)
	var publishing errgroup.Group
	publishing.SetLimit(64)
	for n := 1; n < topics; n++ {
		publishing.Go(func() error { return publish(n) })
	}
	must.Succeed(t, publishing.Wait())
	for _, n := range []int{0, topics / 2, topics - 1} {
		if among := received(n); among > alone+alone/4 {
			t.Errorf("topic %d needs %d bytes to resume among %d topics, and %d alone", n, among, topics, alone)
		}
	}
}

// subjectsOfIDs commits entities to a topic, and returns the subjects of the consumers with which a new
// sink then loads their IDs.
func subjectsOfIDs(t *testing.T, urls string, topic nats.Topic, entities int) []string {
	t.Helper()
	writer := connect(t, nats.Config{URL: urls}).Sink(topic)
	resumeAndCommit(t, writer, 0, entities)
	nc, err := natsgo.Connect(urls, natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	defer nc.Close()
	asked, err := nc.SubscribeSync("$JS.API.CONSUMER.CREATE.>")
	must.Succeed(t, err)
	must.Succeed(t, nc.Flush())
	fresh := connect(t, nats.Config{URL: urls}).Sink(topic)
	resume(t, fresh)
	wantHeld(t, fresh, entities, entities)
	must.Succeed(t, nc.Flush())
	var got []string
	seen := map[string]bool{} // a request that is repeated names the same consumer
	for {
		msg, err := asked.NextMsg(time.Millisecond)
		if err != nil {
			break
		}
		if seen[msg.Subject] {
			continue
		}
		seen[msg.Subject] = true
		var request struct{ Config jetstream.ConsumerConfig }
		must.Succeed(t, json.Unmarshal(msg.Data, &request))
		// The client sends one subject as FilterSubject or as FilterSubjects.
		got = append(got, cmp.Or(request.Config.FilterSubject, strings.Join(request.Config.FilterSubjects, ",")))
	}
	return got
}

// A server finds the messages of one subject by an index. For several it walks through a stream in
// memory, so that 10,000 feeds in one stream took minutes to start again.
func TestIDsAreLoadedFromOneSubject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entities    int
		deadLetters bool
		want        []string
	}{
		"entities":                  {3, false, []string{"shop.orders"}},
		"entities and dead letters": {3, true, []string{"shop.orders,shop.orders.dead,_feedbridge.shop.orders"}},
		"none":                      {0, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, t.TempDir(), "127.0.0.1:0")
			topic := orders()
			topic.DeadLetters = test.deadLetters
			got := subjectsOfIDs(t, server.URL(), topic, test.entities)
			if !slices.Equal(got, test.want) {
				t.Errorf("it has read %q, want %q", got, test.want)
			}
		})
	}
}
