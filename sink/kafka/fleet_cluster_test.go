package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/feedbridge/feedbridge/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

const group = "feedbridge.shop"

// topicNames are the topics of 300 feeds.
var topicNames = func() (names []string) {
	for n := range 300 {
		names = append(names, fmt.Sprintf("shop.feed-%03d", n))
	}
	return names
}()

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

// fleetCopy is a copy that takes part in a fleet.
type fleetCopy struct {
	name  string
	stop  context.CancelFunc
	ended chan struct{}
	err   error // of Run, once it has ended
	// slow is called whenever the assignment changes.
	slow func(fleet.Assignment)

	mu  sync.Mutex
	all []fleet.Assignment
}

func join(t testing.TB, conn *kafka.Conn, name string, edit ...func(*kafka.GroupOptions, *fleetCopy)) *fleetCopy {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &fleetCopy{name: name, stop: stop, ended: make(chan struct{}), slow: func(fleet.Assignment) {}}
	o := kafka.GroupOptions{Fleet: "shop", Self: name, Topics: func() *fleet.Topics { return fleet.NewTopics(topicNames) }, Create: true, Replication: 1}
	for _, e := range edit {
		e(&o, c)
	}
	go func() {
		defer close(c.ended)
		c.err = conn.GroupMember(o).Run(ctx, func(a fleet.Assignment) {
			c.slow(a)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.all = append(c.all, a)
		})
	}()
	// In a bubble the time stops when the test has ended.
	t.Cleanup(func() {
		stop()
		<-c.ended
	})
	return c
}

func (v *virtualCluster) join(t testing.TB, name string, edit ...func(*kafka.GroupOptions, *fleetCopy)) (*fleetCopy, *link) {
	t.Helper()
	l := v.newLink()
	return join(t, kafka.ConnectVia(t, configFor(v.Cluster), slog.New(slog.NewTextHandler(&v.log, nil)), l.dial), name, edit...), l
}

// assignment is the newest; Owner is nil if there is none yet.
func (c *fleetCopy) assignment() fleet.Assignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return fleet.Assignment{}
	}
	return c.all[len(c.all)-1]
}

func (c *fleetCopy) owned() (topics []string) {
	a := c.assignment()
	for _, topic := range topicNames {
		if a.Owner != nil && a.Owns(topic) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// wantEnd checks that Run returns nil.
func (c *fleetCopy) wantEnd(t testing.TB) {
	t.Helper()
	c.stop()
	if <-c.ended; c.err != nil {
		t.Errorf("%s: %v", c.name, c.err)
	}
}

// problem returns why the copies do not agree on an owner among them for each topic, or "".
func problem(copies []*fleetCopy) string {
	var names []string
	for _, c := range copies {
		names = append(names, c.name)
	}
	slices.Sort(names)
	for _, c := range copies {
		a := c.assignment()
		if !slices.Equal(a.Members, names) {
			return fmt.Sprintf("%s sees the members %q, want %q", c.name, a.Members, names)
		}
		for _, topic := range topicNames {
			if owner := a.Owner(topic); owner != copies[0].assignment().Owner(topic) || !slices.Contains(names, owner) {
				return fmt.Sprintf("topic %s: %s sees the owner %q, and %s the owner %q", topic, c.name, owner, copies[0].name, copies[0].assignment().Owner(topic))
			}
		}
	}
	return ""
}

// within waits until every topic has one owner among the copies, on which all of them agree.
func within(t testing.TB, limit time.Duration, copies ...*fleetCopy) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		p := problem(copies)
		if p == "" {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("after %v: %s", limit, p)
		}
	}
}

// joinAll starts three copies that have divided the feeds.
func (v *virtualCluster) joinAll(t testing.TB) (copies []*fleetCopy, links []*link) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		c, l := v.join(t, name)
		copies, links = append(copies, c), append(links, l)
	}
	within(t, 15*time.Second, copies...)
	return copies, links
}
