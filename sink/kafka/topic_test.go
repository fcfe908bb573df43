package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

const checkpoints = "feedbridge.checkpoints"

// open starts a cluster and returns a sink on a fresh topic that has been resumed,
// and a way to get more of them.
func open(t *testing.T, topic kafka.Topic, opts ...kfake.Opt) (*kafka.Sink, *kfake.Cluster, func() *kafka.Sink) {
	t.Helper()
	c := startCluster(t, opts...)
	more := func() *kafka.Sink { return connect(t, configFor(c)).Sink(topic) }
	s := more()
	resume(t, s)
	return s, c, more
}

// config returns the configuration of a topic.
func config(t *testing.T, c *kfake.Cluster, topic string) map[string]string {
	t.Helper()
	_, adm := admin(t, c)
	all, err := adm.DescribeTopicConfigs(t.Context(), topic)
	must.Succeed(t, err)
	values := map[string]string{}
	for _, kv := range all[0].Configs {
		values[kv.Key] = kv.MaybeValue()
	}
	return values
}

func TestTopicsAreCreated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Partitions, topic.Key = 6, "/n"
		topic.Config = []string{"cleanup.policy=compact", "retention.ms=1000"}
		_, c, more := open(t, topic)
		if n := len(c.PartitionInfos("shop.orders")); n != 6 {
			t.Errorf("%d partitions, want 6", n)
		}
		if got := config(t, c, "shop.orders"); got["cleanup.policy"] != "compact" || got["retention.ms"] != "1000" {
			t.Errorf("the topic has cleanup.policy=%s, retention.ms=%s, want what was configured", got["cleanup.policy"], got["retention.ms"])
		}
		got := config(t, c, checkpoints)
		if got["cleanup.policy"] != "compact" || got["segment.bytes"] != "4194304" {
			t.Errorf("the checkpoints have cleanup.policy=%s, segment.bytes=%s", got["cleanup.policy"], got["segment.bytes"])
		}
		// One that is there is left as it is.
		topic.Partitions = 1
		resume(t, more())
	})
}

func TestTopicKeepsTheFeedForEverByDefault(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, c, _ := open(t, orders())
		if got := config(t, c, "shop.orders")["retention.ms"]; got != "-1" {
			t.Errorf("retention.ms=%s, want -1", got)
		}
	})
}

func TestTopicIsNotCreated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Create = false
		c := startCluster(t)
		s := connect(t, configFor(c)).Sink(topic)
		_, err := s.Resume(t.Context())
		wantError(t, err, true, nil, "there is no topic feedbridge.checkpoints, and create is off", "'kafka-topics.sh --bootstrap-server 127.0.0.1:", "--config cleanup.policy=compact")
		wantError(t, s.Check(t.Context()), true, nil, "there is no topic feedbridge.checkpoints")
		must.Succeed(t, c.CreateTopic(checkpoints, 3, map[string]string{"cleanup.policy": "compact"}))
		_, err = s.Resume(t.Context())
		wantError(t, err, true, nil, "there is no topic shop.orders, and create is off", "--create --topic shop.orders --partitions 1 --config retention.ms=-1")
		wantError(t, s.Check(t.Context()), true, nil, "there is no topic shop.orders")
		must.Succeed(t, c.CreateTopic("shop.orders", 1, nil))
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		continueTo(t, s, 0, 2)
	})
}

func TestTopicIsUnfit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		seed  func(*kfake.Cluster) error
		topic func(*kafka.Topic)
		want  []string
	}{
		"checkpoints are deleted": {
			func(c *kfake.Cluster) error {
				return c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "delete"})
			}, nil,
			[]string{"cleanup.policy=delete, by which it would lose them; if it has nothing else, run", "--alter --topic feedbridge.checkpoints --add-config cleanup.policy=compact'"},
		},
		"checkpoints are deleted and compacted": {
			func(c *kfake.Cluster) error {
				return c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact,delete"})
			}, nil,
			[]string{"cleanup.policy=compact,delete, by which it would lose them"},
		},
		"compacted without a key": {
			func(c *kfake.Cluster) error {
				return c.CreateTopic("shop.orders", 1, map[string]string{"cleanup.policy": "compact"})
			}, nil,
			[]string{"it is compacted (cleanup.policy=compact), and takes no messages without a key; set one, such as \"key: /id\", and not \"missing_key: 'null'\", or give the feed another topic"},
		},
		"compacted and keys may be missing": {
			func(c *kfake.Cluster) error {
				return c.CreateTopic("shop.orders", 1, map[string]string{"cleanup.policy": "compact"})
			},
			func(t *kafka.Topic) { t.Key, t.MissingKey = "/id", kafka.KeyNull },
			[]string{`and not "missing_key: 'null'"`},
		},
		"the partition is not there": {
			func(c *kfake.Cluster) error { return c.CreateTopic("shop.orders", 2, nil) },
			func(t *kafka.Topic) { t.Partition = 2 },
			[]string{"it has no partition 2, only 0 to 1"},
		},
		"it is where the checkpoints lie": {
			func(*kfake.Cluster) error { return nil },
			func(t *kafka.Topic) { t.Name = checkpoints },
			[]string{"this is the topic for checkpoints"},
		},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			must.Succeed(t, test.seed(c))
			topic := orders()
			if test.topic != nil {
				test.topic(&topic)
			}
			_, err := connect(t, configFor(c)).Sink(topic).Resume(t.Context())
			wantError(t, err, true, nil, test.want...)
		}))
	}
}

