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
	"github.com/feedbridge/feedbridge/internal/testkit/fleettest"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

func TestFleetConforms(t *testing.T) {
	for name, test := range fleettest.Tests {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtualCluster) { test(t, v) })
		})
	}
}

func TestFleetTakesOverFromACopyThatStops(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, _ := v.joinAll(t)
		// Whenever it stops between two heartbeats of the others, they need one more, a rebalance, and the
		// time to settle.
		for n := range 5 {
			time.Sleep(10*time.Second + time.Duration(n)*700*time.Millisecond)
			copies[1].Stop()
			fleettest.Within(t, 1500*time.Millisecond, copies[0], copies[2])
			copies[1].Leave()
			copies[1], _ = v.join(t, fmt.Sprint("b", n))
			fleettest.Within(t, 10*time.Second, copies...)
		}
	})
}

func TestFleetTakesOverFromACopyThatDies(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, links := v.joinAll(t)
		links[1].setCut(true)
		fleettest.Within(t, 15*time.Second, copies[0], copies[2])
	})
}

// A copy that the group has removed, as one that was frozen, joins again, and gets back what it had.
func TestFleetCopyThatWasRemovedJoinsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, _ := v.joinAll(t)
		before := copies[1].Owned()
		groups, err := v.admin(t).DescribeGroups(t.Context(), group)
		must.Succeed(t, err)
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
		time.Sleep(10 * time.Second)
		fleettest.Within(t, 0, copies...)
		if now := copies[1].Owned(); !slices.Equal(now, before) {
			t.Errorf("it has %d feeds, had %d", len(now), len(before))
		}
		if !strings.Contains(v.log.String(), "does not see the other members of the fleet") {
			t.Errorf("nothing in the log says so:\n%s", v.log.String())
		}
	})
}

// A copy that cannot reach a broker keeps its feeds until it learns that they have others.
func TestFleetCopyWithoutNetworkKeepsItsFeeds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, links := v.joinAll(t)
		before := copies[1].Owned()
		links[1].setCut(true)
		time.Sleep(time.Minute)
		if now := copies[1].Owned(); !slices.Equal(now, before) {
			t.Errorf("it has %d feeds, had %d", len(now), len(before))
		}
		links[1].setCut(false)
		fleettest.Within(t, 20*time.Second, copies...)
	})
}

func TestFleetOutlivesARestartOfTheBus(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
				copies, _ := v.joinAll(t)
				before := copies[1].Owned()
				go v.stopFor(outage)
				time.Sleep(outage - time.Second)
				if now := copies[1].Owned(); !slices.Equal(now, before) {
					t.Errorf("it has %d feeds, had %d", len(now), len(before))
				}
				time.Sleep(20 * time.Second)
				fleettest.Within(t, 0, copies...)
				if now := copies[1].Owned(); !slices.Equal(now, before) {
					t.Errorf("after the outage it has other feeds: %d, had %d", len(now), len(before))
				}
				if n := strings.Count(v.log.String(), "does not see the other members of the fleet"); n != len(copies) {
					t.Errorf("%d reports, want one of each copy:\n%s", n, v.log.String())
				}
			})
		})
	}
}

// The member reads no records, and stores no offsets.
func TestFleetReadsNoRecords(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		reads := v.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetCommit}, Observe: true, Count: -1})
		v.joinAll(t)
		time.Sleep(5 * time.Minute)
		if n := reads.Hits(); n > 0 {
			t.Errorf("%d requests for records or offsets, want none", n)
		}
	})
}

// While members join, the group shows them without their values, and is read again.
func TestFleetWaitsUntilTheGroupIsStable(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies, _ := v.joinAll(t)
		var reads atomic.Int32
		v.ControlKey(kmsg.DescribeGroups.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			v.KeepControl()
			if reads.Add(1) > 8 {
				return nil, nil, false
			}
			resp, g := req.ResponseKind().(*kmsg.DescribeGroupsResponse), kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.State, g.ProtocolType = group, "PreparingRebalance", "consumer"
			for _, name := range []string{"a", "b", "c", "d"} {
				member := kmsg.NewDescribeGroupsResponseGroupMember()
				member.MemberID, member.ClientID = name, name
				g.Members = append(g.Members, member)
			}
			resp.Groups = append(resp.Groups, g)
			return resp, nil, true
		})
		d, _ := v.join(t, "d")
		fleettest.Within(t, 10*time.Second, append(copies, d)...)
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
		fleettest.Within(t, 10*time.Second, copies...)
		ended := make(chan struct{})
		go func() {
			v.stopFor(5 * time.Minute)
			close(ended)
		}()
		time.Sleep(5 * time.Second)
		for _, c := range copies {
			time.Sleep(3 * time.Second)
			began := time.Now()
			c.Leave()
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it has stopped after %v, want 4s at most", took)
			}
		}
		<-ended
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
		d.Leave()
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
		log := slog.New(slog.NewTextHandler(&out, nil))
		c := joinOn(t, kafka.ConnectVia(t, configFor(v.Cluster), log, l.dial), "a", log)
		time.Sleep(2 * time.Minute)
		if c.Assignment().Owner != nil {
			t.Error("it is a member of a group that cannot be reached")
		}
		fleettest.Within(t, 50*time.Second, c)
		if n := strings.Count(out.String(), "does not see the other members of the fleet"); n != 1 {
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
				c, _ := v.join(t, "a", func(o *kafka.FleetOptions) { o.Create = test.create })
				time.Sleep(time.Minute)
				wantError(t, c.Err(), true, feed.ErrPermanent, test.want...)
			}, test.opts...)
		})
	}
}
