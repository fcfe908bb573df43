package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

const deadTopic = "shop.orders.dead"

// ordersWithDead is a topic with dead letters.
func ordersWithDead() kafka.Topic {
	topic := orders()
	topic.DeadLetters = true
	return topic
}

// wantDead checks the IDs of the dead letters of the orders.
func wantDead(t *testing.T, c *kafka.Conn, numbers ...int) {
	t.Helper()
	wantDeadOf(t, c, orders(), numbers...)
}

func wantDeadOf(t *testing.T, c *kafka.Conn, topic kafka.Topic, numbers ...int) {
	t.Helper()
	sinktest.WantNumbers(t, "dead letters", settled{c.Log(topic.Name+sink.DeadSuffix, 0)}, numbers...)
}

func TestDeadLetterTopicIsCreated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := ordersWithDead()
		topic.Partitions, topic.Key = 6, "/n"
		topic.Config = []string{"cleanup.policy=compact", "max.message.bytes=5000"}
		_, c, more := open(t, topic)
		if n := len(c.PartitionInfos(deadTopic)); n != 1 {
			t.Errorf("%d partitions, want 1", n)
		}
		got := config(t, c, deadTopic)
		if strings.Contains(got["cleanup.policy"], "compact") || got["retention.ms"] != "-1" || got["max.message.bytes"] != "5000" {
			t.Errorf("configuration %v", got)
		}
		must.Succeed(t, more().Check(t.Context()))
	})
}

func TestDeadLetterTopicIsNotCreated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		_, c, _ := open(t, topic)
		topic.DeadLetters, topic.Create = true, false
		s := connect(t, configFor(c)).Sink(topic)
		want := "there is no topic shop.orders.dead, and create is off; create it with 'kafka-topics.sh"
		wantError(t, s.Check(t.Context()), true, nil, want)
		_, err := s.Resume(t.Context())
		wantError(t, err, true, nil, want)
	})
}

func TestDeadLetterTopicIsUnfit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		_, adm := admin(t, c)
		compact := "compact"
		if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": &compact}, deadTopic); err != nil {
			t.Fatal(err)
		}
		s := connect(t, configFor(c)).Sink(ordersWithDead())
		wantError(t, s.Check(t.Context()), true, nil, "dead-letter topic shop.orders.dead is compacted", "change its cleanup.policy")
		_, err := s.Resume(t.Context())
		wantError(t, err, true, nil, "dead-letter topic shop.orders.dead is compacted")
		topic := ordersWithDead()
		topic.Name = "feedbridge"
		cfg := configFor(c)
		cfg.Checkpoints = "feedbridge.dead"
		_, err = connect(t, cfg).Sink(topic).Resume(t.Context())
		wantError(t, err, true, nil, "dead-letter topic feedbridge.dead: this is the topic for checkpoints")
	})
}

// The dead-letter topic may take smaller messages than the topic.
func TestDeadLetterTopicHasALowerLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		_, adm := admin(t, c)
		limit := "2000"
		if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &limit}, deadTopic); err != nil {
			t.Fatal(err)
		}
		s := connect(t, configFor(c)).Sink(ordersWithDead())
		resume(t, s)
		entities, cp := withDead(0, 1, 0)
		entities[0].Body = noise(100_000)
		must.Succeed(t, s.Commit(t.Context(), entities, cp))
		log := settled{connect(t, configFor(c)).Log(deadTopic, 0)}
		for r, err := range log.Read(t.Context(), 0, 1) {
			if err != nil || len(r.Body) < 1000 || len(r.Body) > 2000 {
				t.Errorf("a body of %d bytes, %v", len(r.Body), err)
			}
		}
		wantDead(t, connect(t, configFor(c)), 0)
	})
}

// refusal answers that the records of a request are refused.
func refusal(req *kmsg.ProduceRequest, code int16) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	topic, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
	topic.Topic, topic.TopicID, partition.ErrorCode = req.Topics[0].Topic, req.Topics[0].TopicID, code
	topic.Partitions = append(topic.Partitions, partition)
	resp.Topics = append(resp.Topics, topic)
	return resp
}

