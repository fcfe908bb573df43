package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

var _ sinktest.Log = (*kafka.Log)(nil)

// shop starts a cluster with a topic that feedbridge has nothing to do with, and
// returns it and a connection.
func shop(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *kafka.Conn) {
	t.Helper()
	c := startCluster(t, opts...)
	if err := c.CreateTopic("shop.orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	return c, connect(t, configFor(c))
}

// produce writes to partition 1 of the orders, each body by itself.
func produce(t *testing.T, c *kfake.Cluster, opts []kgo.Opt, bodies ...string) {
	t.Helper()
	cl, _ := admin(t, c, opts...)
	for _, body := range bodies {
		r := &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte(body)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// bodies are the positions and bodies of records.
func bodies(all []feed.Record) (text string) {
	for _, r := range all {
		text += fmt.Sprintf("%d:%s ", r.Position, r.Body)
	}
	return text
}

// wantLog checks the positions and messages of a log.
func wantLog(t *testing.T, log sinktest.Log, first, end uint64, text string) {
	t.Helper()
	span := spanOf(t, log)
	if span.First != first || span.End != end {
		t.Errorf("positions %+v, want %d to %d", span, first, end)
	}
	var all []feed.Record
	for r, err := range log.Read(t.Context(), span.First, span.End) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if got := bodies(all); got != text {
		t.Errorf("%q, want %q", got, text)
	}
}

func TestLogOfATopicThatOthersWrote(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	log := settled{conn.Log("shop.orders", 1)}
	wantLog(t, log, 0, 0, "")
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		produce(t, c, []kgo.Opt{kgo.ProducerBatchCompression(codec)}, "a"+strings.Repeat("b", 100))
	}
	produce(t, c, []kgo.Opt{kgo.DisableIdempotentWrite()}, "c")
	b := "a" + strings.Repeat("b", 100)
	wantLog(t, log, 0, 6, fmt.Sprintf("0:%s 1:%[1]s 2:%[1]s 3:%[1]s 4:%[1]s 5:c ", b))
	wantLog(t, conn.Log("shop.orders", 0), 0, 0, "")
	epoch := spanOf(t, log).Epoch
	if err := c.DeleteRecords("shop.orders", 1, 5); err != nil {
		t.Fatal(err)
	}
	wantLog(t, log, 5, 6, "5:c ")
	// Deleted messages are skipped.
	for to, text := range map[uint64]string{6: "5:c ", 5: "", 3: ""} {
		if got := bodies(records(t, log.Log, 0, to)); got != text {
			t.Errorf("before %d: %q, want %q", to, got, text)
		}
	}
	if now := spanOf(t, log).Epoch; now != epoch {
		t.Errorf("epoch %q after %q", now, epoch)
	}
}

func TestLogHasMessagesAsTheyAre(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	cl, _ := admin(t, c)
	at := time.UnixMilli(1700000000123)
	if err := cl.ProduceSync(t.Context(),
		&kgo.Record{Topic: "shop.orders", Partition: 1, Key: []byte("k"), Value: []byte("\x00\xff"), Timestamp: at, Headers: []kgo.RecordHeader{
			{Key: "b", Value: []byte("2")}, {Key: "a", Value: []byte("\xff")}, {Key: "b", Value: []byte("1")}, {Key: "", Value: nil},
		}},
		&kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte{}, Timestamp: at},
		&kgo.Record{Topic: "shop.orders", Partition: 1, Key: []byte("k"), Timestamp: at},
	).FirstErr(); err != nil {
		t.Fatal(err)
	}
	want := []feed.Record{
		{Position: 0, Time: at, Header: feed.Header{{Name: "b", Value: "2"}, {Name: "a", Value: "\xff"}, {Name: "b", Value: "1"}, {}}, Body: []byte("\x00\xff"), Key: []byte("k")},
		{Position: 1, Time: at, Header: feed.Header{}},
		{Position: 2, Time: at, Header: feed.Header{}, Key: []byte("k"), Tombstone: true},
	}
	if diff := cmp.Diff(want, records(t, conn.Log("shop.orders", 1), 0, 3), cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestLogHasWhatIsCommittedAlone(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	log := settled{conn.Log("shop.orders", 1)}
	r := func(body string) *kgo.Record {
		return &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte(body)}
	}
	produce(t, c, nil, "a")
	end := func(cl *kgo.Client, how kgo.TransactionEndTry) {
		t.Helper()
		if err := cl.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	end(begin(t, c, "x", r("b"), r("c")), kgo.TryCommit) // 1 and 2, and a marker
	end(begin(t, c, "x", r("torn")), kgo.TryAbort)       // 4, and a marker
	wantLog(t, log, 0, 6, "0:a 1:b 2:c ")
	open := begin(t, c, "y", r("d"))
	// It holds back the records behind it, before its marker is written.
	produce(t, c, nil, "e")
	wantLog(t, log.Log, 0, 6, "0:a 1:b 2:c ")
	end(open, kgo.TryCommit)
	wantLog(t, log, 0, 9, "0:a 1:b 2:c 6:d 7:e ")
}

func TestLogOfACompactedTopicIsRefused(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"compact", "compact,delete"} {
		c := startCluster(t)
		if err := c.CreateTopic("shop.orders", 1, map[string]string{"cleanup.policy": policy}); err != nil {
			t.Fatal(err)
		}
		log := connect(t, configFor(c)).Log("shop.orders", 0)
		_, err := log.Span(t.Context())
		wantError(t, err, true, nil, "it is compacted (cleanup.policy="+policy+")", "name a topic that is not")
		for _, err := range log.Read(t.Context(), 0, 1) {
			wantError(t, err, true, nil, "it is compacted")
		}
		// It is looked at again after that.
		_, adm := admin(t, c)
		remove := "delete"
		if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &remove}}, "shop.orders"); err != nil {
			t.Fatal(err)
		}
		spanOf(t, log)
	}
}

