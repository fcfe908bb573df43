package kafka_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// stampRecords makes the cluster give each batch of records a time of its own, which is earlier than
// that of the batch before, as brokers whose clocks differ do in a topic whose
// message.timestamp.type is LogAppendTime.
func stampRecords(c *kfake.Cluster) {
	clock := time.Now()
	c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, of := range r.(*kmsg.ProduceRequest).Topics {
			for _, p := range of.Partitions {
				const crc, attributes, first, newest = 17, 21, 27, 35 // where they begin in the batch
				clock = clock.Add(-time.Minute)
				at := uint64(clock.UnixMilli())
				binary.BigEndian.PutUint64(p.Records[first:], at)
				binary.BigEndian.PutUint64(p.Records[newest:], at)
				binary.BigEndian.PutUint32(p.Records[crc:], crc32.Checksum(p.Records[attributes:], crc32.MakeTable(crc32.Castagnoli)))
			}
		}
		return nil, nil, false
	})
}

func TestMarksLieInManyPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Partitions, topic.Key, topic.Window = 4, "/n", 10
		s, _, more := open(t, topic)
		entities := marked(0, 300)
		commitMarked(t, s, entities, 300)
		entities[7].Mark = "v1;changed"
		commitMarked(t, s, entities[7:8], 301)
		wantMarks(t, more(), entities)
	})
}

// A commit may have several versions of an entry, with different keys and so in different partitions.
func TestMarksOfVersionsInOneCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Partitions, topic.Key = 4, "/n"
		s, c, more := open(t, topic)
		stampRecords(c)
		const n = 20
		older, newer := marked(0, n), marked(0, n)
		others := sinktest.Entities(n, n)
		for i := range newer {
			newer[i].Body, newer[i].Mark = others[i].Body, fmt.Sprintf("v1;newer;%d", i)
		}
		commitMarked(t, s, slices.Concat(older, newer), 2*n)
		wantMarks(t, more(), newer)
	})
}

func TestMarksOfMessagesThatAreGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Window = 10
		s, c, more := open(t, topic)
		entities := marked(0, 100)
		commitMarked(t, s, entities, 100)
		must.Succeed(t, c.DeleteRecords("shop.orders", 0, 20))
		wantMarks(t, more(), entities[20:])
		wantMarks(t, s, entities)
		must.Succeed(t, c.DeleteRecords("shop.orders", 0, -1))
		wantMarks(t, more(), nil)
		commitMarked(t, s, marked(200, 1), 101)
		wantMarks(t, more(), marked(200, 1))
	})
}

func TestMarkOfATombstone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Key, topic.Delete = "header:Content-ID", kafka.DeleteTombstone
		topic.Config = []string{"cleanup.policy=compact", "delete.retention.ms=0", "min.cleanable.dirty.ratio=0"}
		s, c, more := open(t, topic)
		entities := marked(0, 2)
		commitMarked(t, s, entities, 2)
		entities[1].Op, entities[1].Header[3].Value, entities[1].Mark = feed.Delete, "http-equiv=DELETE", "v1;deleted"
		commitMarked(t, s, entities[1:], 3)
		wantMarks(t, more(), entities)
		// Compaction leaves the newest of each key, and in the end no tombstone.
		last := marked(5, 1)
		commitMarked(t, s, last, 4)
		c.Compact()
		c.Compact()
		wantMarks(t, more(), append(entities[:1:1], last...))
	})
}

// countFetches counts the requests for messages of the orders before an offset.
func countFetches(c *kfake.Cluster, before int64) *atomic.Int32 {
	id, n := c.TopicInfo("shop.orders").TopicID, new(atomic.Int32)
	c.ControlKey(kmsg.Fetch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, t := range req.(*kmsg.FetchRequest).Topics {
			if (t.Topic == "shop.orders" || t.TopicID == id) && t.Partitions[0].FetchOffset < before {
				n.Add(1)
			}
		}
		return nil, nil, false
	})
	return n
}

