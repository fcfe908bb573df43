package kafka_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

func TestFleetDividesTheFeeds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, _ := v.joinAll(t)
		// The balancer aims at 10%. When a member joins, only the partitions that have left their owner
		// are exchanged in the last rebalance, and in one run of 200 a member keeps 83 of 300 feeds.
		wantEven := func(copies []*fleetCopy) {
			t.Helper()
			for _, c := range copies {
				if n := len(c.owned()) * len(copies); n < 240 || n > 360 {
					t.Errorf("%s of %d has %d of 300 feeds, want an even share within 20%%", c.name, len(copies), n/len(copies))
				}
			}
		}
		wantEven(copies)
		before := map[string]string{}
		for _, topic := range topicNames {
			before[topic] = copies[0].assignment().Owner(topic)
		}
		d, _ := v.join(t, "d")
		within(t, 10*time.Second, append(copies, d)...)
		wantEven(append(copies, d))
		moved := 0
		for _, topic := range topicNames {
			if d.assignment().Owner(topic) != before[topic] {
				moved++
			}
		}
		if limit := 75 + 30; moved == 0 || moved > limit {
			t.Errorf("%d feeds have moved, want at most %d", moved, limit)
		}
	})
}

func TestFleetTakesOverFromACopyThatStops(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, _ := v.joinAll(t)
		// Whenever it stops between two heartbeats of the others, they need one more and a rebalance.
		for n := range 5 {
			time.Sleep(10*time.Second + time.Duration(n)*700*time.Millisecond)
			copies[1].stop()
			within(t, 700*time.Millisecond, copies[0], copies[2])
			copies[1].wantEnd(t)
			copies[1], _ = v.join(t, fmt.Sprint("b", n))
			within(t, 10*time.Second, copies...)
		}
	})
}

func TestFleetTakesOverFromACopyThatDies(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, links := v.joinAll(t)
		links[1].setCut(true)
		within(t, 15*time.Second, copies[0], copies[2])
	})
}

// A copy that the group has removed, as one that was frozen, first stops its feeds.
func TestFleetCopyThatWasRemovedGivesUpItsFeeds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, _ := v.joinAll(t)
		b := copies[1]
		b.mu.Lock()
		before := len(b.all)
		b.mu.Unlock()
		admin := v.admin(t)
		groups, err := admin.DescribeGroups(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range groups[group].Members {
			if m.ClientID != "b" {
				continue
			}
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Group, req.MemberID = group, m.MemberID
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID = m.MemberID
			req.Members = append(req.Members, member)
			if _, err := req.RequestWith(t.Context(), newClient(t, v.ListenAddrs())); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(heartbeat + 100*time.Millisecond)
		b.mu.Lock()
		next := b.all[before]
		b.mu.Unlock()
		if slices.Contains(next.Members, "b") || slices.ContainsFunc(topicNames, next.Owns) {
			t.Errorf("after its removal the copy has %+v", next)
		}
		within(t, 15*time.Second, copies...)
	})
}

const heartbeat = 500 * time.Millisecond

// A copy that cannot reach a broker keeps its feeds until it learns that they have others.
func TestFleetCopyWithoutNetworkKeepsItsFeeds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, links := v.joinAll(t)
		before := copies[1].owned()
		links[1].setCut(true)
		time.Sleep(time.Minute)
		if now := copies[1].owned(); !slices.Equal(now, before) {
			t.Errorf("it has %d feeds, had %d", len(now), len(before))
		}
		links[1].setCut(false)
		within(t, 20*time.Second, copies...)
	})
}

func TestFleetOutlivesARestartOfTheBus(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
				copies, _ := v.joinAll(t)
				before := copies[1].owned()
				go v.stopFor(outage)
				time.Sleep(outage - time.Second)
				if now := copies[1].owned(); !slices.Equal(now, before) {
					t.Errorf("it has %d feeds, had %d", len(now), len(before))
				}
				time.Sleep(20 * time.Second)
				within(t, 0, copies...)
				// After a longer one the group has removed them: here the cluster runs meanwhile.
				if now := copies[1].owned(); outage < 10*time.Second && !slices.Equal(now, before) {
					t.Errorf("after the outage it has other feeds: %d, had %d", len(now), len(before))
				}
				if n := strings.Count(v.log.String(), "cannot take part in its fleet"); n != len(copies) {
					t.Errorf("%d reports, want one of each copy:\n%s", n, v.log.String())
				}
			})
		})
	}
}