func TestLogOfTheCheckpointsIsRefused(t *testing.T) {
	t.Parallel()
	_, conn := shop(t)
	resume(t, conn.Sink(orders())) // creates it
	_, err := conn.Log(checkpoints, 0).Span(t.Context())
	wantError(t, err, true, nil, "it has the checkpoints of feeds, and no entities")
}

func TestLogWithoutATopic(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	for _, test := range []struct {
		topic     string
		partition int32
		want      string
	}{
		{"shop.parcels", 0, `topic "shop.parcels": the topic does not exist`},
		{"shop.orders", 2, `topic "shop.orders": it has no partition 2, only 0 to 1; name one of these with serve.feeds.NAME.from.partition or --partition`},
		{"shop.orders", -1, `topic "shop.orders": it has no partition -1`},
	} {
		log := conn.Log(test.topic, test.partition)
		_, err := log.Span(t.Context())
		wantError(t, err, false, feed.ErrNoTopic, test.want)
		for _, err := range log.Read(t.Context(), 0, 1) {
			wantError(t, err, false, feed.ErrNoTopic, test.want)
		}
	}
	if c.TopicInfo("shop.parcels") != nil {
		t.Error("it was created by being looked at")
	}
}

func TestLogOfATopicThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	log := conn.Log("shop.orders", 1)
	produceBatch(t, c, "a", "b", "b")
	before := spanOf(t, log).Epoch
	// The rest of the batch is at hand now.
	if got := bodies(records(t, log, 0, 1)); got != "0:a " {
		t.Errorf("%q", got)
	}
	if err := errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)); err != nil {
		t.Fatal(err)
	}
	produceBatch(t, c, "c", "d", "e")
	if now := spanOf(t, log).Epoch; now == before {
		t.Errorf("the epoch is %q still", now)
	}
	if got := bodies(records(t, log, 1, 2)); got != "1:d " {
		t.Errorf("%q", got)
	}
	wantLog(t, log, 0, 3, "0:c 1:d 2:e ")
}

// Who has not asked for the span again is not given messages of both.
func TestLogOfATopicThatIsMadeAnewIsOfOneTopic(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]*kversion.Versions{"fetched by id": kversion.Stable(), "fetched by name": kversion.V3_0_0()} {
		for looks := range 3 {
			t.Run(fmt.Sprintf("%s, looked at %d times", name, looks), func(t *testing.T) {
				t.Parallel()
				c, conn := shop(t, kfake.MaxVersions(version))
				log := conn.Log("shop.orders", 1)
				produceBatch(t, c, "a", "b")
				produceBatch(t, c, "a", "b")
				for range looks {
					spanOf(t, log)
				}
				if got := bodies(records(t, log, 0, 1)); got != "0:a " {
					t.Errorf("%q", got)
				}
				if err := errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)); err != nil {
					t.Fatal(err)
				}
				produceBatch(t, c, "c", "d", "e", "f")
				var all []feed.Record
				for r, err := range log.Read(t.Context(), 1, 4) {
					if err != nil {
						wantError(t, err, false, feed.ErrNoTopic, "was deleted and created again while it was read")
						break
					}
					all = append(all, r)
				}
				// If the topic was not looked at twice, or a second ago, it is now.
				if got := bodies(all); got != "1:d 2:e 3:f " && (got != "1:b " || looks < 2) {
					t.Errorf("%q", got)
				}
			})
		}
	}
}

