package kafka_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

var _ sinktest.Log = (*kafka.Log)(nil)

// shop starts a cluster with a topic that feedbridge has nothing to do with, and
// returns it and a connection.
func shop(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *kafka.Conn) {
	t.Helper()
	c := startCluster(t, opts...)
	must.Succeed(t, c.CreateTopic("shop.orders", 2, nil))
	return c, connect(t, configFor(c))
}

// produce writes to partition 1 of the orders, each body by itself.
func produce(t *testing.T, c *kfake.Cluster, opts []kgo.Opt, bodies ...string) {
	t.Helper()
	cl, _ := admin(t, c, opts...)
	for _, body := range bodies {
		r := &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte(body)}
		must.Succeed(t, cl.ProduceSync(t.Context(), r).FirstErr())
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
	must.Succeed(t, c.DeleteRecords("shop.orders", 1, 5))
	wantLog(t, log, 5, 6, "5:c ")
	// Deleted messages are skipped.
	for to, text := range map[uint64]string{6: "5:c ", 5: "", 3: ""} {
		wantPart(t, log.Log, 0, to, text)
	}
	if now := spanOf(t, log).Epoch; now != epoch {
		t.Errorf("epoch %q after %q", now, epoch)
	}
}

func TestLogHasMessagesAsTheyAre(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		cl, _ := admin(t, c)
		at := time.UnixMilli(1700000000123)
		must.Succeed(t, cl.ProduceSync(t.Context(),
			&kgo.Record{Topic: "shop.orders", Partition: 1, Key: []byte("k"), Value: []byte("\x00\xff"), Timestamp: at, Headers: []kgo.RecordHeader{
				{Key: "b", Value: []byte("2")}, {Key: "a", Value: []byte("\xff")}, {Key: "b", Value: []byte("1")}, {Key: "", Value: nil},
			}},
			&kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte{}, Timestamp: at},
			&kgo.Record{Topic: "shop.orders", Partition: 1, Key: []byte("k"), Timestamp: at},
		).FirstErr())
		want := []feed.Record{
			{Position: 0, Time: at, Header: feed.Header{{Name: "b", Value: "2"}, {Name: "a", Value: "\xff"}, {Name: "b", Value: "1"}, {}}, Body: []byte("\x00\xff"), Key: []byte("k")},
			{Position: 1, Time: at, Header: feed.Header{}},
			{Position: 2, Time: at, Header: feed.Header{}, Key: []byte("k"), Tombstone: true},
		}
		must.Match(t, "records", want, records(t, conn.Log("shop.orders", 1), 0, 3), cmp.Comparer(bytes.Equal))
	})
}

func TestLogHasWhatIsCommittedAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		log := settled{conn.Log("shop.orders", 1)}
		r := func(body string) *kgo.Record {
			return &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte(body)}
		}
		produce(t, c, nil, "a")
		end := func(cl *kgo.Client, how kgo.TransactionEndTry) {
			t.Helper()
			must.Succeed(t, cl.EndTransaction(t.Context(), how))
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
	})
}

func TestLogOfACompactedTopicIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, policy := range []string{"compact", "compact,delete"} {
			c := startCluster(t)
			must.Succeed(t, c.CreateTopic("shop.orders", 1, map[string]string{"cleanup.policy": policy}))
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
	})
}

func TestLogWithoutATopic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}

// A topic that has been looked at is found as if for the first time.
func TestSpanIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]*kversion.Versions{"with ids": kversion.Stable(), "without ids": kversion.V2_7_0()} {
		t.Run(name, bubbled(func(t *testing.T) {
			c, conn := shop(t, kfake.NumBrokers(3), kfake.MaxVersions(version))
			produce(t, c, nil, "a", "b")
			log := conn.Log("shop.orders", 1)
			if span := spanOf(t, log); span.First != 0 || span.End != 2 {
				t.Errorf("%+v", span)
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
		}))
	}
}

func TestLogWhileTheBusIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, kfake.Ports(freePort(t)))
		cfg := configWithin(c, 5*time.Second)
		log := connect(t, cfg).Log("shop.orders", 1)
		must.Succeed(t, c.CreateTopic("shop.orders", 2, nil))
		produce(t, c, nil, "a")
		wantLog(t, log, 0, 1, "0:a ")
		c.Close()
		_, err := log.Span(t.Context())
		wantError(t, err, false, nil, `topic "shop.orders": no Kafka broker answers at`)
		for _, err := range log.Read(t.Context(), 0, 1) {
			wantError(t, err, false, nil, "no Kafka broker answers at")
		}
	})
}

func TestLogOfAnOldCluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t, kfake.MaxVersions(kversion.V2_5_0()))
		produce(t, c, nil, "a", "b")
		log := conn.Log("shop.orders", 1)
		wantLog(t, log, 0, 2, "0:a 1:b ")
		if epoch := spanOf(t, log).Epoch; epoch != "0" {
			t.Errorf("epoch %q, want 0", epoch)
		}
	})
}

// Whoever reads back needs to read the topic, and may lack the right to see how it
// is configured.
func TestRightsToReadBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		acl := func(topic string) kfake.ACL {
			return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
		}
		c := startCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "fb", "right", acl("shop.orders")))
		must.Succeed(t, errors.Join(c.CreateTopic("shop.orders", 1, nil), c.CreateTopic("shop.parcels", 1, nil)))
		cfg := configFor(c)
		cfg.SASL = kafka.SASL{Mechanism: kafka.Plain, Username: "fb", Password: "right"}
		conn := connect(t, cfg)
		wantLog(t, conn.Log("shop.orders", 0), 0, 0, "")
		_, err := conn.Log("shop.parcels", 0).Span(t.Context())
		wantError(t, err, true, nil, `topic "shop.parcels"`, "grant what "+docs.URL+"kafka.md#acls lists")
	})
}