func TestFleetDividesAddedPartitions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		if err := v.CreateTopic(checkpoints, 2, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		a, _ := v.join(t, "a")
		b, _ := v.join(t, "b")
		c, _ := v.join(t, "c")
		within(t, 15*time.Second, a, b, c)
		if idle := min(len(a.owned()), len(b.owned()), len(c.owned())); idle != 0 {
			t.Errorf("three copies have two partitions, and each has at least %d feeds", idle)
		}
		if _, err := v.admin(t).CreatePartitions(t.Context(), 58, checkpoints); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		within(t, 0, a, b, c)
		if n := min(len(a.owned()), len(b.owned()), len(c.owned())); n < 80 {
			t.Errorf("one of three copies has %d of 300 feeds", n)
		}
	})
}

// A member without a partition runs nothing, is seen by all, and takes over when another one leaves.
func TestFleetHasMoreMembersThanPartitions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		if err := v.CreateTopic(checkpoints, 2, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		copies, _ := v.joinAll(t)
		var working, idle []*fleetCopy
		for _, c := range copies {
			if len(c.owned()) > 0 {
				working = append(working, c)
			} else {
				idle = append(idle, c)
			}
		}
		if len(working) != 2 || len(idle) != 1 {
			t.Fatalf("%d of 3 members run feeds, want 2", len(working))
		}
		working[0].stop()
		within(t, 10*time.Second, working[1], idle[0])
		if len(idle[0].owned()) == 0 {
			t.Error("the member that had no partition still runs nothing")
		}
	})
}

// Others get the feeds of a copy once it has ended their commits, or after some time.
func TestFleetWaitsForCommits(t *testing.T) {
	for name, test := range map[string]struct {
		commit      time.Duration
		after, most time.Duration
	}{
		"that end soon":  {2 * time.Second, 2 * time.Second, 6 * time.Second},
		"that never end": {time.Hour, 5 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
				release := make(chan struct{})
				var lost atomic.Int64 // when the copy began to give up feeds
				a, _ := v.join(t, "a", func(_ *kafka.GroupOptions, c *fleetCopy) {
					c.slow = func(next fleet.Assignment) {
						if before := c.assignment(); before.Owner == nil || !slices.ContainsFunc(topicNames, func(topic string) bool { return before.Owns(topic) && !next.Owns(topic) }) {
							return
						}
						lost.CompareAndSwap(0, time.Now().UnixNano())
						select {
						case <-time.After(test.commit):
						case <-release:
						}
					}
				})
				within(t, 15*time.Second, a)
				b, _ := v.join(t, "b")
				for len(b.owned()) == 0 {
					if time.Sleep(10 * time.Millisecond); lost.Load() != 0 && time.Since(time.Unix(0, lost.Load())) > test.most {
						t.Fatalf("b has no feeds after %v", test.most)
					}
				}
				if waited := time.Since(time.Unix(0, lost.Load())); waited < test.after {
					t.Errorf("b has feeds after %v, want no earlier than after %v", waited, test.after)
				}
				close(release)
				within(t, 15*time.Second, a, b)
			})
		})
	}
}

// The member reads no records, and stores no offsets.
func TestFleetReadsNoRecords(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		var reads atomic.Int32
		for _, key := range []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetCommit} {
			v.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
				v.KeepControl()
				reads.Add(1)
				return nil, nil, false
			})
		}
		v.joinAll(t)
		time.Sleep(5 * time.Minute)
		if n := reads.Load(); n > 0 {
			t.Errorf("%d requests for records or offsets, want none", n)
		}
	})
}

// A copy that stops does so without a broker, too.
func TestFleetCopyStopsWhileTheBusIsDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, _ := v.joinAll(t)
		for n := range 6 {
			c, _ := v.join(t, fmt.Sprint("d", n))
			copies = append(copies, c)
		}
		within(t, 10*time.Second, copies...)
		ended := make(chan struct{})
		go func() {
			v.stopFor(5 * time.Minute)
			close(ended)
		}()
		time.Sleep(5 * time.Second)
		for _, c := range copies {
			time.Sleep(3 * time.Second)
			began := time.Now()
			c.wantEnd(t)
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it has stopped after %v, want 4s at most", took)
			}
		}
		<-ended
	})
}

