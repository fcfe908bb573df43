package nats_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// serversVariable names files of nats-server, between commas, that TestAccountLimit runs with beside the one
// of go.mod. They are the oldest and the newest of each version that is supported; see .ci/run.
const serversVariable = "FEEDBRIDGE_NATS_SERVERS"

// A limitedServer has one account, whose storage is limited. It is stopped and started.
type limitedServer struct {
	file      string // of another version, or empty
	dir, conf string
	port      int
	stop      func()
}

func (l *limitedServer) url() string { return fmt.Sprintf("nats://u:p@127.0.0.1:%d", l.port) }

// restart starts the server with a limit in bytes.
func (l *limitedServer) restart(t *testing.T, limit int) {
	t.Helper()
	if l.stop != nil {
		l.stop()
	}
	text := fmt.Sprintf("listen: 127.0.0.1:%d\njetstream: {store_dir: %s}\naccounts: {shop: {jetstream: {max_file: %d}, users: [{user: u, password: p}]}}\n",
		l.port, strconv.Quote(l.dir), limit)
	must.Succeed(t, os.WriteFile(l.conf, []byte(text), 0o600))
	if l.file == "" {
		opts, err := server.ProcessConfigFile(l.conf)
		must.Succeed(t, err)
		running := runServer(t, opts)
		l.stop = func() {
			running.Shutdown()
			running.WaitForShutdown()
		}
		return
	}
	process := exec.Command(l.file, "-c", l.conf)
	must.Succeed(t, process.Start())
	l.stop = func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
	eventually(t, "the server answers", func() bool {
		nc, err := natsgo.Connect(l.url())
		if err != nil {
			return false
		}
		defer nc.Close()
		js, err := nc.JetStream()
		if err == nil {
			_, err = js.AccountInfo()
		}
		return err == nil
	})
}

// sized are entities of which every sixth is much larger than those around it.
func sized(from, to int) []feed.Entity {
	entities := sinktest.Entities(from, to-from)
	for i := range entities {
		entities[i].Body = make([]byte, []int{100, 50_000, 700, 20_000, 300, 5_000}[(from+i)%6])
	}
	return entities
}

// copySized publishes the entities up to n, a step at a time, as a bridge does.
func copySized(ctx context.Context, s *nats.Sink, n, step int) error {
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
		to := min(i+step, n)
		fresh := slices.DeleteFunc(sized(i, to), func(e feed.Entity) bool { return !s.IDs().Add(e.ID) })
		if err := s.Commit(ctx, fresh, sinktest.At(to)); err != nil {
			return err
		}
		i = to
	}
	return nil
}

// An answer shows that a part of a commit is not stored, and its checkpoint is there. The next Resume continues
// from the checkpoint before it.
func TestAnswerOfATornCommit(t *testing.T) {
	t.Parallel()
	acknowledged := regexp.MustCompile(`\{"stream":"shop_orders", ?"seq":(\d),"batch".*?\}`)
	// As from a server that did not store one of the messages, and acknowledges their number.
	oneLess := func(ack []byte) []byte {
		at := acknowledged.FindSubmatchIndex(ack)[2]
		ack[at]--
		return ack
	}
	// As from a server that has no room for one of the messages of a fast batch.
	refused := func(ack []byte) []byte {
		return fmt.Appendf(nil, "%-*s", len(ack), `{"error":{"code":400,"err_code":10002}}`)
	}
	for name, test := range map[string]struct {
		others []string
		fast   bool
		ingest string
		answer func(ack []byte) []byte
		want   string
	}{
		"atomic batch in a stream of its own": {nil, false, "atomic_batches", oneLess, "has not stored all of it"},
		"atomic batch in a shared stream":     {[]string{"other"}, false, "atomic_batches", oneLess, "has not stored all of it"},
		"fast batch in a shared stream":       {[]string{"other"}, true, "fast_ingest", refused, "raise the account's JetStream limits"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			running := runServer(t, &server.Options{JetStream: true})
			p := runProxy(t, running.Addr().String())
			config := fitting()
			config.AllowBatchPublish = test.fast
			config.Subjects = append(config.Subjects, test.others...)
			config.MaxMsgSize = 5000
			createStream(t, admin(t, running.ClientURL()), config)
			conn := connect(t, nats.Config{URL: p.url()})
			topic := orders()
			topic.Window = 1
			s := conn.Sink(topic)
			resumeAndCommit(t, s, 0, 2)
			if s.CommitsBy() != test.ingest {
				t.Fatalf("commits by %s", s.CommitsBy())
			}
			p.setChange(true, func(data []byte) []byte { return acknowledged.ReplaceAllFunc(data, test.answer) })
			if err := s.Commit(t.Context(), sinktest.Entities(2, 3), sinktest.At(5)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			p.setChange(true, nil)
			for range 2 {
				if cp := resume(t, s); string(cp.Cursor) != "2" || cp.Count != 5 {
					t.Errorf("checkpoint %+v, want cursor 2 and count 5", cp)
				}
				wantKnown(t, s, true, sinktest.Entities(2, 3)...)
				s.IDs().Rollback()
				err := s.Commit(t.Context(), sinktest.Entities(5, 1), largeCheckpoint(6, 5000))
				wantError(t, err, true, nil, "that is the checkpoint")
			}
			resume(t, s)
			must.Succeed(t, s.Commit(t.Context(), sinktest.Entities(5, 1), sinktest.At(6)))
			commit(t, s, 6, 8)
			wantFeed(t, s, 8)
			wantFeed(t, conn.Sink(orders()), 8)
		})
	}
}

