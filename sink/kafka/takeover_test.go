package kafka_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// deposed answers for the partitions of one topic like a broker that was replaced as their
// leader at some moment and does not know it: with the offsets that they had then.
type deposed struct {
	c     *kfake.Cluster
	topic string
	id    [16]byte
	old   map[int32]kfake.PartitionInfo
}

func newDeposed(c *kfake.Cluster, topic string) *deposed {
	d := &deposed{c, topic, c.TopicInfo(topic).TopicID, map[int32]kfake.PartitionInfo{}}
	for _, p := range c.PartitionInfos(topic) {
		d.old[p.Partition] = *p
	}
	return d
}

// offsets answers a request for the ends of partitions, or returns nil if it is about others. For
// other topics it is the leader.
func (d *deposed) offsets(r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ListOffsetsRequest)
	if !slices.ContainsFunc(req.Topics, func(t kmsg.ListOffsetsRequestTopic) bool {
		return t.Topic == d.topic && t.Partitions[0].Timestamp == -1
	}) {
		return nil
	}
	return answerOffsets(req, func(topic string, p int32) kfake.PartitionInfo {
		if topic == d.topic {
			return d.old[p]
		}
		return *d.c.PartitionInfo(topic, p)
	})
}

// answerOffsets answers a request for the ends of partitions.
func answerOffsets(req *kmsg.ListOffsetsRequest, info func(topic string, p int32) kfake.PartitionInfo) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		of := kmsg.NewListOffsetsResponseTopic()
		of.Topic = t.Topic
		for _, p := range t.Partitions {
			sp := kmsg.NewListOffsetsResponseTopicPartition()
			sp.Partition, sp.Offset = p.Partition, info(t.Topic, p.Partition).HighWatermark
			if req.IsolationLevel == 1 {
				sp.Offset = info(t.Topic, p.Partition).LastStableOffset
			}
			of.Partitions = append(of.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, of)
	}
	return resp
}

// records answers a fetch of records that it does not have, or returns nil.
func (d *deposed) records(r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.FetchRequest)
	if len(req.Topics) != 1 || req.Topics[0].TopicID != d.id {
		return nil
	}
	asked := req.Topics[0].Partitions[0]
	old := d.old[asked.Partition]
	if asked.FetchOffset < old.LastStableOffset {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	of := kmsg.NewFetchResponseTopic()
	of.TopicID = d.id
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.HighWatermark, p.LastStableOffset = asked.Partition, old.HighWatermark, old.LastStableOffset
	of.Partitions = append(of.Partitions, p)
	resp.Topics = append(resp.Topics, of)
	return resp
}

// depose makes the broker answer ListOffsets and Fetch for the checkpoint topic like a leader
// that was deposed at this moment. Producers have found the new leader. It ends some answers
// after the second write to the checkpoint topic, as a client finds the new leader some time
// later. The returned function reports how many stale answers were given.
func depose(t *testing.T, c *kfake.Cluster) (stale func() int) {
	t.Helper()
	var (
		mu              sync.Mutex
		answers, writes int
		extra           = 6
	)
	d := newDeposed(c, checkpoints)
	// answer gives a stale answer, unless it is over.
	answer := func(of func(kmsg.Request) kmsg.Response) func(kmsg.Request) (kmsg.Response, error, bool) {
		return func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			mu.Lock()
			defer mu.Unlock()
			resp := of(r)
			if resp == nil || extra == 0 {
				return nil, nil, false
			}
			if writes >= 2 {
				extra--
			}
			answers++
			return resp, nil, true
		}
	}
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, of := range r.(*kmsg.ProduceRequest).Topics {
			if of.Topic == checkpoints || of.TopicID == d.id {
				mu.Lock()
				writes++
				mu.Unlock()
			}
		}
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.ListOffsets), answer(d.offsets))
	c.ControlKey(int16(kmsg.Fetch), answer(d.records))
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return answers
	}
}

// A broker that no longer leads the partition of the checkpoint answers with old
// offsets. A copy that has resumed before another copy's commits must not commit the
// same entities again.
func TestStaleCopyDoesNotCommitWhileADeposedLeaderAnswers(t *testing.T) {
	t.Parallel()
	for name, resumes := range map[string]bool{"it resumed before": false, "it resumes from the deposed leader": true} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			s, other := connect(t, configFor(c)).Sink(orders()), connect(t, configFor(c)).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			resume(t, other)
			stale := depose(t, c)
			// s holds the transactional id and reads no offset of the checkpoint.
			commit(t, s, 2, 4)
			if resumes {
				wantCount(t, other, 2)
			}
			wantError(t, other.Commit(t.Context(), sinktest.Entities(2, 3), sinktest.At(5)), false, checkpoint.ErrConflict)
			if stale() == 0 {
				t.Error("no stale answer was given")
			}
			wantFeed(t, other, 4)
			wantCount(t, other, 4)
			commitAndCheck(t, other, 4, 5)
		}))
	}
}

// A copy that has committed last goes on without another look at its checkpoint.
func TestCommitsAfterTheFirstReadNoCheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 1)
		fetches := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
		for n := 1; n < 5; n++ {
			commit(t, s, n, n+1)
		}
		if n := fetches.Hits(); n > 0 {
			t.Errorf("%d fetches, want none", n)
		}
		wantFeed(t, s, 5)
	})
}

