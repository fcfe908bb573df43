package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

const (
	killLength   = 20_000 // entities of the feed
	killPage     = 100    // entities on a page
	killSnapshot = killLength * 3 / 4
	killArchives = 30_000 // entries of the archived feed
)

// The real program is killed at random while it copies a feed. Whatever it was doing then, the topic
// holds the feed in the end: nothing lost, nothing twice, nothing out of order.
func TestNothingIsLostOrRepeatedWhenTheProgramIsKilled(t *testing.T) {
	for _, test := range []struct {
		name   string
		serve  func(*killing)
		copies int
		server bool // is killed too
		kills  int
		last   uint64 // entity before which a kill is in the middle
	}{
		{"one copy", (*killing).serveUpstream, 1, false, 20, killLength},
		{"two copies at once", (*killing).serveUpstream, 2, false, 20, killLength},
		{"two copies at once, and the NATS server", (*killing).serveUpstream, 2, true, 20, killLength},
		{"two copies that start with a snapshot", (*killing).serveSnapshot, 2, false, 8, killSnapshot * 9 / 10},
		// A copy's progress on the way back to the oldest archive dies with it.
		{"the history of an archived feed", (*killing).serveArchives, 1, false, 8, killArchives},
		{"the history, two copies at once, and the NATS server", (*killing).serveArchives, 2, true, 8, killArchives},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			k := newKilling(t)
			test.serve(k)
			victims := make([]func(), 0, test.copies+1)
			for range test.copies {
				victims = append(victims, k.startCopy())
			}
			if test.server {
				victims = append(victims, k.killServer)
			}
			// The way back from the newest page to the oldest comes first.
			k.waitFor(1)
			at, random := map[uint64]bool{}, rand.New(rand.NewPCG(1, 2))
			for n := range test.kills {
				if n%3 == 0 {
					// Once more on its way; on a slow machine it may always die before.
					k.waitFor(min(k.published()+1, k.length))
				}
				k.pause(50 + random.IntN(350))
				at[k.published()] = true
				victims[random.IntN(len(victims))]()
			}
			t.Logf("killed after so many entities: %v", slices.Sorted(maps.Keys(at)))
			if len(at) < 3 || slices.Min(slices.Collect(maps.Keys(at))) >= test.last || at[k.length] {
				t.Error("too few of the kills came in the middle of the copy to prove anything")
			}
			k.waitFor(k.length)
			k.pause(500) // for what should not come
			k.check()
		})
	}
}

// killing is a feed, a bus, and copies of the program that come to harm.
type killing struct {
	t       *testing.T
	dir     string
	feedURL string
	natsURL string
	server  *exec.Cmd
	// length is the length of the feed, id the ID of an entity by its number, and options
	// are variables of the copies.
	length  uint64
	id      func(i int) string
	options []string
}

func newKilling(t *testing.T) *killing {
	k := &killing{t: t, dir: t.TempDir()}
	// Its port is its own also while it is away.
	k.natsURL, k.server = startServer(t, "nats", k.dir, portOf(freeAddress(t)))
	return k
}

// serveUpstream serves a feed of pages.
func (k *killing) serveUpstream() {
	k.length, k.id = killLength, func(i int) string { return fmt.Sprintf("%d@sample", i) }
	k.feedURL, _ = startServer(k.t, "upstream", "127.0.0.1:0", strconv.Itoa(killPage), strconv.Itoa(killLength), "100")
	// Slow enough to be still at it when the last kill comes.
	k.options = []string{"FEEDS_ORDERS_LIMITS_RATE=25"}
}

// serveSnapshot serves the same, and has copies start with a snapshot of three quarters of it.
func (k *killing) serveSnapshot() {
	k.serveUpstream()
	k.options = append(k.options, fmt.Sprintf("FEEDS_ORDERS_START=snapshot:%s/snapshots/%d", strings.TrimSuffix(k.feedURL, "/latest"), killSnapshot))
}