func TestTopicHasMessagesAndNoCheckpoint(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *kafka.Sink, *kfake.Cluster){
		"someone else has published": func(t *testing.T, _ *kafka.Sink, c *kfake.Cluster) {
			cl, _ := admin(t, c)
			must.Succeed(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "shop.orders", Value: []byte("mine")}).FirstErr())
		},
		"the checkpoint was deleted": func(t *testing.T, s *kafka.Sink, c *kfake.Cluster) {
			commit(t, s, 0, 3)
			cl, _ := admin(t, c)
			r := beside(t, c)
			r.Key, r.Value = []byte("shop.orders/orders"), nil
			must.Succeed(t, cl.ProduceSync(t.Context(), r).FirstErr())
		},
		"the topic for checkpoints was deleted": func(t *testing.T, s *kafka.Sink, c *kfake.Cluster) {
			commit(t, s, 0, 3)
			must.Succeed(t, c.DeleteTopic(checkpoints))
		},
		"and the messages are gone, too": func(t *testing.T, s *kafka.Sink, c *kfake.Cluster) {
			commit(t, s, 0, 3)
			must.Succeed(t, c.DeleteTopic(checkpoints))
			must.Succeed(t, c.DeleteRecords("shop.orders", 0, -1))
		},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			s, c, more := open(t, orders())
			lose(t, s, c)
			_, err := s.Checkpoint(t.Context())
			wantError(t, err, true, checkpoint.ErrMissing)
			bus.WantMissing(t, s, more)
		}))
	}
}

// A first commit that failed leaves aborted records, which are no messages.
func TestTopicWithAbortedRecordsAloneIsEmpty(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, orders())
		cl := begin(t, c, transactionalID, &kgo.Record{Topic: "shop.orders", Value: []byte("torn")})
		must.Succeed(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
		for _, s := range []*kafka.Sink{s, more()} {
			if cp := resume(t, s); !cp.IsZero() {
				t.Errorf("checkpoint %+v", cp)
			}
		}
		commitAndCheck(t, s, 0, 2)
	})
}

func TestTopicIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, orders())
		commit(t, s, 0, 3)
		must.Succeed(t, c.DeleteTopic("shop.orders"))
		for _, s := range []*kafka.Sink{s, more()} {
			_, err := s.Resume(t.Context())
			wantError(t, err, true, checkpoint.ErrMissing, "the topic is gone", "'feedbridge checkpoint reset orders'")
			_, err = s.Checkpoint(t.Context())
			wantError(t, err, true, checkpoint.ErrMissing, "the topic is gone")
		}
		// As the command does after such an error: the count starts over.
		must.Succeed(t, more().Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(0))))
		wantCount(t, s, 0)
		wantIDs(t, s, 0)
		commitAndCheck(t, s, 0, 2)
	})
}

func TestTopicWasCreatedAnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, orders())
		commit(t, s, 0, 3)
		must.Succeed(t, errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 1, nil)))
		for _, s := range []*kafka.Sink{s, more()} {
			_, err := s.Resume(t.Context())
			wantError(t, err, true, checkpoint.ErrMissing, "was deleted and created again", "'feedbridge checkpoint set orders'")
		}
		must.Succeed(t, more().Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(0))))
		resume(t, s)
		wantIDs(t, s, 0)
		commitAndCheck(t, s, 0, 2)
	})
}