// A leader that is new at it does not know yet how much is committed.
func TestSpanOfALeaderThatIsBehind(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	produce(t, c, nil, "a", "b")
	log := conn.Log("shop.orders", 1)
	want := spanOf(t, log)
	var asked atomic.Bool
	c.ControlKey(kmsg.Fetch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		asked.Store(true)
		fetch := req.(*kmsg.FetchRequest)
		resp := fetch.ResponseKind().(*kmsg.FetchResponse)
		topic, partition := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.TopicID, partition.Partition = fetch.Topics[0].TopicID, 1
		partition.HighWatermark, partition.LastStableOffset, partition.LogStartOffset = 2, 1, 0
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if got := spanOf(t, log); got != want || !asked.Load() {
		t.Errorf("%+v, want %+v; asked: %v", got, want, asked.Load())
	}
}

// A topic that has been looked at costs one request to be looked at again, if the
// cluster knows topics by their ids, and is found as if for the first time.
func TestSpanIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version *kversion.Versions
		byID    bool
	}{
		"fetched by id":   {kversion.Stable(), true},
		"fetched by name": {kversion.V3_0_0(), false},
		"without ids":     {kversion.V2_7_0(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, conn := shop(t, kfake.NumBrokers(3), kfake.MaxVersions(test.version))
			produce(t, c, nil, "a", "b")
			log := conn.Log("shop.orders", 1)
			spanOf(t, log)
			spanOf(t, log) // which connects
			var requests atomic.Int64
			for key := range int16(100) {
				c.ControlKey(key, func(kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					requests.Add(1)
					return nil, nil, false
				})
			}
			if span := spanOf(t, log); span.First != 0 || span.End != 2 || (requests.Load() == 1) != test.byID {
				t.Errorf("%+v, with %d requests", span, requests.Load())
			}
			open := begin(t, c, "x", &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte("c")})
			for _, step := range []struct {
				name   string
				change func() error
			}{
				{"a transaction is under way", func() error { produce(t, c, nil, "d"); return nil }},
				{"it is committed", func() error { return open.EndTransaction(t.Context(), kgo.TryCommit) }},
				{"retention", func() error { return c.DeleteRecords("shop.orders", 1, 2) }},
				{"another leader", func() error {
					return c.MoveTopicPartition("shop.orders", 1, (c.LeaderFor("shop.orders", 1)+1)%3)
				}},
				{"deleted", func() error { return c.DeleteTopic("shop.orders") }},
				{"made anew", func() error { return c.CreateTopic("shop.orders", 2, nil) }},
				{"growth of another", func() error { produce(t, c, nil, "e"); return nil }},
			} {
				if err := step.change(); err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
				fresh := conn.Log("shop.orders", 1)
				if step.name == "it is committed" {
					spanOf(t, settled{fresh})
				}
				want, wantErr := fresh.Span(t.Context())
				got, err := log.Span(t.Context())
				if got != want || errors.Is(err, feed.ErrNoTopic) != (wantErr != nil) {
					t.Errorf("%s: got %+v, %v, want %+v, %v", step.name, got, err, want, wantErr)
				}
			}
		})
	}
}

// Prefetched records are not kept for a reader that has stopped.
func TestLogForgetsWhatNobodyGoesOnWith(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	produceBatch(t, c, "a", "b", "c")
	log := conn.Log("shop.orders", 1)
	if got := bodies(records(t, log, 0, 1)); got != "0:a " {
		t.Errorf("%q", got)
	}
	until(t, func() bool { return log.Kept() == 0 })
}

