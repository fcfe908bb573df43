//go:build integration && unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

const (
	fleetEvery = 5 * time.Second
	// fleetPatience limits how long these tests wait for something. The limits of the product
	// are shorter; times are logged and not compared, because a busy machine makes them longer.
	fleetPatience = 3 * time.Minute
	// takeoverPatience limits how long the feeds of a copy may take to go on in the others. It is less
	// than the transaction timeout on Kafka, for which no takeover may wait.
	takeoverPatience = 50 * time.Second
)

// onEachBus runs a test on each kind of bus, on both at a time: most of it is waiting.
func onEachBus(t *testing.T, test func(t *testing.T, bus fleetBus)) {
	t.Helper()
	for kind, start := range map[string]func(*testing.T) fleetBus{"nats": newFleetNATS, "kafka": newFleetKafka} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// fleetBus is a bus in a process of its own.
type fleetBus interface {
	// config returns the configuration of the bus, which has the name main.
	config() string
	// read returns the Content-IDs that topics have now, in order.
	read(topics []string) map[string][]string
}

// fleetNATS is a NATS server.
type fleetNATS struct {
	t    *testing.T
	url  string
	once sync.Once
	js   jetstream.JetStream
}

func newFleetNATS(t *testing.T) fleetBus {
	url, _ := startServer(t, "nats", t.TempDir(), "-1")
	return &fleetNATS{t: t, url: url}
}

func (n *fleetNATS) config() string { return fmt.Sprintf("nats: {url: %q}", n.url) }

func (n *fleetNATS) read(topics []string) map[string][]string {
	n.once.Do(func() {
		nc, err := nats.Connect(n.url, nats.Timeout(patience), nats.MaxReconnects(-1))
		must.Succeed(n.t, err)
		n.t.Cleanup(nc.Close)
		if n.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(patience)); err != nil {
			n.t.Fatal(err)
		}
	})
	ids := map[string][]string{}
	for _, topic := range topics {
		consumer, err := n.js.OrderedConsumer(n.t.Context(), topic, jetstream.OrderedConsumerConfig{FilterSubjects: []string{topic}, HeadersOnly: true})
		if err != nil {
			n.t.Fatalf("%s: %v", topic, err)
		}
		batch, err := consumer.FetchNoWait(10_000)
		if err != nil {
			n.t.Fatalf("%s: %v", topic, err)
		}
		for m := range batch.Messages() {
			ids[topic] = append(ids[topic], m.Headers().Get("Content-ID"))
		}
	}
	return ids
}

// fleetKafka is a Kafka broker.
type fleetKafka struct {
	t      *testing.T
	broker *kafkatest.Broker
}

// newFleetKafka starts a broker that makes no entries in its indexes of offsets. The first entry of a
// partition makes a file larger, which takes some of the time of a busy disk. In a new broker it comes
// in all partitions at once, and for ten seconds all commits are slow.
func newFleetKafka(t *testing.T) fleetBus {
	return &fleetKafka{t, kafkatest.Start(t, kafkatest.Property("log.index.interval.bytes", "1073741824"))}
}

func (k *fleetKafka) config() string { return fmt.Sprintf("kafka: {brokers: [%q]}", k.broker.Addr()) }

func (k *fleetKafka) read(topics []string) map[string][]string {
	ctx, cancel := context.WithTimeout(k.t.Context(), kafkaPatience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.broker.Addr()))
	must.Succeed(k.t, err)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topics...)
	must.Succeed(k.t, err)
	left := map[string]int64{} // where each topic ends
	from := map[string]map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Err != nil || end.Partition != 0 {
			k.t.Fatalf("partition %d of %s: %v", end.Partition, end.Topic, end.Err)
		}
		if end.Offset > 0 {
			left[end.Topic], from[end.Topic] = end.Offset, map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
		}
	})
	consumer, err := kgo.NewClient(kgo.SeedBrokers(k.broker.Addr()), kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	must.Succeed(k.t, err)
	defer consumer.Close()
	ids := map[string][]string{}
	for len(left) > 0 && ctx.Err() == nil {
		consumer.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				ids[r.Topic] = append(ids[r.Topic], headerOf(recordOf(r), "Content-ID"))
			}
			if r.Offset >= left[r.Topic]-1 {
				delete(left, r.Topic)
			}
		})
	}
	return ids
}