// move is a checkpoint that a person has set.
func move(n int) checkpoint.Checkpoint {
	cp := sinktest.At(n)
	cp.Moved = time.Date(2024, 3, 1, 0, 0, n, 0, time.UTC)
	return cp
}

func TestPersonMovesThePlaceAfterDeletingMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, orders())
		commit(t, s, 0, 3)
		must.Succeed(t, c.DeleteRecords("shop.orders", 0, -1))
		must.Succeed(t, more().Overwrite(t.Context(), sinktest.MoveTo(move(0))))
		resume(t, s)
		wantIDs(t, s, 0)
	})
}

func TestStoredCheckpointCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 1)
		cl, _ := admin(t, c)
		r := beside(t, c)
		r.Key, r.Value = []byte("shop.orders/orders"), []byte("?")
		must.Succeed(t, cl.ProduceSync(t.Context(), r).FirstErr())
		_, err := s.Resume(t.Context())
		wantError(t, err, true, checkpoint.ErrUnreadable, "'feedbridge checkpoint set orders'", "'feedbridge checkpoint reset orders'")
		must.Succeed(t, s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(1))))
		continueTo(t, s, 1, 2)
	})
}

func TestTopicOfAnotherFeed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 2)
		topic := orders()
		topic.Feed = "parcels"
		late := connect(t, configFor(c)).Sink(topic)
		_, err := late.Resume(t.Context())
		wantError(t, err, true, checkpoint.ErrForeign, `checkpoint of feed "orders", this is feed "parcels"`, "a topic of its own", `"shared: true"`)
		// A person sees whose it is, and may take it over.
		if cp, err := late.Checkpoint(t.Context()); err != nil || cp.Feed != "orders" || cp.Count != 2 {
			t.Errorf("checkpoint %+v and error %v, want that of orders", cp, err)
		}
		must.Succeed(t, late.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(0))))
		wantError(t, s.Commit(t.Context(), nil, sinktest.At(9)), false, checkpoint.ErrConflict)
		_, err = s.Resume(t.Context())
		wantError(t, err, true, checkpoint.ErrForeign, `feed "parcels", this is feed "orders"`)
		resumeAndCommit(t, late, 0, 1)
	})
}

// The other feed's copy lives, and commits until it loses its id.
func TestTopicIsTakenOverFromACopyThatLives(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 1)
		topic := orders()
		topic.Feed = "parcels"
		late := connect(t, configFor(c)).Sink(topic)
		held, release := hold(c, kmsg.InitProducerID, takes(transactionalID))
		moved := make(chan error, 1)
		var old checkpoint.Checkpoint
		go func() {
			moved <- late.Overwrite(t.Context(), func(cp checkpoint.Checkpoint) checkpoint.Checkpoint {
				old = cp
				return sinktest.At(0)
			})
		}()
		select {
		case <-held:
		case err := <-moved:
			t.Fatalf("nobody has taken the id of orders: %v", err)
		}
		commit(t, s, 1, 2)
		commit(t, s, 2, 3)
		release()
		must.Succeed(t, <-moved)
		if old.Feed != "orders" || old.Count != 3 {
			t.Errorf("checkpoint %+v was replaced, want the newest of orders", old)
		}
		wantError(t, s.Commit(t.Context(), nil, sinktest.At(9)), false, checkpoint.ErrConflict)
		_, err := s.Resume(t.Context())
		wantError(t, err, true, checkpoint.ErrForeign, `feed "parcels", this is feed "orders"`)
	})
}

// Another feed commits to the topic between a Resume and the Commit after it.
func TestAnotherFeedCommitsBeforeTheFirstCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		topic := orders()
		topic.Feed, topic.Shared = "parcels", true
		other := connect(t, configFor(c)).Sink(topic)
		resumeAndCommit(t, other, 0, 2)
		wantError(t, s.Commit(t.Context(), sinktest.Entities(0, 1), sinktest.At(1)), true, checkpoint.ErrForeign, `checkpoint of feed "parcels"`)
	})
}

// A third feed commits for the first time while a person takes the topic over. Its checkpoint does
// not stay.
func TestThirdFeedCommitsWhileATopicIsTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 1)
		topic := orders()
		topic.Feed, topic.Shared = "parcels", true
		third := connect(t, configFor(c)).Sink(topic)
		resume(t, third)
		held, release := hold(c, kmsg.InitProducerID, takes(transactionalID))
		moved := make(chan error, 1)
		go func() { moved <- s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(1))) }()
		<-held
		commit(t, third, 0, 2)
		release()
		wantError(t, <-moved, false, checkpoint.ErrConflict, `feed "parcels"`)
		must.Succeed(t, s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(1))))
		wantError(t, third.Commit(t.Context(), nil, sinktest.At(9)), false, checkpoint.ErrConflict)
		wantCount(t, s, 1)
	})
}

