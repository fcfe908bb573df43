package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// watchCheckpoints returns the commits that the watch has seen: their topics and writers.
func watchCheckpoints(t *testing.T, c *nats.Conn) (commits chan [2]string) {
	t.Helper()
	commits = make(chan [2]string, 100)
	c.Subscribe(func(topic, writer string) { commits <- [2]string{topic, writer} })
	return commits
}

func commitAs(t *testing.T, c *nats.Conn, topic, writer string) {
	t.Helper()
	snk := c.Sink(nats.Topic{Feed: topic, Subject: topic, Stream: nats.Stream{Create: true}})
	defer snk.Close()
	cp, err := snk.Resume(t.Context())
	must.Succeed(t, err)
	cp = checkpoint.Checkpoint{Feed: topic, Source: "test", Cursor: feed.Cursor("1"), Count: cp.Count, At: time.Now(), Writer: writer}
	must.Succeed(t, snk.Commit(t.Context(), nil, cp))
}

func TestTheWatchSeesCommitsOfAllTopics(t *testing.T) {
	dir := t.TempDir()
	port := freePort(t)
	srv := runServer(t, &server.Options{JetStream: true, StoreDir: dir, Port: port})
	idle := connect(t, nats.Config{URL: srv.ClientURL()})
	seen := watchCheckpoints(t, idle)
	await := func(topic string) {
		t.Helper()
		// The server has the subscription when it has answered.
		eventually(t, "the server answers", func() bool { return idle.Check(t.Context()) == nil })
		commitAs(t, connect(t, nats.Config{URL: srv.ClientURL()}), topic, "another copy")
		select {
		case got := <-seen:
			if got != [2]string{topic, "another copy"} {
				t.Errorf("saw %v, want a commit to %s by another copy", got, topic)
			}
		case <-time.After(time.Minute):
			t.Fatal("the commit was not seen")
		}
	}
	for _, topic := range []string{"orders", "shop.customers"} {
		await(topic)
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	srv = runServer(t, &server.Options{JetStream: true, StoreDir: dir, Port: port})
	await("orders")
}

// watched is a sink whose stream is looked at, and other copies of its feed.
type watched struct {
	*nats.Sink
	conn  *nats.Conn
	js    jetstream.JetStream
	other func() *nats.Sink
	// neighbour commits to another topic of the stream, if it is shared.
	neighbour func()
}

func openWatched(t *testing.T, shared bool, cfg nats.Config, adminURL string) watched {
	t.Helper()
	topic := orders()
	next := topic
	next.Feed, next.Subject = "next", "shop.next"
	if shared {
		topic.Stream, next.Stream = nats.Stream{Name: "shop"}, nats.Stream{Name: "shop"}
		createStream(t, admin(t, adminURL), jetstream.StreamConfig{
			Name: "shop", Subjects: []string{"shop.>", "_feedbridge.shop.>"}, AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
		})
	}
	conn := connect(t, cfg)
	if cfg.APIPrefix == "" {
		watchCheckpoints(t, conn)
	}
	w := watched{Sink: conn.Sink(topic), conn: conn, js: admin(t, adminURL), other: func() *nats.Sink { return connect(t, cfg).Sink(topic) }}
	w.neighbour = func() {
		s := connect(t, cfg).Sink(next)
		cp := resume(t, s)
		commit(t, s, int(cp.Count), int(cp.Count)+1)
	}
	resumeAndCommit(t, w.Sink, 0, 2)
	if shared {
		w.neighbour()
	}
	return w
}

// confirms reports whether a look at the stream, from now on, confirms the checkpoint.
func (w watched) confirms(t *testing.T) bool {
	t.Helper()
	began := time.Now()
	w.conn.Look(t.Context())
	return !w.Unchanged().Before(began)
}

// A copy that trusted a look which shows another stream than the one that it knows would say that it
// is caught up as long as it is idle.
func TestALookConfirmsTheCheckpointOfTheStreamThatItShows(t *testing.T) {
	t.Parallel()
	stream := func(w watched) jetstream.Stream {
		name := "shop_orders"
		s, err := w.js.Stream(t.Context(), name)
		if err != nil {
			if s, err = w.js.Stream(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	for name, test := range map[string]struct {
		happens func(t *testing.T, w watched)
		// own and shared report whether the look after that confirms.
		own, shared bool
	}{
		"nothing":         {func(*testing.T, watched) {}, true, true},
		"a commit of its": {func(t *testing.T, w watched) { commit(t, w.Sink, 2, 4) }, true, true},
		"a commit of another copy": {func(t *testing.T, w watched) {
			s := w.other()
			resumeAndCommit(t, s, 2, 4)
		}, false, true}, // there is a hint
		"its subjects transformed": {func(t *testing.T, w watched) {
			config := stream(w).CachedInfo().Config
			config.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "shop.orders", Destination: "shop.others"}
			updateStream(t, w.js, config)
		}, false, false},
		"its limit lowered": {func(t *testing.T, w watched) {
			config := stream(w).CachedInfo().Config
			config.MaxAge = time.Hour
			updateStream(t, w.js, config)
		}, false, false},
		"deleted": {func(t *testing.T, w watched) {
			must.Succeed(t, w.js.DeleteStream(t.Context(), stream(w).CachedInfo().Config.Name))
		}, false, false},
		"created again, and filled": {func(t *testing.T, w watched) {
			old := stream(w).CachedInfo().Config
			must.Succeed(t, w.js.DeleteStream(t.Context(), old.Name))
			onceRemoved(t, func() error {
				_, err := w.js.CreateStream(t.Context(), old)
				return err
			})
			s := w.other()
			resumeAndCommit(t, s, 0, 2)
			if old.Name == "shop" {
				w.neighbour()
			}
		}, false, false},
		"purged": {func(t *testing.T, w watched) {
			must.Succeed(t, stream(w).Purge(t.Context()))
		}, false, false},
		"its checkpoint deleted": {func(t *testing.T, w watched) {
			s := stream(w)
			m, err := s.GetLastMsgForSubject(t.Context(), "_feedbridge.shop.orders")
			if err == nil {
				err = s.DeleteMsg(t.Context(), m.Sequence)
			}
			must.Succeed(t, err)
		}, false, false},
	} {
		for _, shared := range []bool{false, true} {
			want := test.own
			if shared {
				want = test.shared
			}
			parallel.Run(t, fmt.Sprintf("%s, shared %v", name, shared), func(t *testing.T) {
				url := runServer(t, &server.Options{JetStream: true}).ClientURL()
				w := openWatched(t, shared, nats.Config{URL: url}, url)
				if !w.Unchanged().IsZero() || !w.confirms(t) {
					t.Fatal("the first look, and nothing before it, should confirm the checkpoint")
				}
				test.happens(t, w)
				if got := w.confirms(t); got != want {
					t.Errorf("a look confirms the checkpoint: %v, want %v", got, want)
				}
				if _, err := w.Resume(t.Context()); err == nil && !w.confirms(t) {
					t.Error("a look after Resume does not confirm the checkpoint")
				}
			})
		}
	}
}

// Over a leaf node the connection survives that a stream goes back to an earlier state.
func TestALookShowsThatAStreamWasRestored(t *testing.T) {
	t.Parallel()
	for name, filled := range map[string]bool{"restored": false, "restored, and filled up to the same sequence": true} {
		parallel.Run(t, name, func(t *testing.T) {
			h, leaf := runHub(t)
			restart := func(while func()) {
				h.Shutdown()
				h.WaitForShutdown()
				while()
				h.run(t)
			}
			w := openWatched(t, false, nats.Config{URL: leaf, APIPrefix: "$JS.hub.API"}, h.ClientURL())
			var backup string
			restart(func() { backup = copyOf(t, h.dir) })
			resumeAgain(t, w.Sink)
			commit(t, w.Sink, 2, 4)
			eventually(t, "the look confirms the checkpoint", func() bool { return w.confirms(t) })
			restart(func() {
				must.Succeed(t, os.RemoveAll(h.dir))
				must.Succeed(t, os.CopyFS(h.dir, os.DirFS(backup)))
			})
			s := w.other()
			resumeAgain(t, s)
			if filled {
				commit(t, s, 2, 4)
			}
			if w.confirms(t) {
				t.Error("a look confirms a checkpoint that is lost")
			}
			resumeAgain(t, w.Sink)
			if !w.confirms(t) {
				t.Error("a look after Resume does not confirm the checkpoint")
			}
		})
	}
}

// A shared stream grows with the commits of others, so only the subscription shows that none was to
// this topic. It can lose one, and a user may not have it.
func TestInASharedStreamHintsAreNeeded(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{"hints get lost": false, "the subscription is refused": true} {
		parallel.Run(t, name, func(t *testing.T) {
			user := &server.User{Username: "bridge", Password: "secret"}
			if refused {
				user.Permissions = &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
			}
			url := runServer(t, &server.Options{JetStream: true, Users: []*server.User{user, {Username: "admin", Password: "secret"}}}).ClientURL()
			w := openWatched(t, true, nats.Config{URL: url, Username: "bridge", Password: "secret"}, strings.Replace(url, "//", "//admin:secret@", 1))
			eventually(t, "the server has answered to the subscription", func() bool { return w.conn.HasSubscription() != refused })
			if got := w.confirms(t); got == refused {
				t.Errorf("a look at a stream that has grown confirms the checkpoint: %v", got)
			}
			if !refused {
				w.ForgetHints()
				if w.confirms(t) {
					t.Error("a look at a stream that has grown confirms the checkpoint for ever")
				}
			}
			// At rest it needs no hints.
			resume(t, w.Sink)
			w.ForgetHints()
			if !w.confirms(t) {
				t.Error("a look at a stream without a new message does not confirm the checkpoint")
			}
		})
	}
}

// While there is no connection, commits go unseen.
func TestAReconnectConfirmsNothing(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	srv := runServer(t, &server.Options{JetStream: true, StoreDir: dir, Port: port})
	w := openWatched(t, true, nats.Config{URL: srv.ClientURL()}, srv.ClientURL())
	if !w.confirms(t) {
		t.Fatal("a look does not confirm the checkpoint")
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	if w.confirms(t) {
		t.Error("a look without a connection confirms the checkpoint")
	}
	runServer(t, &server.Options{JetStream: true, StoreDir: dir, Port: port})
	eventually(t, "the server answers", func() bool { return w.conn.Check(t.Context()) == nil })
	if w.confirms(t) {
		t.Error("a look on another connection confirms the checkpoint")
	}
	resumeAgain(t, w.Sink)
	if !w.confirms(t) {
		t.Error("a look after Resume does not confirm the checkpoint")
	}
}

func TestManyStreamsAreLookedAtInTime(t *testing.T) {
	const n = 10_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("stream-%05d", i)
	}
	for name, test := range map[string]struct {
		takes time.Duration
		every time.Duration // of each stream
	}{
		"they answer":        {100 * time.Millisecond, 25 * time.Second},
		"they do not answer": {10 * time.Second, n / nats.MaxLooks * 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*test.every)
				defer cancel()
				var mu sync.Mutex
				looks := map[string]int{}
				waiting, most, inASecond := 0, 0, map[int64]int{}
				go nats.VisitAll(ctx, names, func(stream string) {
					mu.Lock()
					looks[stream]++
					waiting++
					most = max(most, waiting)
					inASecond[time.Now().Unix()]++
					mu.Unlock()
					time.Sleep(test.takes)
					mu.Lock()
					waiting--
					mu.Unlock()
				})
				<-ctx.Done()
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				for _, stream := range names {
					if looks[stream] < 2 || looks[stream] > 3 {
						t.Fatalf("%d looks at %s in %v", looks[stream], stream, 3*test.every)
					}
				}
				if most > nats.MaxLooks {
					t.Errorf("%d looks wait for an answer", most)
				}
				for _, n := range inASecond {
					if n > 500 {
						t.Errorf("%d looks in a second", n)
					}
				}
			})
		})
	}
}

// loggedLine waits for a line of the log. It is the writer of the log.
type loggedLine struct {
	text   string
	once   sync.Once
	logged chan struct{} // closed when the line was logged
}

func (l *loggedLine) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.text)) {
		l.once.Do(func() { close(l.logged) })
	}
	return len(line), nil
}

// refusalOf waits until the log has the refusal of a message or a request. Only the log of the
// connection has it: there is no answer.
func refusalOf(subject string) *loggedLine {
	return &loggedLine{text: `Publish to \"` + subject, logged: make(chan struct{})}
}

// bindContext returns a context that ends when the line was logged.
func (l *loggedLine) bindContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-l.logged:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