// A cluster before Kafka 2.8 gives topics no ids. A topic that was created again cannot be
// detected there, so no records are kept: they could be another topic's.
func TestLogOfATopicThatIsMadeAnewWithoutIDs(t *testing.T) {
	t.Parallel()
	c, conn := shop(t, kfake.MaxVersions(kversion.V2_7_0()))
	log := conn.Log("shop.orders", 1)
	produceBatch(t, c, "a", "b", "b")
	if got := bodies(records(t, log, 0, 1)); got != "0:a " {
		t.Errorf("%q", got)
	}
	if err := errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)); err != nil {
		t.Fatal(err)
	}
	produceBatch(t, c, "c", "d", "e")
	if got := bodies(records(t, log, 1, 2)); got != "1:d " {
		t.Errorf("%q", got)
	}
}

// The kept part of a batch begins where its reader stopped.
func TestLogIsReadFromInFrontOfWhatIsKept(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	produceBatch(t, c, "a", "b", "c", "d", "e")
	log := conn.Log("shop.orders", 1)
	for r, err := range log.Read(t.Context(), 0, 5) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Position == 3 {
			break
		}
	}
	for from, want := range map[uint64]string{1: "1:b 2:c 3:d 4:e ", 3: "3:d 4:e ", 4: "4:e "} {
		if got := bodies(records(t, log, from, 5)); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
}

// produceBatch writes bodies to partition 1 of the orders in one batch.
func produceBatch(t *testing.T, c *kfake.Cluster, bodies ...string) {
	t.Helper()
	cl, _ := admin(t, c, kgo.ManualFlushing(), kgo.BrokerMaxWriteBytes(100<<20), kgo.ProducerBatchMaxBytes(50<<20))
	for _, body := range bodies {
		cl.Produce(t.Context(), &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte(body)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A page fetches about as much as it needs from the cluster, however well it compresses.
// Sequential readers get their pages from larger fetches, and no record is fetched twice, even
// if a reader looks behind the page and stops.
func TestPagesAreFetchedOnce(t *testing.T) {
	t.Parallel()
	const batches, size, page = 60, 90, 30
	c, conn := shop(t)
	for range batches {
		bodies := make([]string, size)
		for i := range bodies {
			bodies[i] = strings.Repeat("x", 1024)
		}
		produceBatch(t, c, bodies...)
	}
	var mu sync.Mutex
	var asked []int32
	c.ControlKey(kmsg.Fetch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, req.(*kmsg.FetchRequest).Topics[0].Partitions[0].PartitionMaxBytes)
		return nil, nil, false
	})
	for name, test := range map[string]struct {
		behind      uint64
		backward    bool
		least, most int // fetches
	}{
		"in order":                   {0, false, 3, 8},
		"in order, looking behind":   {8, false, 3, 8},
		"from the last to the first": {0, true, batches * size / page / 2, batches*size/page + 10},
	} {
		mu.Lock()
		asked = nil
		mu.Unlock()
		log := conn.Log("shop.orders", 1)
		n := 0
		for from := uint64(0); from < batches*size; from += page {
			from := from
			if test.backward {
				from = batches*size - page - from
			}
			for r, err := range log.Read(t.Context(), from, min(from+page+test.behind, batches*size)) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Position >= from+page {
					break
				}
				n++
			}
		}
		if n != batches*size {
			t.Errorf("%s: %d records, want %d", name, n, batches*size)
		}
		mu.Lock()
		if n := len(asked); n < test.least || n > test.most {
			t.Errorf("%s: %d fetches, want %d to %d, of these sizes: %v", name, n, test.least, test.most, asked)
		}
		// A record is supposed to take a kilobyte until one has been seen.
		sorted := slices.Sorted(slices.Values(asked))
		if asked[0] > (page+8)*1280 || test.backward && sorted[len(sorted)/2] > asked[0]/4 {
			t.Errorf("%s: fetches of these sizes: %v", name, asked)
		}
		mu.Unlock()
	}
}

// produceLarge writes n messages, of which a fetch gets two at most.
func produceLarge(t *testing.T, c *kfake.Cluster, n int) {
	t.Helper()
	for range n {
		produce(t, c, []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}, strings.Repeat("x", 600<<10))
	}
}

func TestTopicIsMadeAnewWhileALogIsRead(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	produceLarge(t, c, 4)
	n := 0
	for _, err := range conn.Log("shop.orders", 1).Read(t.Context(), 0, 4) {
		if n++; n == 1 {
			if err := errors.Join(err, c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)); err != nil {
				t.Fatal(err)
			}
			produce(t, c, nil, "0", "1", "2", "3")
			continue
		}
		if err != nil {
			wantError(t, err, false, nil, "was deleted and created again while it was read")
			return
		}
	}
	t.Errorf("%d records and no error", n)
}