// serveArchives serves an archived Atom feed.
func (k *killing) serveArchives() {
	const size = 500
	k.length, k.id = killArchives, entryID
	k.feedURL, _ = startServer(k.t, "archives", "127.0.0.1:0", strconv.Itoa(size), strconv.Itoa(killArchives), "10")
	// Little memory: each document is published in several parts, and there are
	// kills between them.
	k.options = []string{"FEEDS_ORDERS_LIMITS_RATE=10000", "MEMORY=524288"}
}

// startCopy starts a copy of the program, and returns what kills it and starts
// another in its place.
func (k *killing) startCopy() (kill func()) {
	return startAgain(k.t, func() *exec.Cmd {
		env := []string{
			"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + k.natsURL,
			"FEEDBRIDGE_FEEDS_ORDERS_URL=" + k.feedURL,
			"FEEDBRIDGE_FEEDS_ORDERS_EVERY=200ms",
			"FEEDBRIDGE_ADMIN_LISTEN=",
		}
		for _, option := range k.options {
			env = append(env, "FEEDBRIDGE_"+option)
		}
		cmd, _ := spawn(k.t, "feedbridge", env, "run")
		return cmd
	})
}

// startAgain starts a process, and returns what kills it and starts it again.
func startAgain(t *testing.T, start func() *exec.Cmd) (kill func()) {
	cmd := start()
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("%s had ended by itself: %v", cmd, err)
		}
		_ = cmd.Wait()
		cmd = start()
	}
}

// killServer kills the NATS server, and starts it on the same data.
func (k *killing) killServer() {
	must.Succeed(k.t, k.server.Process.Kill())
	_ = k.server.Wait()
	_, k.server = startServer(k.t, "nats", k.dir, portOf(k.natsURL))
}

func portOf(url string) string {
	for i := len(url) - 1; i >= 0; i-- {
		if url[i] == ':' {
			return url[i+1:]
		}
	}
	return ""
}

// pause waits for some milliseconds.
func (k *killing) pause(n int) {
	select {
	case <-time.After(time.Duration(n) * time.Millisecond):
	case <-k.t.Context().Done():
	}
}

// published returns the number of messages in the topic.
func (k *killing) published() uint64 {
	nc, err := nats.Connect(k.natsURL, nats.Timeout(patience))
	must.Succeed(k.t, err)
	defer nc.Close()
	stream := k.stream(nc)
	if stream == nil {
		return 0
	}
	return k.info(stream).State.Subjects["orders"]
}

// stream returns the topic's stream; nil if there is none yet.
func (k *killing) stream(nc *nats.Conn) jetstream.Stream {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	must.Succeed(k.t, err)
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	stream, err := js.Stream(ctx, "orders")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	must.Succeed(k.t, err)
	return stream
}

func (k *killing) info(stream jetstream.Stream) *jetstream.StreamInfo {
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter("orders"))
	must.Succeed(k.t, err)
	return info
}

// waitFor waits until the topic has n messages at least. A topic that gets none for twice as long as anything takes
// has no copy that runs.
func (k *killing) waitFor(n uint64) {
	for had, since := k.published(), time.Now(); had < n; {
		k.pause(50)
		switch now := k.published(); {
		case now != had:
			had, since = now, time.Now()
		case time.Since(since) > 2*patience:
			k.t.Fatalf("the topic has %d messages since %v, and should get %d", had, since, n)
		}
	}
}

// check reads the topic and compares it with the feed.
func (k *killing) check() {
	nc, err := nats.Connect(k.natsURL, nats.Timeout(patience))
	must.Succeed(k.t, err)
	defer nc.Close()
	stream := k.stream(nc)
	held := k.info(stream).State.Subjects["orders"]
	if held != k.length {
		k.t.Errorf("the topic has %d entities, and the feed %d", held, k.length)
	}
	consumer, err := stream.OrderedConsumer(k.t.Context(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{"orders"}, HeadersOnly: true})
	must.Succeed(k.t, err)
	messages, err := consumer.Messages()
	must.Succeed(k.t, err)
	defer messages.Stop()
	for i := range held {
		msg, err := messages.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			k.t.Fatalf("message %d: %v", i, err)
		}
		if got, want := msg.Headers().Get("Content-ID"), k.id(int(i)); got != want {
			k.t.Fatalf("message %d is %s, want %s", i, got, want)
		}
	}
}
