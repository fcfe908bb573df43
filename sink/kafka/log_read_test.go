package kafka_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// Prefetched records are not kept for a reader that has stopped.
func TestLogForgetsWhatNobodyGoesOnWith(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		produceBatch(t, c, "a", "b", "c")
		log := conn.Log("shop.orders", 1)
		wantPart(t, log, 0, 1, "0:a ")
		until(t, func() bool { return log.Kept() == 0 })
	})
}

// The kept part of a batch begins where its reader stopped.
func TestLogIsReadFromInFrontOfWhatIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		produceBatch(t, c, "a", "b", "c", "d", "e")
		log := conn.Log("shop.orders", 1)
		for r, err := range log.Read(t.Context(), 0, 5) {
			must.Succeed(t, err)
			if r.Position == 3 {
				break
			}
		}
		for from, want := range map[uint64]string{1: "1:b 2:c 3:d 4:e ", 3: "3:d 4:e ", 4: "4:e "} {
			wantPart(t, log, from, 5, want)
		}
	})
}

// produceBatch writes bodies to partition 1 of the orders in one batch.
func produceBatch(t *testing.T, c *kfake.Cluster, bodies ...string) {
	t.Helper()
	cl, _ := admin(t, c, kgo.ManualFlushing(), kgo.BrokerMaxWriteBytes(100<<20), kgo.ProducerBatchMaxBytes(50<<20))
	// When kgo learns of a topic it sends the records that wait, which would be two batches.
	cl.Produce(t.Context(), &kgo.Record{Topic: "shop.orders", Partition: 0}, nil)
	must.Succeed(t, cl.Flush(t.Context()))
	for _, body := range bodies {
		cl.Produce(t.Context(), &kgo.Record{Topic: "shop.orders", Partition: 1, Value: []byte(body)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	must.Succeed(t, cl.Flush(t.Context()))
}

// A page fetches about as much as it needs from the cluster, however well it compresses.
// Sequential readers get their pages from larger fetches, and no record is fetched twice, even
// if a reader looks behind the page and stops.
func TestPagesAreFetchedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
					must.Succeed(t, err)
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
	})
}

// notifyFetches returns a channel that gets a value for each fetch of a partition. The fetch with
// a number in fail, from 1 on, is answered with an error.
func notifyFetches(c *kfake.Cluster, fail ...int) <-chan struct{} {
	fetches, n := make(chan struct{}, 1000), 0
	c.ControlKey(kmsg.Fetch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetches <- struct{}{}
		if n++; !slices.Contains(fail, n) {
			return nil, nil, false
		}
		asked := req.(*kmsg.FetchRequest)
		resp := asked.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = asked.Topics[0].Topic, asked.Topics[0].TopicID
		partition := kmsg.NewFetchResponseTopicPartition()
		partition.Partition, partition.ErrorCode = asked.Topics[0].Partitions[0].Partition, kerr.TopicAuthorizationFailed.Code
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	return fetches
}

// The records behind those that a sequential reader reads are fetched meanwhile, and no record is
// fetched twice for that. If the fetch fails, the records are fetched again when they are needed.
func TestTheNextRecordsAreFetchedWhileOthersAreRead(t *testing.T) {
	t.Parallel()
	const batches, size, page = 8, 1000, 500
	for name, test := range map[string]struct {
		fail    []int
		fetches int
	}{
		"":                                 {nil, batches},
		"a fetch ahead and its retry fail": {[]int{3, 4}, batches + 2},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			c, conn := shop(t)
			for range batches {
				produceBatch(t, c, slices.Repeat([]string{"x"}, size)...)
			}
			fetches := notifyFetches(c, test.fail...)
			log := conn.Log("shop.orders", 1)
			n, seen := uint64(0), 0
			for from := uint64(0); from < batches*size; from += page {
				for r, err := range log.Read(t.Context(), from, from+page) {
					must.Succeed(t, err)
					if r.Position != n {
						t.Fatalf("record %d, want %d", r.Position, n)
					}
					// At the first record of a later batch, the next one is being fetched.
					if batch := int(n / size); n%size == 0 && batch > 0 && batch < batches-1 {
						for seen < batch+2 {
							select {
							case <-fetches:
								seen++
							case <-time.After(20 * time.Second):
								t.Fatalf("the records behind record %d are not being fetched", n)
							}
						}
					}
					n++
				}
			}
			if seen += len(fetches); n != batches*size || seen != test.fetches {
				t.Errorf("%d records and %d fetches, want %d and %d", n, seen, batches*size, test.fetches)
			}
		}))
	}
}

// produceLarge writes n messages, of which a fetch gets two at most.
func produceLarge(t *testing.T, c *kfake.Cluster, n int) {
	t.Helper()
	for range n {
		produce(t, c, []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}, strings.Repeat("x", 600<<10))
	}
}

func TestMessagesAreDeletedWhileALogIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		produceLarge(t, c, 8)
		var got []uint64
		for r, err := range conn.Log("shop.orders", 1).Read(t.Context(), 0, 8) {
			must.Succeed(t, err)
			if got = append(got, r.Position); len(got) == 1 {
				must.Succeed(t, c.DeleteRecords("shop.orders", 1, 6))
			}
		}
		// The first fetch had another of them, perhaps.
		if n := len(got); n < 3 || n > 5 || got[n-2] != 6 || got[n-1] != 7 {
			t.Errorf("records %v, want 0, perhaps some, 6 and 7", got)
		}
	})
}

func TestLeaderMovesWhileALogIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t, kfake.NumBrokers(3))
		produceLarge(t, c, 5)
		n := 0
		for _, err := range conn.Log("shop.orders", 1).Read(t.Context(), 0, 5) {
			must.Succeed(t, err)
			n++
			must.Succeed(t, c.MoveTopicPartition("shop.orders", 1, (c.LeaderFor("shop.orders", 1)+1)%3))
		}
		if n != 5 {
			t.Errorf("%d records, want 5", n)
		}
	})
}

func TestLogIsCancelledWhileItIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}

func BenchmarkLog(b *testing.B) {
	c := startCluster(b)
	s := connect(b, configFor(c)).Sink(orders())
	resume(b, s)
	var cl *kgo.Client
	sinktest.BenchmarkLog(b, s, settled{s.Log(0)}, func(b *testing.B, n, read, total int) int {
		if read%total == 0 {
			cl, _ = admin(b, c, kgo.ConsumeTopics("shop.orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		}
		return len(cl.PollRecords(b.Context(), n).Records())
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
	fetches := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	log := conn.Log("shop.orders", 1)
	for from := uint64(0); from < batches*batch; from += 10 {
		if n := len(records(t, log, from, from+10)); n != 10 || log.KeptBytes() > 5<<20 {
			t.Errorf("%d records from %d, want 10; %d bytes are kept", n, from, log.KeptBytes())
		}
	}
	// It is not read ahead more than can be kept.
	if n := fetches.Hits(); n > batches/4 {
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
		must.Succeed(t, cl.ProduceSync(t.Context(), rs...).FirstErr())
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
