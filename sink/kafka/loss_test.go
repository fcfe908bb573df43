package kafka_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// lose replaces a partition's directory in dir by the one that saved has.
func lose(t *testing.T, dir, saved, partition string) {
	t.Helper()
	var found string
	err := filepath.WalkDir(saved, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == partition {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no directory of %s: %v", partition, err)
	}
	name, err := filepath.Rel(saved, found)
	must.Succeed(t, err)
	must.Succeed(t, os.RemoveAll(filepath.Join(dir, name)))
	must.Succeed(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(found)))
}

// The cluster loses the newest messages of a partition, and not their checkpoint.
func TestTopicHasLostMessages(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]kafka.Key{"one partition": "", "one of three": "/n"} {
		t.Run(name, bubbled(func(t *testing.T) {
			dir, saved := t.TempDir(), t.TempDir()
			port := freePort(t)
			c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
			topic := orders()
			if topic.Key = key; key != "" {
				topic.Partitions = 3
			}
			cfg := configWithin(c, 2*time.Second)
			s := connect(t, cfg).Sink(topic)
			resumeAndCommit(t, s, 0, 20)
			c.Close()
			must.Succeed(t, os.CopyFS(saved, os.DirFS(dir)))
			c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
			resumeAndCommit(t, s, 20, 40)
			// The partitions that this one does not write to are still known.
			must.Succeed(t, s.Commit(t.Context(), nil, sinktest.At(40)))
			c.Close()
			lose(t, dir, saved, "shop.orders-0")
			startCluster(t, kfake.DataDir(dir), kfake.Ports(port))

			late := connect(t, cfg).Sink(topic)
			for _, s := range []*kafka.Sink{s, late} {
				_, err := s.Resume(t.Context())
				wantError(t, err, true, checkpoint.ErrLost, "partition 0 of shop.orders ends at offset ", "and its checkpoint says at least ",
					"'feedbridge checkpoint set orders'", "'feedbridge checkpoint reset orders'")
				_, err = s.Checkpoint(t.Context())
				wantError(t, err, true, checkpoint.ErrLost)
			}
			// A person goes on where they are missing.
			must.Succeed(t, late.Overwrite(t.Context(), sinktest.MoveTo(move(20))))
			for _, s := range []*kafka.Sink{late, s} {
				wantCount(t, s, 20)
			}
			if held := s.IDs().Len(); key == "" && held != 20 {
				t.Errorf("%d IDs are held, want those of the 20 that are left", held)
			}
			commit(t, s, 20, 40)
			if key == "" {
				wantFeed(t, s, 40)
			}
		}))
	}
}

// The topic, or the dead-letter topic, loses its newest messages while a copy is between two commits,
// or between Resume and its first commit. The next commit of the copy must not hide that.
func TestTopicLosesMessagesOfARunningCopy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		topic       string
		first, late bool
	}{
		"it has committed last":                    {topic: "shop.orders"},
		"it has resumed":                           {topic: "shop.orders", first: true},
		"they are lost as the commit is made":      {topic: "shop.orders", late: true},
		"dead letters, it has committed last":      {topic: deadTopic},
		"dead letters, it has resumed":             {topic: deadTopic, first: true},
		"dead letters, lost as the commit is made": {topic: deadTopic, late: true},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			dir, saved := t.TempDir(), t.TempDir()
			port := freePort(t)
			c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
			conn := connect(t, configFor(c))
			s, other := conn.Sink(ordersWithDead()), conn.Sink(ordersWithDead())
			resume(t, s)
			commitDead(t, s, 0, 20, 0)
			s.AwaitEnd(t)
			c.Close()
			must.Succeed(t, os.CopyFS(saved, os.DirFS(dir)))
			c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
			resume(t, s)
			commitDead(t, s, 20, 40, 1)
			s.AwaitEnd(t)
			if test.first {
				resume(t, other)
				s = other
			}
			before := newDeposed(c, test.topic)
			c.Close()
			lose(t, dir, saved, test.topic+"-0")
			c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
			before.c = c
			var stale atomic.Bool
			if test.late {
				stale.Store(true)
				c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					if !stale.Load() {
						return nil, nil, false
					}
					resp := before.offsets(r)
					return resp, nil, resp != nil
				})
			}
			entities, cp := withDead(40, 100, 2)
			err := s.Commit(t.Context(), entities, cp)
			lost := "partition 0 of " + test.topic + " ends at offset "
			if test.late {
				wantError(t, err, true, checkpoint.ErrLost, lost)
				stale.Store(false)
				// The aborted records make the topic as long as its checkpoint says.
				for range 2 {
					_, err = s.Resume(t.Context())
					wantError(t, err, true, checkpoint.ErrLost, lost)
				}
				// A person goes on where the messages are missing.
				must.Succeed(t, other.Overwrite(t.Context(), sinktest.MoveTo(move(20))))
				wantCount(t, s, 20)
				entities, cp := withDead(20, 40, 1)
				fresh := slices.DeleteFunc(entities, func(e feed.Entity) bool { return !s.IDs().Add(e.ID) })
				must.Succeed(t, s.Commit(t.Context(), fresh, cp))
				if n := len(messages(t, s, 0)); n != 38 {
					t.Errorf("the topic holds %d entities, want 38", n)
				}
				wantDead(t, conn, 19, 39)
				return
			}
			wantError(t, err, false, nil, lost)
			_, err = s.Resume(t.Context())
			wantError(t, err, true, checkpoint.ErrLost, lost)
			_, err = s.Checkpoint(t.Context())
			wantError(t, err, true, checkpoint.ErrLost, lost)
		}))
	}
}

