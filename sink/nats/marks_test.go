package nats_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// starts reports the sequence at which each later reading of the stream begins.
func starts(t *testing.T, url string) (next func() []uint64) {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	asked, err := nc.SubscribeSync("$JS.API.CONSUMER.CREATE.>")
	must.Succeed(t, err)
	must.Succeed(t, nc.Flush())
	seen := map[string]bool{} // a request that is repeated names the same consumer
	return func() (all []uint64) {
		t.Helper()
		// Earlier requests have arrived when this one is answered.
		must.Succeed(t, nc.Flush())
		for {
			msg, err := asked.NextMsg(time.Millisecond)
			if err != nil {
				return all
			}
			if seen[msg.Subject] {
				continue
			}
			seen[msg.Subject] = true
			var request struct {
				Config struct {
					Start uint64 `json:"opt_start_seq"`
				}
			}
			must.Succeed(t, json.Unmarshal(msg.Data, &request))
			all = append(all, request.Config.Start)
		}
	}
}

func TestReadsOfATopicWithMarks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entities func(from, n int) []feed.Entity
		fresh    []uint64
		ids      int
	}{
		// The entities of the first commit have the sequences 1 to 100.
		"without marks": {sinktest.Entities, []uint64{100 - 20}, 10},
		"with marks":    {marked, []uint64{100 - 20, 1}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, t.TempDir(), "127.0.0.1:0")
			topic := orders()
			topic.Window = 10
			open := func() *nats.Sink { return connect(t, nats.Config{URL: server.URL()}).Sink(topic) }
			s, fresh := open(), open()
			next := starts(t, server.URL())
			want := func(situation string, want []uint64) {
				t.Helper()
				if diff := cmp.Diff(want, next()); diff != "" {
					t.Errorf("%s: it is read from (-want +got):\n%s", situation, diff)
				}
			}
			resume(t, s)
			must.Succeed(t, s.Commit(t.Context(), test.entities(0, 100), sinktest.At(100)))
			resume(t, s)
			want("by the sink that wrote it", nil)
			resume(t, fresh)
			want("by another", test.fresh)
			wantIDs(t, fresh, test.ids)
			resume(t, fresh)
			want("by another that has read it", nil)
			must.Succeed(t, s.Commit(t.Context(), test.entities(100, 5), sinktest.At(105)))
			resume(t, fresh)
			// The newest entity that it knows has the sequence 100.
			want("after another's commit", []uint64{101})

			moved := sinktest.At(105)
			moved.Moved = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			must.Succeed(t, open().Overwrite(t.Context(), sinktest.MoveTo(moved)))
			resume(t, fresh)
			next()
			resume(t, fresh)
			want("after a move that it has seen", nil)
		})
	}
}

func TestSinkFarBehindReadsAllMarksOnce(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	topic := orders()
	topic.Window = 10
	open := func() *nats.Sink { return connect(t, nats.Config{URL: server.URL()}).Sink(topic) }
	s, other := open(), open()
	entities := marked(0, 403)
	resume(t, s)
	must.Succeed(t, s.Commit(t.Context(), entities[:3], sinktest.At(3)))
	resume(t, other)
	must.Succeed(t, other.Commit(t.Context(), entities[3:], sinktest.At(403)))
	next := starts(t, server.URL())
	resume(t, s)
	must.Match(t, "it reads from", []uint64{4}, next())
	bus.WantMarks(t, s, entities)
}

// The newest messages are read first. If that ends early, and they have marks, the marks
// before them are read all the same.
func TestLoadOfMarksEndsEarly(t *testing.T) {
	t.Parallel()
	const n = 900
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	topic := orders()
	topic.Window = 200
	s := connect(t, nats.Config{URL: server.URL()}).Sink(topic)
	entities := marked(0, n)
	resume(t, s)
	must.Succeed(t, s.Commit(t.Context(), entities, sinktest.At(n)))
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	conn := connect(t, nats.Config{URL: p.url()})
	fresh := conn.Sink(topic)
	// 400 headers are read first, of about 250 bytes each.
	p.muteAfter(40_000)
	conn.SetTimeout(3 * time.Second)
	if cp, err := fresh.Resume(t.Context()); err == nil {
		t.Fatalf("the topic was read although the server was silent: %+v", cp)
	}
	p.cut()
	p.set(false)
	conn.SetTimeout(time.Minute)
	eventually(t, "the sink resumes", func() bool {
		_, err := fresh.Resume(t.Context())
		return err == nil
	})
	bus.WantMarks(t, fresh, entities)
}