// A feed's newest message may be far behind those of others.
func TestSharedTopicIsSearchedUntilAMessageIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entities []feed.Entity
		late     int // how many entities come behind those of the other feed
		ids      int
		early    bool // the beginning of the topic is read
	}{
		"with marks":                          {marked(0, 12), 0, 12, true},
		"without marks":                       {sinktest.Entities(0, 12), 0, 10, true},
		"some are near":                       {sinktest.Entities(0, 12), 2, 2, false},
		"a checkpoint that counts none alone": {nil, 0, 0, false},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			topic, parcels := orders(), orders()
			topic.Shared, topic.Window = true, 10
			parcels.Shared, parcels.Feed = true, "parcels"
			s, other := connect(t, configFor(c)).Sink(topic), connect(t, configFor(c)).Sink(parcels)
			resume(t, s)
			commitMarked(t, s, test.entities, len(test.entities))
			resume(t, other)
			for n := 0; n < 400; n += 100 {
				commit(t, other, n, n+100)
			}
			if test.late > 0 {
				commit(t, s, 12, 12+test.late)
			}
			early := countFetches(c, 150) // the reach is 160 of some 420
			fresh := connect(t, configFor(c)).Sink(topic)
			resume(t, fresh)
			wantIDs(t, fresh, test.ids)
			if read := early.Load() > 0; read != test.early {
				t.Errorf("the beginning is read: %v, want %v", read, test.early)
			}
		}))
	}
}

func TestSinkFarBehindReadsOnWhereItWas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Window = 10
		s, c, more := open(t, topic)
		entities := marked(0, 403)
		commitMarked(t, s, entities[:3], 3)
		other := more()
		resume(t, other)
		commitMarked(t, other, entities[3:], 403)
		early := countFetches(c, 2) // whether its own last one is still there, it looks
		wantMarks(t, s, entities)
		if n := early.Load(); n > 0 {
			t.Errorf("it reads again what it has read, %d times", n)
		}
	})
}

// The number of a mark is higher than those of all marks before it also if none of them was loaded, and
// a person has moved the position.
func TestMarksAreNumberedBehindThoseThatWereNotLoaded(t *testing.T) {
	t.Parallel()
	for name, moved := range map[string]bool{"": false, "the position is moved": true} {
		t.Run(name, bubbled(func(t *testing.T) {
			topic := ordersWithDead()
			topic.Window = 2
			s, c, more := open(t, topic)
			stampRecords(c)
			versions := slices.Concat(marked(1, 9), marked(0, 1))
			versions[9].Dead = sinktest.TooLarge()
			commitMarked(t, s, versions, 9)
			unmarked := sinktest.Entities(50, 200)
			for i := range unmarked[:100] {
				unmarked[i].Dead = versions[9].Dead
			}
			commitMarked(t, s, unmarked, 109)
			if moved {
				must.Succeed(t, more().Overwrite(t.Context(), sinktest.MoveTo(move(109))))
			}
			late := more()
			resume(t, late)
			if late.IDs().Marked() {
				t.Fatal("a mark was loaded")
			}
			versions[9].Dead, versions[9].Mark = nil, "v1;later"
			commitMarked(t, late, versions[9:], 110)
			wantMarks(t, more(), versions)
		}))
	}
}

// Messages that were published before there were dead letters have no number. The window has the newest of
// them, and the others are not read.
func TestWindowOfMessagesWithoutNumbers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		before := orders()
		before.Window = 10
		s, c, _ := open(t, before)
		for n := range 10 {
			commit(t, s, 20*n, 20*n+20)
		}
		after := ordersWithDead()
		after.Window = 10
		late := connect(t, configFor(c)).Sink(after)
		resume(t, late)
		entities := sinktest.Entities(200, 4)
		entities[1].Dead = sinktest.TooLarge()
		cp := sinktest.At(204)
		cp.Count--
		must.Succeed(t, late.Commit(t.Context(), entities, cp))
		early := countFetches(c, 100)
		fresh := connect(t, configFor(c)).Sink(after)
		resume(t, fresh)
		wantKnown(t, fresh, true, append(sinktest.Entities(194, 6), entities...)...)
		if n := early.Load(); n > 0 {
			t.Errorf("%d fetches of old messages", n)
		}
	})
}