// Retention and DeleteRecords take the oldest messages of a topic. That is no loss.
func TestOldMessagesAreDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, ordersWithDead())
		commitDead(t, s, 0, 5, 0)
		for _, topic := range []string{"shop.orders", deadTopic} {
			must.Succeed(t, c.DeleteRecords(topic, 0, -1))
		}
		for _, s := range []*kafka.Sink{s, more()} {
			wantCount(t, s, 4)
		}
	})
}

// A checkpoint of an older version does not have the ends of the topic.
func TestCheckpointWithoutEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, more := open(t, orders())
		commit(t, s, 0, 5)
		cl, _ := admin(t, c)
		r := beside(t, c)
		r.Key, r.Value = []byte("shop.orders/orders"), checkpoint.Encode(sinktest.At(5))
		for _, ends := range []string{"", "?", "6", "1,", "-1"} {
			if ends != "" {
				r.Headers = []kgo.RecordHeader{{Key: "Feedbridge-Topic-Ends", Value: []byte(ends)}}
			}
			must.Succeed(t, cl.ProduceSync(t.Context(), r).FirstErr())
			resume(t, more())
		}
		// From the next commit on they do.
		resumeAndCommit(t, s, 5, 6)
		if ends := s.StoredEnds(t); len(ends) != 1 || ends[0] != 7 {
			t.Errorf("the checkpoint says that the topic ends at %v, want 7", ends)
		}
	})
}

// The cluster goes back to an earlier state while the connection of an idle copy stays, and
// another copy's checkpoint gets the very offset of the one that the idle copy knows.
func TestAnotherCheckpointHasTheSameOffset(t *testing.T) {
	t.Parallel()
	for name, further := range map[string]bool{"it is the newest": false, "there is a newer one": true} {
		t.Run(name, bubbled(func(t *testing.T) {
			sameOffset(t, further)
		}))
	}
}

func sameOffset(t *testing.T, further bool) {
	dir, saved := t.TempDir(), t.TempDir()
	port := freePort(t)
	c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	cfg := configFor(c)
	s, idle := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
	resumeAndCommit(t, s, 0, 2)
	c.Close()
	must.Succeed(t, os.CopyFS(saved, os.DirFS(dir)))
	c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	resumeAndCommit(t, s, 2, 4)
	resume(t, idle)
	ends := c.PartitionInfos(checkpoints)
	c.Close()
	c = startCluster(t, kfake.DataDir(saved), kfake.Ports(port))
	other := connect(t, cfg).Sink(orders())
	wantCount(t, other, 2)
	commit(t, other, 2, 3)
	for i, p := range c.PartitionInfos(checkpoints) {
		if p.HighWatermark != ends[i].HighWatermark {
			t.Fatalf("partition %d ends at %d, want %d as before", i, p.HighWatermark, ends[i].HighWatermark)
		}
	}
	n := 3
	if further {
		// The feed goes on with others than those that were lost.
		n = 6
		must.Succeed(t, other.Commit(t.Context(), sinktest.Entities(100, 3), sinktest.At(n)))
	}
	wantError(t, idle.Commit(t.Context(), sinktest.Entities(4, 2), sinktest.At(6)), false, checkpoint.ErrConflict)
	wantCount(t, idle, uint64(n))
	if held := idle.IDs().Len(); held != n {
		t.Errorf("%d IDs are held, want those of the %d that are there", held, n)
	}
	if lost := sinktest.Entities(3, 1)[0].ID; !idle.IDs().Add(lost) {
		t.Errorf("%s counts as one that the topic holds", lost)
	}
	if !further {
		commitAndCheck(t, idle, 3, 5)
	}
}