func TestMessagesAreDeletedWhileALogIsRead(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	produceLarge(t, c, 8)
	var got []uint64
	for r, err := range conn.Log("shop.orders", 1).Read(t.Context(), 0, 8) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, r.Position); len(got) == 1 {
			if err := c.DeleteRecords("shop.orders", 1, 6); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The first fetch had another of them, perhaps.
	if n := len(got); n < 3 || n > 5 || got[n-2] != 6 || got[n-1] != 7 {
		t.Errorf("records %v, want 0, perhaps some, 6 and 7", got)
	}
}

func TestLeaderMovesWhileALogIsRead(t *testing.T) {
	t.Parallel()
	c, conn := shop(t, kfake.NumBrokers(3))
	produceLarge(t, c, 5)
	n := 0
	for _, err := range conn.Log("shop.orders", 1).Read(t.Context(), 0, 5) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if err := c.MoveTopicPartition("shop.orders", 1, (c.LeaderFor("shop.orders", 1)+1)%3); err != nil {
			t.Fatal(err)
		}
	}
	if n != 5 {
		t.Errorf("%d records, want 5", n)
	}
}

func TestLogWhileTheBusIsAway(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.Ports(freePort(t)))
	cfg := configFor(c)
	cfg.Timeout = 5 * time.Second
	log := connect(t, cfg).Log("shop.orders", 1)
	if err := c.CreateTopic("shop.orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, c, nil, "a")
	wantLog(t, log, 0, 1, "0:a ")
	c.Close()
	_, err := log.Span(t.Context())
	wantError(t, err, false, nil, `topic "shop.orders": no Kafka broker answers at`)
	for _, err := range log.Read(t.Context(), 0, 1) {
		wantError(t, err, false, nil, "no Kafka broker answers at")
	}
}

func TestLogOfAnOldCluster(t *testing.T) {
	t.Parallel()
	c, conn := shop(t, kfake.MaxVersions(kversion.V2_5_0()))
	produce(t, c, nil, "a", "b")
	log := conn.Log("shop.orders", 1)
	wantLog(t, log, 0, 2, "0:a 1:b ")
	if epoch := spanOf(t, log).Epoch; epoch != "0" {
		t.Errorf("epoch %q, want 0", epoch)
	}
}

// Whoever reads back needs to read the topic, and may lack the right to see how it
// is configured.
func TestRightsToReadBack(t *testing.T) {
	t.Parallel()
	acl := func(topic string) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	}
	c := startCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "fb", "right", acl("shop.orders")))
	if err := errors.Join(c.CreateTopic("shop.orders", 1, nil), c.CreateTopic("shop.parcels", 1, nil)); err != nil {
		t.Fatal(err)
	}
	cfg := configFor(c)
	cfg.SASL = kafka.SASL{Mechanism: kafka.Plain, Username: "fb", Password: "right"}
	conn := connect(t, cfg)
	wantLog(t, conn.Log("shop.orders", 0), 0, 0, "")
	_, err := conn.Log("shop.parcels", 0).Span(t.Context())
	wantError(t, err, true, nil, `topic "shop.parcels"`, "grant what the documentation lists")
}

func TestLogIsReadByManyAtOnce(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, orders())
	for n := 0; n < 3000; n += 300 {
		commit(t, s, n, n+300)
	}
	log := s.Log(0)
	span := spanOf(t, settled{log})
	all := records(t, log, span.First, span.End)
	if len(all) != 3000 {
		t.Fatalf("%d records, want 3000", len(all))
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			var got []feed.Record
			step := uint64(100 + 250*i)
			for from := span.First; from < span.End; from += step {
				for r, err := range log.Read(t.Context(), from, min(from+step, span.End)) {
					if err != nil {
						t.Error(err)
						return
					}
					got = append(got, r)
				}
			}
			if diff := cmp.Diff(all, got); diff != "" {
				t.Errorf("in steps of %d (-want +got):\n%s", step, diff)
			}
		})
	}
	group.Wait()
}

func TestLogIsCancelledWhileItIsRead(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	produceLarge(t, c, 4)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range conn.Log("shop.orders", 1).Read(ctx, 0, 4) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("error %v, want that the context was cancelled", last)
	}
}

