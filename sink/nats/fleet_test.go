package nats_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/fleettest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// fleetSystem is a server on which copies form the fleet shop.
type fleetSystem struct{ url string }

func (s fleetSystem) Connect(t testing.TB) (fleet.Bus, func()) {
	conn, err := nats.Connect(t.Context(), nats.Config{URL: s.url}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return conn.Fleet(nats.FleetOptions{Name: "shop"}), conn.Close
}

func (s fleetSystem) Store(t testing.TB, name string, value []byte) {
	kv, err := admin(t, s.url).KeyValue(t.Context(), fleetBucket)
	if err == nil {
		_, err = kv.Put(t.Context(), name, value)
	}
	must.Succeed(t, err)
}

func TestFleetConforms(t *testing.T) {
	t.Parallel()
	for name, test := range fleettest.Tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fleetSystem{runServer(t, &server.Options{JetStream: true}).ClientURL()})
		})
	}
}

// testMember is a member of a fleet.
type testMember struct {
	*fleettest.Copy
	conn      *nats.Conn
	recreated *loggedLine // that a bucket was created again
	seen      int         // assignments
}

// joinFleet takes part in the fleet shop until the test ends.
func joinFleet(t *testing.T, url, name string) *testMember {
	t.Helper()
	return joinFleetWith(t, nats.Config{URL: url}, name, nats.FleetOptions{})
}

// joinFleetWith is joinFleet with a configuration and options, and changes of the bus.
func joinFleetWith(t *testing.T, cfg nats.Config, name string, o nats.FleetOptions, edit ...func(*nats.Fleet)) *testMember {
	t.Helper()
	m := &testMember{recreated: &loggedLine{text: "the bucket of the fleet is gone, and is created again", logged: make(chan struct{})}}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(newTestOutput(t), m.recreated), nil))
	conn, err := nats.Connect(t.Context(), cfg, log)
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	m.conn = conn
	o.Name = "shop"
	bus := conn.Fleet(o)
	for _, edit := range edit {
		edit(bus)
	}
	m.Copy = fleettest.Join(t, bus, name, log, []string{"a", "b", "c"})
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
	m.awaitAll(t, nil, members...)
}

// awaitAll is await, and fails if one of those that stay is missing meanwhile.
func (m *testMember) awaitAll(t *testing.T, stay []string, members ...string) {
	t.Helper()
	fleettest.Eventually(t, 2*time.Minute, func() string {
		all := m.All()
		for _, a := range all[m.seen:] {
			m.seen++
			for _, name := range stay {
				if !slices.Contains(a.Members, name) {
					t.Fatalf("%s is missing from the members %v", name, a.Members)
				}
			}
		}
		if a := m.Assignment(); !slices.Equal(a.Members, members) {
			return fmt.Sprintf("the members are %v, want %v", a.Members, members)
		}
		return ""
	})
}

// A copy that has never reached the bus has no key to delete, and logs nothing about it.
func TestACopyThatNeverJoinedDoesNotLeave(t *testing.T) {
	t.Parallel()
	tried := &loggedLine{text: "does not see the other members of the fleet", logged: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(refuseLeaving{t}, tried), nil))
	conn, err := nats.Connect(t.Context(), nats.Config{URL: "nats://127.0.0.1:1", Timeout: 200 * time.Millisecond}, log)
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	c := fleettest.Join(t, conn.Fleet(nats.FleetOptions{Name: "shop"}), "host-1", log, nil)
	<-tried.logged
	c.Leave()
}

// refuseLeaving fails the test if a member logs that it cannot leave.
type refuseLeaving struct{ t *testing.T }

func (w refuseLeaving) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("cannot leave the fleet")) {
		w.t.Errorf("%s", line)
	}
	return len(line), nil
}

func TestABucketThatIsDeletedIsCreatedAgain(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	a, b := joinFleet(t, url, "a"), joinFleet(t, url, "b")
	a.await(t, "a", "b")
	b.await(t, "a", "b")
	must.Succeed(t, admin(t, url).DeleteKeyValue(t.Context(), "feedbridge-fleet-shop"))
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

// New topics are stored at once, and not when the key is renewed, or has expired.
func TestNewTopicsAreStoredAtOnce(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	a := joinFleetWith(t, nats.Config{URL: url}, "a", nats.FleetOptions{}, func(f *nats.Fleet) { f.SetInterval(time.Hour) })
	a.await(t, "a")
	kv, err := admin(t, url).KeyValue(t.Context(), fleetBucket)
	must.Succeed(t, err)
	attempts := 0
	eventually(t, "the next message in the bucket has the new topics", func() bool {
		before, err := kv.Get(t.Context(), "a")
		if err != nil {
			return false
		}
		attempts++ // the key may expire during one
		a.SetTopics([]string{fmt.Sprint(attempts)}, nil)
		now := before
		eventually(t, "the new topics are stored", func() bool {
			if entry, err := kv.Get(t.Context(), "a"); err == nil {
				now = entry
			}
			return !bytes.Equal(now.Value(), before.Value())
		})
		return now.Revision() == before.Revision()+1
	})
}

// A person deletes or replaces the key of a member that is alive. It stores the key again at once, and not
// at the next time that it would be renewed.
func TestAMemberWhoseKeyIsDeletedStays(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true}).ClientURL()
	seldom := func(f *nats.Fleet) { f.SetInterval(time.Hour) }
	a, b := joinFleetWith(t, nats.Config{URL: url}, "a", nats.FleetOptions{}, seldom), joinFleet(t, url, "b")
	a.await(t, "a", "b")
	b.await(t, "a", "b")
	kv, err := admin(t, url).KeyValue(t.Context(), fleetBucket)
	must.Succeed(t, err)
	for name, change := range map[string]func() error{
		"c": func() error { return kv.Delete(t.Context(), "a") },
		"d": func() error { return kv.Purge(t.Context(), "a") },
		"e": func() error { _, err := kv.PutString(t.Context(), "a", "hello"); return err },
	} {
		var before jetstream.KeyValueEntry
		eventually(t, "the key is there", func() (is bool) { // it expires between two renewals, and is back at once
			before, err = kv.Get(t.Context(), "a")
			return err == nil
		})
		must.Succeed(t, change())
		eventually(t, "the key is stored again", func() bool {
			now, err := kv.Get(t.Context(), "a")
			return err == nil && now.Revision() > before.Revision() && string(now.Value()) != "hello"
		})
		c := joinFleet(t, url, name)
		b.await(t, "a", "b", name)
		c.Leave()
		b.await(t, "a", "b")
	}
}