// A broker that no longer leads the partition of the topic, or of its dead letters, answers with old
// offsets, for longer than it may take to answer. That is no loss, and a copy that starts waits for
// the IDs of all messages.
func TestDeposedLeaderOfTheTopicIsNoLoss(t *testing.T) {
	t.Parallel()
	resumes := func(t *testing.T, s *kafka.Sink) {
		wantCount(t, s, 2)
		wantIDs(t, s, 4)
	}
	shows := func(t *testing.T, s *kafka.Sink) {
		if cp, err := s.Checkpoint(t.Context()); err != nil || cp.Count != 2 {
			t.Errorf("checkpoint %+v, %v, want two", cp, err)
		}
	}
	moves := func(t *testing.T, s *kafka.Sink) {
		must.Succeed(t, s.Overwrite(t.Context(), sinktest.MoveTo(move(2))))
		resumes(t, s)
	}
	for name, test := range map[string]struct {
		topic string
		stale int32 // answers
		look  func(*testing.T, *kafka.Sink)
	}{
		"resume":                        {"shop.orders", 40, resumes},
		"checkpoint show":               {"shop.orders", 4, shows},
		"resume, dead letters":          {deadTopic, 40, resumes},
		"checkpoint show, dead letters": {deadTopic, 4, shows},
		"checkpoint set":                {"shop.orders", 40, moves},
		"checkpoint set, dead letters":  {deadTopic, 40, moves},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			s, c, _ := open(t, ordersWithDead())
			commitDead(t, s, 0, 2, 0)
			d := newDeposed(c, test.topic)
			commitDead(t, s, 2, 4, 1)
			var answers atomic.Int32
			for key, of := range map[kmsg.Key]func(kmsg.Request) kmsg.Response{kmsg.ListOffsets: d.offsets, kmsg.Fetch: d.records} {
				c.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					resp := of(r)
					if resp == nil || answers.Add(1) > test.stale {
						return nil, nil, false
					}
					return resp, nil, true
				})
			}
			cfg := configWithin(c, time.Second)
			test.look(t, connect(t, cfg).Sink(ordersWithDead()))
			if n := answers.Load(); n <= test.stale {
				t.Errorf("the leader was asked %d times, want more than %d", n, test.stale)
			}
		}))
	}
}

// The cluster comes back in an earlier state, with its transactional ids, while a copy is between
// two commits. The copy must not go on behind messages that are lost, though the cluster may take
// its id and epoch for the current ones.
func TestCopyThatCommittedLastDoesNotGoOnAfterALoss(t *testing.T) {
	t.Parallel()
	for name, refilled := range map[string]int{"nobody has committed since": 0, "another copy has published a part": 1} {
		t.Run(name, bubbled(func(t *testing.T) {
			dir, saved := t.TempDir(), t.TempDir()
			port := freePort(t)
			c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
			conn := connect(t, configFor(c))
			s, idle := conn.Sink(orders()), conn.Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			s.AwaitEnd(t)
			c.Close()
			must.Succeed(t, os.CopyFS(saved, os.DirFS(dir)))
			c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
			// Without entities, for a topic that is shorter is noticed before the checkpoint.
			for range 2 {
				must.Succeed(t, s.Commit(t.Context(), nil, sinktest.At(4)))
			}
			s.AwaitEnd(t)
			resume(t, idle) // the connection has read the checkpoint that is lost
			c.Close()
			c = startCluster(t, kfake.DataDir(saved), kfake.Ports(port))
			n := 2 + refilled
			if refilled > 0 {
				other := connect(t, configFor(c)).Sink(orders())
				resumeAndCommit(t, other, 2, n)
			}
			// A commit that waited for the lost records would end with its timeout instead.
			wantError(t, s.Commit(t.Context(), sinktest.Entities(4, 1), sinktest.At(5)), false, checkpoint.ErrConflict)
			wantCount(t, s, uint64(n))
			commitAndCheck(t, s, n, 5)
		}))
	}
}

// The cluster loses the newest commit and nothing else, so that the partition of the checkpoints
// ends where the record was that a copy has read last.
func TestCopyResumesWhenTheNewestCommitIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, saved := t.TempDir(), t.TempDir()
		port := freePort(t)
		c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
		s, idle := connect(t, configFor(c)).Sink(orders()), connect(t, configFor(c)).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		s.AwaitEnd(t)
		c.Close()
		must.Succeed(t, os.CopyFS(saved, os.DirFS(dir)))
		c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
		resumeAndCommit(t, s, 2, 3)
		resume(t, idle)
		c.Close()
		startCluster(t, kfake.DataDir(saved), kfake.Ports(port))
		wantCount(t, idle, 2)
		commitAndCheck(t, idle, 2, 5)
	})
}