// A connection that is replaced ends the membership on it.
func TestFleetMembershipEndsWithItsConnection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		conn := kafka.ConnectVia(t, configFor(v.Cluster), silent, v.newLink().dial)
		c := join(t, conn, "a")
		within(t, 10*time.Second, c)
		conn.Close()
		<-c.ended
		wantError(t, c.err, false, nil, "is closed")
		groups, err := v.admin(t).DescribeGroups(t.Context(), group)
		if err != nil || len(groups[group].Members) > 0 {
			t.Errorf("members %v, error %v; want none", groups[group].Members, err)
		}
	})
}

// A copy that stops does not wait until the group has divided its partitions.
func TestFleetCopyStopsWhileItJoins(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		_, links := v.joinAll(t)
		// The group waits until the session of this copy times out.
		links[1].setCut(true)
		d, _ := v.join(t, "d")
		time.Sleep(3 * time.Second)
		began := time.Now()
		d.wantEnd(t)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it has stopped after %v, want 4s at most", took)
		}
	})
}

// A bus that is down at the start is waited for, and reported once.
func TestFleetCopyStartsWhileTheBusIsDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		var out logbuffer.Buffer
		l := v.newLink()
		v.down.Store(true)
		go v.stopFor(2 * time.Minute)
		c := join(t, kafka.ConnectVia(t, configFor(v.Cluster), slog.New(slog.NewTextHandler(&out, nil)), l.dial), "a")
		time.Sleep(2 * time.Minute)
		if c.assignment().Owner != nil {
			t.Error("it is a member of a group that cannot be reached")
		}
		within(t, 50*time.Second, c)
		if n := strings.Count(out.String(), "cannot take part in its fleet"); n != 1 {
			t.Errorf("%d reports, want one:\n%s", n, out.String())
		}
	})
}

func TestFleetErrors(t *testing.T) {
	fault := func(key kmsg.Key, err *kerr.Error) func(*virtualCluster) {
		return func(v *virtualCluster) { v.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: -1}) }
	}
	for name, test := range map[string]struct {
		prepare func(*virtualCluster)
		create  bool
		opts    []kfake.Opt
		want    []string
	}{
		"no right to the group": {
			fault(kmsg.JoinGroup, kerr.GroupAuthorizationFailed), true, nil,
			[]string{`this user may not use the consumer group "feedbridge.shop"`, "run 'kafka-acls.sh --bootstrap-server 127.0.0.1:", `--operation Read --group feedbridge.shop'`},
		},
		"no right to find the coordinator": {
			fault(kmsg.FindCoordinator, kerr.GroupAuthorizationFailed), true, nil,
			[]string{`--operation Read --group feedbridge.shop'`},
		},
		"no topic": {nil, false, nil, []string{"there is no topic feedbridge.checkpoints, and create is off; create it with 'kafka-topics.sh", "--partitions 60"}},
		"too old":  {nil, true, []kfake.Opt{kfake.MaxVersions(kversion.V2_4_0())}, []string{"is too old", "from 2.5 on"}},
		"another session timeout": {
			nil, true,
			[]kfake.Opt{kfake.GroupMinSessionTimeout(time.Minute)},
			[]string{"do not allow a session timeout of 10s", "group.min.session.timeout.ms to at most 10000"},
		},
		"another kind of group": {
			fault(kmsg.JoinGroup, kerr.InconsistentGroupProtocol), true, nil,
			[]string{`another program uses the consumer group "feedbridge.shop"`, "choose another fleet.name"},
		},
		"too many members": {
			fault(kmsg.JoinGroup, kerr.GroupMaxSizeReached), true, nil,
			[]string{"raise group.max.size, or divide the feeds among several fleets"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
				if test.prepare != nil {
					test.prepare(v)
				}
				c, _ := v.join(t, "a", func(o *kafka.GroupOptions, _ *fleetCopy) { o.Create = test.create })
				select {
				case <-c.ended:
					wantError(t, c.err, true, feed.ErrPermanent, test.want...)
				case <-time.After(time.Minute):
					t.Error("no error after a minute")
				}
			}, test.opts...)
		})
	}
}
