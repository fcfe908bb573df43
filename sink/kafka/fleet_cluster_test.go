package kafka_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/fleettest"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

const group = "feedbridge.shop"

// virtualCluster is a cluster in a bubble, with a network for each of its clients.
type virtualCluster struct {
	*kfake.Cluster
	down  atomic.Bool // no connection is accepted
	links []*link
	log   logbuffer.Buffer // of all copies
}

// inVirtualTime runs a test with a cluster in a bubble.
func inVirtualTime(t *testing.T, test func(t *testing.T, v *virtualCluster), opts ...kfake.Opt) {
	t.Helper()
	inBubble(t, func(t *testing.T) { test(t, &virtualCluster{Cluster: startCluster(t, opts...)}) })
}

// link is the network of one copy.
type link struct {
	v   *virtualCluster
	mu  sync.Mutex
	cut bool
	all []net.Conn
}

func (v *virtualCluster) newLink() *link {
	l := &link{v: v}
	v.links = append(v.links, l)
	return l
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.v.down.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	c, err := dialVirtual(ctx, network, addr)
	if err == nil {
		l.all = append(l.all, c)
	}
	return c, err
}

// setCut cuts or restores the network of a copy.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut = cut; cut {
		l.drop()
	}
}

func (l *link) drop() {
	for _, c := range l.all {
		c.Close()
	}
	l.all = nil
}

// stopFor makes the cluster unreachable for a time, as while it restarts.
func (v *virtualCluster) stopFor(d time.Duration) {
	v.down.Store(true)
	for _, l := range v.links {
		l.mu.Lock()
		l.drop()
		l.mu.Unlock()
	}
	time.Sleep(d)
	v.down.Store(false)
}

func (v *virtualCluster) admin(t testing.TB) *kadm.Client {
	return kadm.NewClient(newClient(t, v.ListenAddrs()))
}

// joinOn takes part in the fleet shop over a connection.
func joinOn(t testing.TB, conn *kafka.Conn, name string, log *slog.Logger, edit ...func(*kafka.FleetOptions)) *fleettest.Copy {
	t.Helper()
	o := kafka.FleetOptions{Name: "shop", Create: true, Replication: 1}
	for _, e := range edit {
		e(&o)
	}
	return fleettest.Join(t, conn.Fleet(o), name, log, fleettest.Topics)
}

func (v *virtualCluster) join(t testing.TB, name string, edit ...func(*kafka.FleetOptions)) (*fleettest.Copy, *link) {
	t.Helper()
	l, log := v.newLink(), slog.New(slog.NewTextHandler(&v.log, nil))
	return joinOn(t, kafka.ConnectVia(t, configFor(v.Cluster), log, l.dial), name, log, edit...), l
}

// joinAll starts three copies that share the feeds.
func (v *virtualCluster) joinAll(t testing.TB) (copies []*fleettest.Copy, links []*link) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		c, l := v.join(t, name)
		copies, links = append(copies, c), append(links, l)
	}
	fleettest.Within(t, 15*time.Second, copies...)
	return copies, links
}

// Connect implements [fleettest.System].
func (v *virtualCluster) Connect(t testing.TB) (fleet.Bus, func()) {
	l := v.newLink()
	conn := kafka.ConnectVia(t, configFor(v.Cluster), silent, l.dial)
	return conn.Fleet(kafka.FleetOptions{Name: "shop", Create: true, Replication: 1}), func() { l.setCut(true) }
}

// Store implements [fleettest.System]: another program joins the group.
func (v *virtualCluster) Store(t testing.TB, name string, value []byte) {
	newClient(t, v.ListenAddrs(), kgo.ClientID(name), kgo.ConsumerGroup(group), kgo.ConsumeTopics(checkpoints), kgo.Balancers(foreignBalancer{kgo.RangeBalancer(), value}))
}

// foreignBalancer is that of another program that uses the protocol of a fleet.
type foreignBalancer struct {
	kgo.GroupBalancer
	value []byte
}

func (foreignBalancer) ProtocolName() string { return "feedbridge" }

func (b foreignBalancer) JoinGroupMetadata([]string, map[string][]int32, int32) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.UserData = b.value
	return meta.AppendTo(nil)
}
