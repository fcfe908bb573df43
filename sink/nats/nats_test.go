package nats_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

var (
	_ bridge.Sink   = (*nats.Sink)(nil)
	_ sinktest.Sink = (*nats.Sink)(nil)
	_ sinktest.Log  = (*nats.Log)(nil)
)

var silent = slog.New(slog.DiscardHandler)

var bus = sinktest.Bus[*nats.Sink]{
	Log:     func(s *nats.Sink) sinktest.Log { return s.Log() },
	Succeed: onceRemoved,
}

// Steps and checks of any sink.
var (
	spanOf    = sinktest.Span
	records   = sinktest.Records
	wantError = sinktest.WantError
	wantKnown = sinktest.WantKnown
	wantIDs   = sinktest.WantIDs

	withDead = sinktest.LastDead
	marked   = sinktest.Marked
	wantPart = sinktest.WantPart

	resume          = bus.Resume
	commit          = bus.Commit
	resumeAndCommit = bus.ResumeAndCommit
	commitAndCheck  = bus.CommitAndCheck
	continueTo      = bus.ContinueTo
	wantCount       = bus.WantCount
	wantFeed        = bus.WantFeed
)

func startServer(t testing.TB, dir, listen string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Config{Dir: dir, Listen: listen, Log: silent})
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	return s
}

// connect connects to a server. Unless cfg has a timeout, it is for a busy machine.
func connect(t testing.TB, cfg nats.Config) *nats.Conn {
	t.Helper()
	return connectLogging(t, cfg, io.Discard)
}

// connectLogging is connect with a log.
func connectLogging(t testing.TB, cfg nats.Config, log io.Writer) *nats.Conn {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, 3*time.Minute)
	c, err := nats.Connect(t.Context(), cfg, slog.New(slog.NewTextHandler(log, nil)))
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c
}

// admin is a client like the nats command.
func admin(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must.Succeed(t, err)
	return js
}

// newServer starts a server, and returns a client like the nats command, too.
func newServer(t testing.TB) (*embedded.Server, jetstream.JetStream) {
	t.Helper()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	return server, admin(t, server.URL())
}

// createStream creates a stream that may have been deleted before.
func createStream(t testing.TB, js jetstream.JetStream, config jetstream.StreamConfig) (stream jetstream.Stream) {
	t.Helper()
	onceRemoved(t, func() (err error) { stream, err = js.CreateStream(t.Context(), config); return err })
	return stream
}

func updateStream(t testing.TB, js jetstream.JetStream, config jetstream.StreamConfig) {
	t.Helper()
	_, err := js.UpdateStream(t.Context(), config)
	must.Succeed(t, err)
}

// ordersStream returns the stream of the topic that orders returns.
func ordersStream(t testing.TB, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	stream, err := js.Stream(t.Context(), "shop_orders")
	must.Succeed(t, err)
	return stream
}

func publishMsg(t testing.TB, js jetstream.JetStream, msg *natsgo.Msg) {
	t.Helper()
	_, err := js.PublishMsg(t.Context(), msg)
	must.Succeed(t, err)
}

// orders is a topic whose stream is created.
func orders() nats.Topic {
	return nats.Topic{Feed: "orders", Subject: "shop.orders", Stream: nats.Stream{Create: true}}
}

// onceRemoved calls f, which may create a stream that was deleted before. The server refuses that
// while it is still removing the files of the old one, and f is called again.
func onceRemoved(t testing.TB, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil || !strings.Contains(err.Error(), "10049") {
			break
		}
	}
	must.Succeed(t, err)
}

func TestSinkConforms(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	conform(t, server.URL(), 1)
}

// conform runs the suite on a server; each sink has a connection of its own.
func conform(t *testing.T, url string, replicas int) {
	var topics atomic.Int32
	sinktest.Test(t, func(t *testing.T) sinktest.Topic {
		topic := orders()
		topic.Subject = fmt.Sprintf("conform.%d", topics.Add(1))
		topic.Stream.Replicas, topic.Window, topic.DeadLetters = replicas, 50, true
		open := func() *nats.Sink { return connect(t, nats.Config{URL: url}).Sink(topic) }
		if replicas > 1 {
			resume(t, open())
			known(t, url, topic.Subject)
		}
		return sinktest.Topic{
			Open:        func() sinktest.Sink { return open() },
			Log:         connect(t, nats.Config{URL: url}).Log(topic.Subject, ""),
			DeadLetters: connect(t, nats.Config{URL: url}).Log(topic.Subject+".dead", ""),
			MaxEntities: nats.MaxEntities,
			Window:      topic.Window,
		}
	})
}

// known waits until every server of a cluster knows that a stream has the
// topic's subjects; until then a commit fails as if there were none. Its message is refused
// by the fence.
func known(t *testing.T, urls, subject string) {
	t.Helper()
	for url := range strings.SplitSeq(urls, ",") {
		nc, err := natsgo.Connect(url, natsgo.Timeout(time.Minute))
		must.Succeed(t, err)
		defer nc.Close()
		for _, s := range []string{subject, "_feedbridge." + subject} {
			msg := &natsgo.Msg{Subject: s, Header: natsgo.Header{"Nats-Expected-Last-Subject-Sequence": {"99"}}}
			eventually(t, "the stream is known", func() bool {
				_, err := nc.RequestMsg(msg, 5*time.Second)
				return err == nil
			})
		}
	}
}

// copyFeed commits the entities up to n with s as a bridge does: any error leads
// back to Resume. It gives up when the context ends.
func copyFeed(ctx context.Context, s *nats.Sink, n, step int, committed func(int)) error {
	for {
		err := copyOn(ctx, s, n, step, committed)
		if err == nil || ctx.Err() != nil || errors.Is(err, feed.ErrPermanent) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func copyOn(ctx context.Context, s *nats.Sink, n, step int, committed func(int)) error {
	cp, err := s.Resume(ctx)
	if err != nil {
		return err
	}
	i := 0
	if cp.Cursor != nil {
		if i, err = strconv.Atoi(string(cp.Cursor)); err != nil {
			return err
		}
	}
	for i < n {
		all := sinktest.Entities(i, min(step, n-i))
		i += len(all)
		// The beginning of a commit may be stored without its checkpoint.
		entities := slices.DeleteFunc(all, func(e feed.Entity) bool { return !s.IDs().Add(e.ID) })
		if err := s.Commit(ctx, entities, sinktest.At(i)); err != nil {
			return err
		}
		committed(i)
	}
	return nil
}
