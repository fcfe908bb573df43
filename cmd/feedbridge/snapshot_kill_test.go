package main

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The real program serves a topic, in two copies behind a load balancer, and the
// real program reads that as a feed, a snapshot first. All of them are killed at
// random while the snapshot is read. In the end the other topic has every entity
// of the snapshot once, and the feed behind it.
func TestNothingIsLostOrRepeatedWhenServersOfASnapshotAreKilled(t *testing.T) {
	t.Parallel()
	const size, later = 6000, 100
	broker, _ := startServer(t, "kafka", t.TempDir(), "127.0.0.1:0")
	topic := &stateTopic{t: t}
	var err error
	topic.client, err = kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic("shop"))
	must.Succeed(t, err)
	t.Cleanup(topic.client.Close)
	if _, err := kadm.NewClient(topic.client).CreateTopic(t.Context(), 1, 1, nil, "shop"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	topic.publish(size, func(i int) time.Time { return begun.Add(time.Duration(i) * time.Second) })
	want := topic.read(size)

	servers := [2]*url.URL{}
	var victims []func()
	for n := range servers {
		at := freeAddress(t)
		servers[n] = &url.URL{Scheme: "http", Host: at}
		victims = append(victims, startAgain(t, func() *exec.Cmd {
			cmd, _ := spawn(t, "feedbridge", []string{
				"FEEDBRIDGE_BUSES_MAIN_KAFKA_BROKERS=" + broker, "FEEDBRIDGE_ADMIN_LISTEN=", "FEEDBRIDGE_SERVE_LISTEN=" + at,
				"FEEDBRIDGE_SERVE_FEEDS_SHOP_PAGE_SIZE=50", "FEEDBRIDGE_SERVE_FEEDS_SHOP_SNAPSHOT_EVERY=1h", "FEEDBRIDGE_SERVE_FEEDS_SHOP_SNAPSHOT_KEY=/key",
			}, "run")
			return cmd
		}))
	}
	var asked atomic.Int64
	balancer := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(servers[asked.Add(1)%2])
			r.Out.Host = r.In.Host
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	})
	t.Cleanup(balancer.Close)

	k := newKilling(t)
	k.feedURL = balancer.URL + "/feeds/shop/latest"
	k.options = []string{"FEEDS_ORDERS_START=snapshot:" + balancer.URL + "/feeds/shop/snapshots/latest", "FEEDS_ORDERS_LIMITS_RATE=15"}
	victims = append(victims, k.startCopy())
	inSnapshot := len(want) - topic.overlap
	var at []uint64
	for n := range 6 {
		k.waitFor(k.published() + 1) // it reads on
		k.pause(40 * n)
		at = append(at, k.published())
		victims[n%3]()
	}
	t.Logf("killed after so many entities of a snapshot of %d: %v", inSnapshot, at)
	if at[2] > uint64(inSnapshot) {
		t.Error("not everything was killed in the middle of the snapshot")
	}
	topic.publish(size+later, func(int) time.Time { return time.Now() })
	for i := size; i < size+later; i++ {
		want = append(want, topic.id(i))
	}
	k.length, k.id = uint64(len(want)), func(i int) string { return want[i] }
	k.waitFor(k.length)
	k.pause(500) // for what should not come
	k.check()
}

// stateTopic is a topic of messages about things, one a second.
type stateTopic struct {
	t         *testing.T
	client    *kgo.Client
	published int
	// overlap is the number of messages of the topic that come from the feed, though they
	// are older than the snapshot or as old.
	overlap int
}

func (s *stateTopic) id(i int) string { return fmt.Sprintf("%d@shop", i) }

// message returns the thing that message i is about, and whether it deletes the thing.
func (s *stateTopic) message(i int) (key int, deletes bool) {
	r := rand.New(rand.NewPCG(7, uint64(i)))
	return r.IntN(4000), r.IntN(8) == 0
}

// publish publishes messages up to n.
func (s *stateTopic) publish(n int, at func(i int) time.Time) {
	var records []*kgo.Record
	for ; s.published < n; s.published++ {
		key, deletes := s.message(s.published)
		op := "PUT"
		if deletes {
			op = "DELETE"
		}
		records = append(records, &kgo.Record{
			Value: fmt.Appendf(nil, `{"key":"%d"}`, key), Timestamp: at(s.published),
			Headers: []kgo.RecordHeader{{Key: "Content-ID", Value: []byte(s.id(s.published))}, {Key: "Operation-Type", Value: []byte(op)}},
		})
	}
	must.Succeed(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

// read returns the messages, of the first n, that a client reads if it starts with the
// snapshot: first the state of those that are older than the snapshot by more than a minute and
// not in its last second, and then all others.
func (s *stateTopic) read(n int) []string {
	state := map[int]int{}
	for i := range n - 1 {
		key, deletes := s.message(i)
		state[key] = i
		if deletes {
			delete(state, key)
		}
	}
	var ids []string
	from := n - 1 - 60
	for _, i := range slices.Sorted(maps.Values(state)) {
		if i < from {
			ids = append(ids, s.id(i))
		}
	}
	for i := from; i < n; i++ {
		ids = append(ids, s.id(i))
	}
	s.overlap = n - from
	return ids
}