// testFleet is a bus, some feeds, and copies of the program that share them.
type testFleet struct {
	t     *testing.T
	bus   fleetBus
	feeds map[string]*countedFeed
	// spare are served and not configured yet.
	spare  map[string]*countedFeed
	server *httptest.Server
	copies []*fleetCopy
	made   int // copies
}

// countedFeed counts the requests of each copy. A poll that finds nothing new is one request.
type countedFeed struct {
	*samplefeed.Feed
	mu    sync.Mutex
	polls map[int]int // by the number of the copy
}

func (f *countedFeed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	copyNumber, _ := strconv.Atoi(r.Header.Get("Copy"))
	f.mu.Lock()
	f.polls[copyNumber]++
	f.mu.Unlock()
	f.Feed.ServeHTTP(w, r)
}

// takePolls returns the requests of each copy since the last call.
func (f *countedFeed) takePolls() map[int]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	polls := f.polls
	f.polls = map[int]int{}
	return polls
}

// countPolls returns the number of requests since the last call of takePolls.
func (f *countedFeed) countPolls() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, polls := range f.polls {
		n += polls
	}
	return n
}

// fleetCopy is a copy of the program.
type fleetCopy struct {
	cmd    *exec.Cmd
	number int
	admin  string
}

func newTestFleet(t *testing.T, bus fleetBus, feeds int) *testFleet {
	f := &testFleet{t: t, bus: bus, feeds: map[string]*countedFeed{}, spare: map[string]*countedFeed{}}
	mux := http.NewServeMux()
	for n := range feeds + 10 { // some are configured later
		name := fmt.Sprintf("feed-%03d", n)
		feed := &countedFeed{Feed: samplefeed.New(samplefeed.Options{Base: "/" + name, PageSize: 10, Entity: samplefeed.Sized(50)}), polls: map[int]int{}}
		feed.SetLen(5)
		mux.Handle("/"+name+"/", feed)
		if n < feeds {
			f.feeds[name] = feed
		} else {
			f.spare[name] = feed
		}
	}
	f.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// start starts a copy. more is added to the configuration.
func (f *testFleet) start(more string) *fleetCopy {
	f.t.Helper()
	f.made++
	c := &fleetCopy{number: f.made, admin: freeAddress(f.t)}
	var text strings.Builder
	fmt.Fprintf(&text, "buses: {main: {%s}}\nfleet: {name: shop}\nadmin: {listen: %q}\n%sfeeds:\n", f.bus.config(), c.admin, more)
	for _, name := range slices.Sorted(maps.Keys(f.feeds)) {
		fmt.Fprintf(&text, "  %s: {url: \"%s/%s/latest\", format: datareplication, every: %v, headers: [\"Copy: %d\"]}\n", name, f.server.URL, name, fleetEvery, c.number)
	}
	path := filepath.Join(f.t.TempDir(), "feedbridge.yaml")
	must.Succeed(f.t, os.WriteFile(path, []byte(text.String()), 0o600))
	c.cmd, _ = spawn(f.t, "feedbridge", nil, "run", "-c", path)
	f.copies = append(f.copies, c)
	return c
}

// remove forgets a copy that has ended, or does not answer.
func (f *testFleet) remove(c *fleetCopy) {
	f.copies = slices.DeleteFunc(slices.Clone(f.copies), func(other *fleetCopy) bool { return other == c })
}

// status returns the status of a copy; nil if it does not answer.
func (f *testFleet) status(c *fleetCopy) *status.Process {
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.admin+"/status", nil)
	must.Succeed(f.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var s status.Process
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return nil
	}
	return &s
}

// running returns the feeds that a copy runs.
func (f *testFleet) running(c *fleetCopy) map[string]bool { return runningFeeds(f.status(c)) }

// runningFeeds returns the feeds that a copy has resumed from the bus. s may be nil.
func runningFeeds(s *status.Process) map[string]bool {
	feeds := map[string]bool{}
	if s != nil {
		for i := range s.Feeds {
			if row := &s.Feeds[i]; row.Owner == "" && slices.Contains([]string{"idle", "reading"}, row.State) {
				feeds[row.Feed] = true
			}
		}
	}
	return feeds
}