// BenchmarkLog compares reading a topic page by page with a client that reads it
// from its first message to its last.
func BenchmarkLog(b *testing.B) {
	const total, size = 50_000, 500
	c := startCluster(b)
	s := connect(b, configFor(c)).Sink(orders())
	resume(b, s)
	for n := 0; n < total; n += size {
		entities := sinktest.Entities(n, size)
		for i := range entities {
			entities[i].Body = bytes.Repeat([]byte("x"), 1024)
		}
		if err := s.Commit(b.Context(), entities, sinktest.At(n+size), nil); err != nil {
			b.Fatal(err)
		}
	}
	rate := func(b *testing.B, records int) {
		b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
	}
	b.Run("pages", func(b *testing.B) {
		log := s.Log(0)
		span := spanOf(b, settled{log})
		n, from := 0, span.First
		for b.Loop() {
			n += len(records(b, log, from, min(from+size, span.End)))
			if from += size; from >= span.End {
				from = span.First
			}
		}
		rate(b, n)
	})
	b.Run("bare", func(b *testing.B) {
		n := 0
		var cl *kgo.Client
		for b.Loop() {
			if n%total == 0 {
				cl, _ = admin(b, c, kgo.ConsumeTopics("shop.orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			}
			n += len(cl.PollRecords(b.Context(), size).Records())
		}
		rate(b, n)
	})
}

// What compresses well takes much more here than it takes to fetch.
func TestLogHoldsLittleOfWhatCompressesWell(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	const size, batches, batch = 64 << 10, 100, 4
	for range batches {
		bodies := make([]string, batch)
		for i := range bodies {
			bodies[i] = strings.Repeat("x", size)
		}
		produceBatch(t, c, bodies...)
	}
	var fetches atomic.Int64
	c.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	log := conn.Log("shop.orders", 1)
	for from := uint64(0); from < batches*batch; from += 10 {
		if n := len(records(t, log, from, from+10)); n != 10 || log.KeptBytes() > 5<<20 {
			t.Errorf("%d records from %d, want 10; %d bytes are kept", n, from, log.KeptBytes())
		}
	}
	// It is not read ahead more than can be kept.
	if n := fetches.Load(); n > batches/4 {
		t.Errorf("%d fetches", n)
	}
	large := make([]string, 200)
	for i := range large {
		large[i] = strings.Repeat("x", size)
	}
	produceBatch(t, c, large...)
	at := uint64(batches * batch)
	for i := range uint64(3) {
		if n := len(records(t, log, at+i, at+i+1)); n != 1 || log.KeptBytes() > 5<<20 {
			t.Errorf("%d records at %d, want 1; %d bytes are kept", n, at+i, log.KeptBytes())
		}
	}
}

// A topic that was created again is checked as a new one.
func TestLogOfATopicThatIsMadeAnewCompacted(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	produce(t, c, nil, "a", "b")
	log := conn.Log("shop.orders", 1)
	spanOf(t, log)
	spanOf(t, log)
	if err := errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, map[string]string{"cleanup.policy": "compact"})); err != nil {
		t.Fatal(err)
	}
	produce(t, c, nil, "c", "d", "e")
	for i := range 3 {
		_, err := log.Span(t.Context())
		wantError(t, err, true, nil, "it is compacted")
		for r, err := range log.Read(t.Context(), 0, 3) {
			if err == nil {
				t.Errorf("look %d: message %d is read", i, r.Position)
			}
		}
	}
}

func TestLogHoldsLittleOfLargeHeaders(t *testing.T) {
	t.Parallel()
	c, conn := shop(t)
	cl, _ := admin(t, c, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	head := []kgo.RecordHeader{{Key: "x", Value: []byte(strings.Repeat("x", 64<<10))}}
	const batches = 100
	for range batches {
		var rs []*kgo.Record
		for range 8 {
			rs = append(rs, &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte("b"), Headers: head})
		}
		if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	log := conn.Log("shop.orders", 1)
	worst := 0
	for from := uint64(0); from+10 < batches*8; from += 10 {
		if n := len(records(t, log, from, from+10)); n != 10 {
			t.Errorf("%d records", n)
		}
		worst = max(worst, log.KeptBytes())
	}
	if worst > 5<<20 || worst == 0 {
		t.Errorf("%d bytes are kept at most", worst)
	}
}
