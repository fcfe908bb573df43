package nats_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/fleet"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// testMember is a member of a fleet.
type testMember struct {
	conn        *nats.Conn
	recreated   *loggedLine // that a bucket was created again
	assignments chan fleet.Assignment
	leave       func()
}

// joinFleet takes part in the fleet shop until leave is called.
func joinFleet(t *testing.T, url, name string) *testMember {
	t.Helper()
	return joinFleetWith(t, nats.Config{URL: url}, nats.FleetOptions{Self: name})
}

// joinFleetWith is joinFleet with a configuration and options, and changes of the membership.
func joinFleetWith(t *testing.T, cfg nats.Config, o nats.FleetOptions, edit ...func(*nats.Fleet)) *testMember {
	t.Helper()
	m := &testMember{
		recreated:   &loggedLine{text: "the bucket of the fleet is gone, and is created again", logged: make(chan struct{})},
		assignments: make(chan fleet.Assignment, 100),
	}
	conn, err := nats.Connect(t.Context(), cfg, slog.New(slog.NewTextHandler(io.MultiWriter(newTestOutput(t), m.recreated), nil)))
	if err != nil {
		t.Fatal(err)
	}
	m.conn = conn
	topics := fleet.NewTopics([]string{"a", "b", "c"})
	name := o.Self
	o.Name, o.Topics = "shop", func() *fleet.Topics { return topics }
	member := conn.Fleet(o)
	for _, edit := range edit {
		edit(member)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- member.Run(ctx, func(a fleet.Assignment) {
			t.Log(name, a.Members)
			m.assignments <- a
		})
	}()
	m.leave = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Log(name, err) // its connection was closed
		}
	})
	t.Cleanup(func() {
		m.leave()
		conn.Close()
	})
	return m
}

// testOutput is the output of a test until it ends. A connection logs in the background, also
// after Close, and a test that has ended panics when something is written to its output.
type testOutput struct {
	mu  sync.Mutex
	out io.Writer // nil after the end of the test
}

func newTestOutput(t *testing.T) *testOutput {
	o := &testOutput{out: t.Output()}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.out = nil
	})
	return o
}

func (o *testOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out == nil {
		return len(line), nil
	}
	return o.out.Write(line)
}

// await returns when the member's assignment has these members.
func (m *testMember) await(t *testing.T, members ...string) {
	t.Helper()
	end := time.After(2 * time.Minute)
	for {
		select {
		case a := <-m.assignments:
			if slices.Equal(a.Members, members) {
				return
			}
		case <-end:
			t.Fatalf("the members are not %v", members)
		}
	}
}

// A copy that has never reached the bus has no key to delete, and logs nothing about it.
func TestACopyThatNeverJoinedDoesNotLeave(t *testing.T) {
	t.Parallel()
	tried := &loggedLine{text: "the fleet cannot be watched", logged: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(refuseLeaving{t}, tried), nil))
	conn, err := nats.Connect(t.Context(), nats.Config{URL: "nats://127.0.0.1:1", Timeout: 200 * time.Millisecond}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	member := conn.Fleet(nats.FleetOptions{Name: "shop", Self: "host-1", Topics: func() *fleet.Topics { return fleet.NewTopics(nil) }})
	go func() {
		<-tried.logged
		cancel()
	}()
	if err := member.Run(ctx, func(fleet.Assignment) {}); err != nil {
		t.Fatal(err)
	}
}

// refuseLeaving fails the test if a member logs that it cannot leave.
type refuseLeaving struct{ t *testing.T }

func (w refuseLeaving) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("cannot leave the fleet")) {
		w.t.Errorf("%s", line)
	}
	return len(line), nil
}

func TestMembersSeeWhoJoinsLeavesAndIsKilled(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	a, b := joinFleet(t, url, "a"), joinFleet(t, url, "b")
	a.await(t, "a", "b")
	c := joinFleet(t, url, "c")
	a.await(t, "a", "b", "c")
	b.leave()
	a.await(t, "a", "c")
	began := time.Now()
	c.conn.Close() // as if it was killed
	a.await(t, "a")
	t.Logf("a killed member was missed after %v", time.Since(began).Round(10*time.Millisecond))
}

// awaitAll is await, and fails if one of those that stay is missing meanwhile.
func (m *testMember) awaitAll(t *testing.T, stay []string, members ...string) {
	t.Helper()
	for {
		select {
		case a := <-m.assignments:
			for _, name := range stay {
				if !slices.Contains(a.Members, name) {
					t.Fatalf("%s is missing from the members %v", name, a.Members)
				}
			}
			if slices.Equal(a.Members, members) {
				return
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("the members are not %v", members)
		}
	}
}

func TestABucketThatIsDeletedIsCreatedAgain(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	a, b := joinFleet(t, url, "a"), joinFleet(t, url, "b")
	a.await(t, "a", "b")
	b.await(t, "a", "b")
	if err := admin(t, url).DeleteKeyValue(t.Context(), "feedbridge-fleet-shop"); err != nil {
		t.Fatal(err)
	}
	select { // one of them is first
	case <-a.recreated.logged:
	case <-b.recreated.logged:
	case <-time.After(time.Minute):
		t.Error("nothing in the log says that the bucket was gone")
	}
	joinFleet(t, url, "c")
	a.awaitAll(t, []string{"a", "b"}, "a", "b", "c")
	b.awaitAll(t, []string{"a", "b"}, "a", "b", "c")
}

// A person deletes the key of a member that is alive. It stores the key again at once, and not at the
// next time that it would be renewed.
func TestAMemberWhoseKeyIsDeletedStays(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	seldom := func(f *nats.Fleet) { f.SetInterval(time.Hour) }
	a, b := joinFleetWith(t, nats.Config{URL: url}, nats.FleetOptions{Self: "a"}, seldom), joinFleet(t, url, "b")
	a.await(t, "a", "b")
	b.await(t, "a", "b")
	kv, err := admin(t, url).KeyValue(t.Context(), fleetBucket)
	if err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(context.Context, string, ...jetstream.KVDeleteOpt) error{"c": kv.Delete, "d": kv.Purge} {
		var before jetstream.KeyValueEntry
		eventually(t, "the key is there", func() (is bool) { // it expires between two renewals, and is back at once
			before, err = kv.Get(t.Context(), "a")
			return err == nil
		})
		if err := remove(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the key is stored again", func() bool {
			now, err := kv.Get(t.Context(), "a")
			return err == nil && now.Revision() > before.Revision()
		})
		c := joinFleet(t, url, name)
		b.await(t, "a", "b", name)
		c.leave()
		b.await(t, "a", "b")
	}
}

// A person may store anything in the bucket. Feeds that were given to such a key would not be run.
func TestKeysOfNoMemberAreIgnored(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	a := joinFleet(t, url, "a")
	a.await(t, "a")
	kv, err := admin(t, url).KeyValue(t.Context(), "feedbridge-fleet-shop")
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"text": "hello", "empty": "", "number": "1", "object": "{}", "other.type": `{"topics": 5}`, "a/b=c": "[]"} {
		if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	joinFleet(t, url, "node1.example.com-b").awaitAll(t, nil, "a", "node1.example.com-b")
	a.awaitAll(t, []string{"a"}, "a", "node1.example.com-b")
}