// owners returns the copy that runs each feed. ok reports whether each feed is run by one
// copy, and all copies have the same members.
func (f *testFleet) owners() (owners map[string]int, ok bool) {
	owners, ok = map[string]int{}, true
	for _, c := range f.copies {
		s := f.status(c)
		if s == nil || s.Fleet == nil || len(s.Fleet.Members) != len(f.copies) {
			ok = false
		}
		for feed := range runningFeeds(s) {
			if owners[feed] != 0 {
				ok = false
			}
			owners[feed] = c.number
		}
	}
	return owners, ok && len(owners) == len(f.feeds)
}

// await waits until a condition holds, and returns how long that took.
func (f *testFleet) await(limit time.Duration, what string, holds func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > limit {
			f.t.Fatalf("%s: not after %v", what, limit)
		}
		waitFor(f.t, 100*time.Millisecond)
	}
	took := time.Since(began)
	f.t.Logf("%s: %v", what, took.Round(10*time.Millisecond))
	return took
}

// awaitOwners waits until each feed is run by one copy.
func (f *testFleet) awaitOwners(what string) map[string]int {
	f.t.Helper()
	var owners map[string]int
	f.await(fleetPatience, what, func() (ok bool) {
		owners, ok = f.owners()
		return ok
	})
	load := map[int]int{}
	for _, c := range owners {
		load[c]++
	}
	f.t.Logf("feeds of each copy: %v", load)
	return owners
}

// awaitFeeds waits until other copies run the feeds that one had, and returns how long that took.
func (f *testFleet) awaitFeeds(what string, feeds map[string]bool) time.Duration {
	f.t.Helper()
	return f.await(takeoverPatience, what, func() bool {
		left := maps.Clone(feeds)
		for _, c := range f.copies {
			running := f.running(c)
			maps.DeleteFunc(left, func(feed string, _ bool) bool { return running[feed] })
		}
		return len(left) == 0
	})
}

// grow adds entities to each feed.
func (f *testFleet) grow() {
	for _, feed := range f.feeds {
		feed.SetLen(feed.Len() + 7)
	}
}

// keepGrowing adds entities to each feed every second until stop is called. So commits are in flight
// at any time.
func (f *testFleet) keepGrowing() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var growing sync.WaitGroup
	growing.Go(func() {
		for ctx.Err() == nil {
			f.grow()
			_ = retry.Sleep(ctx, time.Second)
		}
	})
	return func() {
		cancel()
		growing.Wait()
	}
}

// awaitPolls waits until each feed has been polled so many times from now on.
func (f *testFleet) awaitPolls(times int) time.Duration {
	f.t.Helper()
	for _, feed := range f.feeds {
		feed.takePolls()
	}
	return f.await(fleetPatience, fmt.Sprintf("each feed is polled %d times", times), func() bool {
		for _, feed := range f.feeds {
			if feed.countPolls() < times {
				return false
			}
		}
		return true
	})
}

// checkTopics waits until all topics have what their feeds have, and compares them.
func (f *testFleet) checkTopics() {
	f.t.Helper()
	names := slices.Sorted(maps.Keys(f.feeds))
	missing := names
	for deadline := time.Now().Add(fleetPatience); len(missing) > 0 && time.Now().Before(deadline); waitFor(f.t, 100*time.Millisecond) {
		ids := f.bus.read(missing)
		missing = slices.DeleteFunc(slices.Clone(missing), func(name string) bool { return len(ids[name]) >= f.feeds[name].Len() })
	}
	ids := f.bus.read(names)
	for _, name := range names {
		want := make([]string, f.feeds[name].Len())
		for i := range want {
			want[i] = fmt.Sprintf("%d@sample", i)
		}
		for i, id := range ids[name] {
			ids[name][i] = strings.Trim(id, "<>")
		}
		if !slices.Equal(ids[name], want) {
			f.t.Errorf("%s has %d entities %v, want %d", name, len(ids[name]), ids[name], len(want))
		}
	}
}

// startThree starts three copies and waits until they share the feeds.
func startThree(t *testing.T, bus fleetBus, feeds int) (*testFleet, map[string]int) {
	f := newTestFleet(t, bus, feeds)
	for range 3 {
		f.start("")
	}
	return f, f.awaitOwners("three copies share the feeds")
}