func TestTopicIsShared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		topics := []kafka.Topic{orders(), orders()}
		topics[1].Feed = "parcels"
		var sinks []*kafka.Sink
		for i := range topics {
			topics[i].Shared, topics[i].Window = true, 100
			sinks = append(sinks, connect(t, configFor(c)).Sink(topics[i]))
		}
		for n := range 5 {
			for _, s := range sinks {
				resumeAndCommit(t, s, n, n+1)
			}
		}
		// Nobody is to take the other's messages for its own.
		topics[1].Feed = "returns"
		sinks = append(sinks, connect(t, configFor(c)).Sink(topics[1]))
		for i, want := range []int{5, 5, 0} {
			resume(t, sinks[i])
			wantIDs(t, sinks[i], want)
		}
		commit(t, sinks[2], 0, 3)
		fresh := connect(t, configFor(c)).Sink(topics[1])
		wantCount(t, fresh, 3)
		wantIDs(t, fresh, 3)
		// One that has lost its checkpoint finds its messages, between the others'.
		cl, _ := admin(t, c)
		r := beside(t, c)
		r.Key, r.Value = []byte("shop.orders/orders"), nil
		must.Succeed(t, cl.ProduceSync(t.Context(), r).FirstErr())
		_, err := sinks[0].Resume(t.Context())
		wantError(t, err, true, checkpoint.ErrMissing)
	})
}

func TestNewSinkLoadsTheNewestIDsOfManyPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Partitions, topic.Key, topic.Window = 4, "/n", 40
		s, _, more := open(t, topic)
		for n := 0; n < 200; n += 5 {
			commit(t, s, n, n+5)
		}
		fresh := more()
		resume(t, fresh)
		wantIDs(t, fresh, 40)
		// Those of the same time are in any order over the partitions, so which are
		// the newest is known in about.
		wantKnown(t, fresh, false, sinktest.Entities(0, 100)...)
	})
}

func TestPartitionsAreAdded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Key = "/n"
		s, c, more := open(t, topic)
		commit(t, s, 0, 20)
		_, adm := admin(t, c)
		if _, err := adm.CreatePartitions(t.Context(), 3, "shop.orders"); err != nil {
			t.Fatal(err)
		}
		other := more()
		resumeAndCommit(t, other, 20, 60)
		for _, s := range []*kafka.Sink{s, more()} {
			resume(t, s)
			wantIDs(t, s, 60)
		}
	})
}

// A copy commits all the time while a person moves the position. The move fences it, and then
// follows the newest checkpoint.
func TestPositionIsMovedBesideABusyCopy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, orders())
		commit(t, s, 0, 1)
		held, release := hold(c, kmsg.InitProducerID, takes(transactionalID))
		moved := make(chan error, 1)
		var old checkpoint.Checkpoint
		person := more()
		go func() {
			moved <- person.Overwrite(t.Context(), func(cp checkpoint.Checkpoint) checkpoint.Checkpoint {
				old = cp
				return sinktest.At(0)
			})
		}()
		<-held
		commit(t, s, 1, 2)
		commit(t, s, 2, 3)
		release()
		must.Succeed(t, <-moved)
		if old.Count != 3 {
			t.Errorf("checkpoint %+v was replaced, want the newest", old)
		}
		wantError(t, s.Commit(t.Context(), sinktest.Entities(3, 1), sinktest.At(4)), false, checkpoint.ErrConflict)
		wantCount(t, s, 0)
	})
}

// The checkpoint to replace was read from a deposed leader. Nothing is changed.
func TestPositionIsMovedFromADeposedLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, orders())
		commit(t, s, 0, 2)
		stale := depose(t, c)
		commit(t, s, 2, 4)
		err := more().Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(1)))
		wantError(t, err, false, checkpoint.ErrConflict)
		if stale() == 0 {
			t.Error("no stale answer was given")
		}
		// It has fenced the copy all the same.
		wantError(t, s.Commit(t.Context(), sinktest.Entities(4, 1), sinktest.At(5)), false, checkpoint.ErrConflict)
		wantCount(t, s, 4)
		commitAndCheck(t, s, 4, 5)
	})
}