// Nothing of a commit is published if its dead letter is refused, and no position moves.
func TestDeadLetterTopicRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code int16
		want []string
	}{
		"it is full":            {kerr.PolicyViolation.Code, []string{"dead-letter topic shop.orders.dead"}},
		"its limit was lowered": {kerr.MessageTooLarge.Code, []string{"dead-letter topic shop.orders.dead"}},
		"this user may not":     {kerr.TopicAuthorizationFailed.Code, []string{"shop.orders.dead", "--topic shop.orders.dead"}},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			s, c, more := open(t, ordersWithDead())
			entities, cp := withDead(0, 2, 0)
			must.Succeed(t, s.Commit(t.Context(), entities, cp))
			id := c.TopicInfo(deadTopic).TopicID
			c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				req := r.(*kmsg.ProduceRequest)
				if len(req.Topics) == 0 || req.Topics[0].Topic != deadTopic && req.Topics[0].TopicID != id {
					return nil, nil, false
				}
				return refusal(req, test.code), nil, true
			})
			entities, next := withDead(2, 4, 1)
			wantError(t, s.Commit(t.Context(), entities, next), true, nil, test.want...)
			if now := resume(t, more()); string(now.Cursor) != string(cp.Cursor) {
				t.Errorf("the position has moved to %s", now.Cursor)
			}
			// Commits without dead letters go on.
			resume(t, s)
			moved := cp
			moved.Cursor = feed.Cursor("elsewhere")
			if err := s.Commit(t.Context(), nil, moved); err != nil {
				t.Error(err)
			}
			wantFeed(t, s, 1)
			wantDead(t, connect(t, configFor(c)), 1)
		}))
	}
}

func TestAnswerToACommitWithDeadLettersIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, w := startWired(t)
		s := connect(t, configFor(c)).Sink(ordersWithDead())
		resumeAndCommit(t, s, 0, 1)
		entities, cp := withDead(1, 3, 0)
		w.losing(func(key kmsg.Key) bool { return key == kmsg.EndTxn })
		wantError(t, s.Commit(t.Context(), entities, cp), false, nil, "commit")
		w.losing(nil)
		if now := resume(t, s); now.Count != cp.Count {
			t.Errorf("checkpoint %+v, want that of the commit whose answer was lost", now)
		}
		wantKnown(t, s, true, entities...)
		wantFeed(t, s, 2)
		wantDead(t, connect(t, configFor(c)), 2)
	})
}

// A copy that dies within a transaction leaves a dead letter that no consumer may see.
func TestCopyDiedWithADeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, ordersWithDead())
		commit(t, s, 0, 2)
		id := sinktest.Entities(2, 1)[0].ID
		begin(t, c, transactionalID, &kgo.Record{Topic: deadTopic, Value: []byte("torn"), Headers: []kgo.RecordHeader{{Key: message.ContentID, Value: []byte(id)}}})
		wantCount(t, s, 2)
		fresh := connect(t, configFor(c)).Sink(ordersWithDead())
		resume(t, fresh)
		entities, cp := withDead(2, 3, 0)
		for _, s := range []*kafka.Sink{s, fresh} {
			if !s.IDs().Add(id) {
				t.Error("an entity that was never committed is known")
			}
		}
		must.Succeed(t, fresh.Commit(t.Context(), entities, cp))
		wantDead(t, connect(t, configFor(c)), 2)
	})
}

// A person may delete the dead letters, or their topic. The feed goes on.
func TestDeadLetterTopicIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, ordersWithDead())
		entities, cp := withDead(0, 2, 0)
		must.Succeed(t, s.Commit(t.Context(), entities, cp))
		idle := more()
		resume(t, idle)
		_, adm := admin(t, c)
		if _, err := adm.DeleteTopics(t.Context(), deadTopic); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it is missing, and then it is another one
			if _, err := s.Checkpoint(t.Context()); err != nil {
				t.Error(err)
			}
			resume(t, s)
		}
		entities, cp = withDead(2, 3, 1)
		// The producer still has the topic that is gone.
		wantError(t, s.Commit(t.Context(), entities, cp), false, nil, "shop.orders.dead")
		resume(t, s)
		must.Succeed(t, s.Commit(t.Context(), entities, cp))
		wantFeed(t, s, 1)
		wantDead(t, connect(t, configFor(c)), 2)
		// The new topic is as long as the old one was, and has another dead letter.
		resume(t, idle)
		wantKnown(t, idle, true, entities[0])
	})
}

// A dead letter whose checkpoint is gone shows that the feed was published before.
func TestDeadLetterWithoutACheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		client, adm := admin(t, c)
		if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, deadTopic); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: deadTopic, Value: []byte("x")}).FirstErr())
		s := connect(t, configFor(c)).Sink(ordersWithDead())
		_, err := s.Resume(t.Context())
		wantError(t, err, true, checkpoint.ErrMissing)
	})
}

func TestMissingKeyIsADeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Key, topic.MissingKey = "/id", kafka.KeyDeadLetter
		s, c, _ := open(t, topic)
		entities, cp := withDead(0, 1, 0)
		wantError(t, fits(s, entities[0]), false, sink.ErrNoKey, "the entity has no key: its body has no text, number, true or false at /id")
		must.Succeed(t, s.Commit(t.Context(), entities, cp))
		wantDead(t, connect(t, configFor(c)), 0)
	})
}

// Several feeds share a topic, and so its dead letters; each knows its own only.
func TestDeadLettersOfASharedTopic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		topic := ordersWithDead()
		topic.Shared = true
		other := topic
		other.Feed = "returns"
		a, b := connect(t, configFor(c)).Sink(topic), connect(t, configFor(c)).Sink(other)
		resume(t, a)
		resume(t, b)
		commitDead(t, a, 0, 1, 0)
		fresh := connect(t, configFor(c)).Sink(other)
		for _, s := range []*kafka.Sink{b, fresh} {
			resume(t, s)
			wantIDs(t, s, 0)
		}
		fresh = connect(t, configFor(c)).Sink(topic)
		resume(t, fresh)
		wantIDs(t, fresh, 1)
	})
}

// Copies commit versions of the same entry, of which some are dead letters. The records of each have
// an earlier time than those of the one before.
func TestMarksOfRecordsWhoseTimesRunBack(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string][]bool{
		"the newest version is a dead letter": {false, true},
		"the newest version is in the topic":  {true, false},
		"back and forth":                      {true, false, true, false},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			_, c, more := open(t, ordersWithDead())
			stampRecords(c)
			var version []feed.Entity
			for i, isDead := range dead {
				copy := more()
				resume(t, copy)
				version = marked(0, 1)
				version[0].Mark, version[0].Dead = fmt.Sprint("v1;", i), nil
				if isDead {
					version[0].Dead = sinktest.TooLarge()
				}
				cp := sinktest.At(i + 1)
				cp.Count -= uint64(len(slices.DeleteFunc(slices.Clone(dead[:i+1]), func(d bool) bool { return !d })))
				must.Succeed(t, copy.Commit(t.Context(), version, cp))
				wantMarks(t, copy, version)
			}
			wantMarks(t, more(), version)
		}))
	}
}

// A topic may refuse times that are far ahead: those of a copy whose clock is wrong.
func TestTimeOfARecordIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, ordersWithDead())
		refuse := true
		c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			req := r.(*kmsg.ProduceRequest)
			if !refuse || len(req.Topics) == 0 {
				return nil, nil, false
			}
			refuse = false
			return refusal(req, kerr.InvalidTimestamp.Code), nil, true
		})
		err := s.Commit(t.Context(), marked(0, 1), sinktest.At(1))
		wantError(t, err, true, nil, "INVALID_TIMESTAMP", "correct the clocks of the copies")
		resume(t, s)
		commitMarked(t, s, marked(0, 1), 1)
	})
}

// A commit may have a dead letter and a newer version of its entry, in either order.
func TestMarksOfADeadLetterAndAnotherVersionInOneCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, ordersWithDead())
		stampRecords(c)
		versions := slices.Concat(marked(0, 2), marked(0, 2))
		for i, e := range []int{0, 3} {
			versions[e].Dead = sinktest.TooLarge()
			versions[2+i].Mark = fmt.Sprint("v1;newer;", i)
		}
		commitMarked(t, s, versions, 2)
		wantMarks(t, s, versions[2:])
		wantMarks(t, more(), versions[2:])
	})
}

// Records of another feed in the topic, which has published more, do not change the order in which
// the marks of this feed are loaded.
func TestMarksBehindARecordOfAnotherFeed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		topic := ordersWithDead()
		topic.Shared = true
		other := topic
		other.Feed = "returns"
		ahead := connect(t, configFor(c)).Sink(other)
		resume(t, ahead)
		for n := range 10 {
			commitMarked(t, ahead, marked(5+n, 1), n+1)
		}
		s := connect(t, configFor(c)).Sink(topic)
		resume(t, s)
		entities := marked(0, 1)
		commitMarked(t, s, entities, 1)
		entities[0].Mark, entities[0].Dead = "v1;later", sinktest.TooLarge()
		cp := sinktest.At(2)
		cp.Count--
		must.Succeed(t, s.Commit(t.Context(), entities, cp))
		wantMarks(t, connect(t, configFor(c)).Sink(topic), entities)
	})
}