// A copy that goes on makes one request beside those of the transaction: it reports that the last
// commit is ended, and that the topic is as long as it was.
func TestCommitsAfterTheFirstListOffsetsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 1)
		s.AwaitEnd(t) // so that no request comes too early
		commit(t, s, 1, 2)
		requests := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Observe: true, Count: -1})
		const commits = 5
		for n := 2; n < 2+commits; n++ {
			until(t, func() bool {
				p := c.PartitionInfo("shop.orders", 0)
				return p.LastStableOffset == p.HighWatermark
			})
			commit(t, s, n, n+1)
		}
		if n := requests.Hits(); n != commits {
			t.Errorf("%d requests for %d commits, want one each", n, commits)
		}
		wantFeed(t, s, 2+commits)
	})
}

// Another copy commits while a sink loads the IDs. They belong to the checkpoint that it returns:
// otherwise the entities behind the checkpoint would count as repeated by their feed.
func TestIDsBelongToTheCheckpointIfAnotherCopyCommitsMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		living, idle := connect(t, configFor(c)).Sink(orders()), connect(t, configFor(c)).Sink(orders())
		resumeAndCommit(t, living, 0, 2)
		living.AwaitEnd(t)
		held, release := hold(c, kmsg.ListOffsets, func(r kmsg.Request) bool { return r.(*kmsg.ListOffsetsRequest).Topics[0].Topic == "shop.orders" })
		resumed := make(chan checkpoint.Checkpoint, 1)
		go func() {
			cp, err := idle.Resume(t.Context())
			if err != nil {
				t.Error(err)
			}
			resumed <- cp
		}()
		<-held // it has read the checkpoint
		commit(t, living, 2, 4)
		release()
		if cp := <-resumed; cp.Count != uint64(idle.IDs().Len()) {
			t.Errorf("%d IDs were loaded, and the checkpoint has %d entities", idle.IDs().Len(), cp.Count)
		}
	})
}

// A partition that the last commit has not written to is compared, too.
func TestCommitComparesEveryPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		to := orders()
		to.Partitions, to.Key = 2, "header:Content-ID"
		s, c, _ := open(t, to)
		commit(t, s, 0, 20)
		before := map[int32]int64{}
		for _, p := range c.PartitionInfos("shop.orders") {
			before[p.Partition] = p.HighWatermark
		}
		commit(t, s, 20, 21)
		other := int32(-1)
		for _, p := range c.PartitionInfos("shop.orders") {
			if p.HighWatermark == before[p.Partition] {
				other = p.Partition
			}
		}
		if len(before) != 2 || before[0] == 0 || before[1] == 0 || other < 0 {
			t.Fatalf("the commit of one entity has changed both partitions, or entities are in one: %v", before)
		}
		c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return answerOffsets(r.(*kmsg.ListOffsetsRequest), func(topic string, p int32) kfake.PartitionInfo {
				info := *c.PartitionInfo(topic, p)
				if topic == "shop.orders" && p == other { // it has lost its last entity, and the marker behind it
					info.HighWatermark, info.LastStableOffset = info.HighWatermark-2, info.LastStableOffset-2
				}
				return info
			}), nil, true
		})
		err := s.Commit(t.Context(), sinktest.Entities(21, 1), sinktest.At(22))
		wantError(t, err, false, nil, fmt.Sprintf("partition %d of shop.orders ends at offset %d, and has ended at %d", other, before[other]-2, before[other]-1))
	})
}

// The first commits of all feeds of a process wait for each other if their checkpoints are in one
// partition. None of them waits for long.
func TestManyFeedsTakeOverAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		must.Succeed(t, c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}))
		conn := connect(t, configFor(c))
		var sinks []*kafka.Sink
		for n := range 200 {
			topic := orders()
			topic.Name = fmt.Sprint("shop.orders.", n)
			s := conn.Sink(topic)
			resume(t, s)
			sinks = append(sinks, s)
		}
		var group sync.WaitGroup
		for _, s := range sinks {
			group.Go(func() {
				if err := s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
}

// A commit that waits for its turn has no transaction open, which a standing-by copy in another
// process would abort.
func TestCopyStandsByWhileACommitWaitsForItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		must.Succeed(t, c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}))
		cfg := configFor(c)
		conn := connect(t, cfg)
		cfg.Timeout = time.Second
		other := orders()
		other.Name = "shop.returns"
		slow, s, standby := conn.Sink(other), conn.Sink(orders()), connect(t, cfg).Sink(orders())
		resume(t, slow)
		resume(t, s)
		held, release := hold(c, kmsg.Produce, writes(c, checkpoints))
		ended := make(chan error, 2)
		commit := func(s *kafka.Sink) { ended <- s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)) }
		go commit(slow)
		<-held
		initialized := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1})
		go commit(s)
		until(t, func() bool { return initialized.Hits() > 0 })
		// Several times the time of grace.
		for range 20 {
			resume(t, standby)
			time.Sleep(100 * time.Millisecond)
		}
		release()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// writes reports whether a request writes to a topic.
func writes(c *kfake.Cluster, topic string) func(kmsg.Request) bool {
	id := c.TopicInfo(topic).TopicID
	return func(r kmsg.Request) bool {
		return slices.ContainsFunc(r.(*kmsg.ProduceRequest).Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == topic || t.TopicID == id })
	}
}

// A feed whose topic takes no messages does not hold up the others for long.
func TestSlowCommitLosesItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		must.Succeed(t, c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}))
		conn := connect(t, configFor(c))
		other := orders()
		other.Name = "shop.returns"
		slow, s := conn.Sink(other), conn.Sink(orders())
		resume(t, slow)
		resume(t, s)
		held, release := hold(c, kmsg.Produce, writes(c, "shop.returns"))
		defer release()
		ended := make(chan error, 1)
		go func() { ended <- slow.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)) }()
		<-held
		if err := s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)); err != nil {
			t.Error(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("it has waited for the end of the other commit: %v", err)
		default:
		}
	})
}