// A server that has no room for some messages of a batch has room for smaller ones. nats-server 2.12 stores
// those, with the checkpoint, and acknowledges all; 2.15 does so when it is started again.
func TestAccountLimit(t *testing.T) {
	t.Parallel()
	const first, n, step, limit = 12, 240, 60, 900_000
	files := []string{""}
	if listed := os.Getenv(serversVariable); listed != "" {
		files = append(files, strings.Split(listed, ",")...)
	}
	for _, file := range files {
		for name, others := range streams {
			for _, fast := range []bool{false, true} {
				parallel.Run(t, fmt.Sprintf("nats-server %s, %s, fast ingest %v", cmp.Or(file, "of go.mod"), name, fast), func(t *testing.T) {
					running := &limitedServer{file: file, dir: t.TempDir(), conf: filepath.Join(t.TempDir(), "server.conf"), port: freePort(t)}
					running.restart(t, limit)
					t.Cleanup(func() { running.stop() })
					config := fitting()
					config.AllowBatchPublish = fast
					config.Subjects = append(config.Subjects, others...)
					js := admin(t, running.url())
					if _, err := js.CreateStream(t.Context(), config); err != nil && fast && strings.Contains(err.Error(), "allow_batched") {
						t.Skip("this server has no fast ingest")
					} else {
						must.Succeed(t, err)
					}
					open := func(timeout time.Duration) *nats.Sink {
						return connect(t, nats.Config{URL: running.url(), Timeout: timeout}).Sink(orders())
					}
					must.Succeed(t, copySized(t.Context(), open(0), first, first))
					for range 2 {
						for _, subject := range others {
							// What is in front of the batch is not all of this topic.
							for range 100 {
								_, _ = js.Publish(t.Context(), subject, nil)
							}
						}
						s := open(2 * time.Second) // the server may not answer
						for range 2 {
							t.Log(copySized(t.Context(), s, n, step))
						}
						running.restart(t, limit)
					}
					running.restart(t, 100*limit)
					s := open(0)
					shown, err := s.Checkpoint(t.Context())
					must.Succeed(t, err)
					if cp := resume(t, s); !bytes.Equal(shown.Cursor, cp.Cursor) {
						t.Errorf("the cursor is shown as %s, and feedbridge continues from %s", shown.Cursor, cp.Cursor)
					}
					must.Succeed(t, s.Overwrite(t.Context(), func(old checkpoint.Checkpoint) checkpoint.Checkpoint { return old }))
					must.Succeed(t, copySized(t.Context(), s, n, step))
					var missing, repeated int
					held := map[string]int{}
					log := s.Log()
					for _, r := range records(t, log, 0, spanOf(t, log).End) {
						id, _ := r.Header.Get(message.ContentID)
						held[id]++
					}
					for _, e := range sized(0, n) {
						missing += 1 - min(1, held[e.ID])
						repeated += max(1, held[e.ID]) - 1
					}
					if missing > 0 || repeated > 0 {
						t.Errorf("%d of %d entities are missing, and %d are there twice", missing, n, repeated)
					}
				})
			}
		}
	}
}

// Another copy commits after the stream was read by a Resume, and before the checkpoint is. The next batch is where it
// has to be.
func TestACommitWhileAnotherCopyResumes(t *testing.T) {
	t.Parallel()
	running := runServer(t, &server.Options{JetStream: true})
	createStream(t, admin(t, running.ClientURL()), fitting())
	p := runProxy(t, running.Addr().String())
	s, other := connect(t, nats.Config{URL: p.url()}).Sink(orders()), connect(t, nats.Config{URL: running.ClientURL()}).Sink(orders())
	resumeAndCommit(t, other, 0, 2)
	var once sync.Once
	p.setWatch(func(data []byte) {
		if bytes.Contains(data, []byte("STREAM.MSG.GET")) {
			once.Do(func() { commit(t, other, 2, 4) })
		}
	})
	resumeAndCommit(t, s, 4, 6)
	wantFeed(t, s, 6)
}