// produceOthers stores records of another feed in the first partition of the topic.
func produceOthers(t *testing.T, cl *kgo.Client, at time.Time) {
	t.Helper()
	for range 100 {
		r := &kgo.Record{Topic: "shop.orders", Timestamp: at, Headers: []kgo.RecordHeader{{Key: message.FeedName, Value: []byte("returns")}}}
		must.Succeed(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
}

// The window has the newest IDs in the order of the feed, in whatever partitions they are and however large the
// commits are. The records of several commits may have the same time.
func TestWindowHasTheNewestEntitiesBesideDeadLetters(t *testing.T) {
	keys := orders()
	keys.Partitions, keys.Key = 3, "/n"
	shared := keys
	shared.Shared = true
	none := func(int) bool { return false }
	tests := map[string]struct {
		topic   kafka.Topic
		commits []int
		isDead  func(i int) bool
		behind  func(t *testing.T, c *kfake.Cluster) // stores records of another feed in one partition
	}{
		"dead letters in front":          {ordersWithDead(), []int{30}, func(i int) bool { return i < 8 }, nil},
		"small commits behind many dead": {ordersWithDead(), []int{100, 2, 1, 3}, func(i int) bool { return i < 100 && i%6 == 5 }, nil},
		"dead letters at the end":        {ordersWithDead(), []int{100, 8}, func(i int) bool { return i > 95 && i < 104 }, nil},
		"aborted records and dead letters": {ordersWithDead(), []int{100}, func(i int) bool { return i < 100 && i%6 == 5 }, func(t *testing.T, c *kfake.Cluster) {
			records := make([]*kgo.Record, 300)
			for i := range records {
				records[i] = &kgo.Record{Topic: orders().Name, Value: []byte("x")}
			}
			must.Succeed(t, begin(t, c, "others", records...).EndTransaction(t.Context(), kgo.TryAbort))
		}},
		"several partitions":                {keys, []int{200}, none, nil},
		"several partitions, small commits": {keys, []int{100, 2, 1, 3}, none, nil},
		"several partitions, records of another feed with the same time": {shared, []int{200}, none, func(t *testing.T, c *kfake.Cluster) {
			cl, _ := admin(t, c)
			produceOthers(t, cl, consume(t, c, 200)[0].Timestamp)
		}},
		"several partitions, aborted records": {keys, []int{200}, none, func(t *testing.T, c *kfake.Cluster) {
			cl, _ := admin(t, c, kgo.TransactionalID("others"))
			must.Succeed(t, cl.BeginTransaction())
			produceOthers(t, cl, time.Now())
			must.Succeed(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
		}},
	}
	for name, test := range tests {
		t.Run(name, bubbled(func(t *testing.T) {
			topic := test.topic
			topic.Window = 10
			s, c, _ := open(t, topic)
			end, dead := 0, 0
			for _, n := range test.commits {
				entities := sinktest.Entities(end, n)
				for i := range entities {
					if test.isDead(end + i) {
						entities[i].Dead = sinktest.TooLarge()
						dead++
					}
				}
				end += n
				cp := sinktest.At(end)
				cp.Count -= uint64(dead)
				must.Succeed(t, s.Commit(t.Context(), entities, cp))
			}
			if test.behind != nil {
				test.behind(t, c)
			}
			fresh := connect(t, configFor(c)).Sink(topic)
			resume(t, fresh)
			wantKnown(t, fresh, true, sinktest.Entities(end-topic.Window, topic.Window)...)
		}))
	}
}

// A copy that does not read the dead letters continues the numbers of the checkpoint, so that a copy that reads
// them takes none of them for the newest version of an entry.
func TestNumbersContinueBehindDeadLettersThatAreNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, ordersWithDead())
		version := marked(0, 1)
		version[0].Dead = sinktest.TooLarge()
		commitMarked(t, s, version, 0)
		commitMarked(t, s, version, 0)
		without := connect(t, configFor(c)).Sink(orders())
		resume(t, without)
		version[0].Mark, version[0].Dead = "v1;newer", nil
		commitMarked(t, without, version, 1)
		wantMarks(t, more(), version)
	})
}
