package nats_test

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/sinktest"
)

// The stream returns to an earlier state, in two ways. If the whole server is
// restarted, sinks lose their connection. If only JetStream is, they keep it, as in a
// cluster whose stream is on another node than the connection.
func TestSinkConformsAfterARewind(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (url string, backup func(*testing.T) (restore func())){
		"the server is restarted":                         restartable,
		"JetStream is restarted and the connection lives": restartableJetStream,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.TestRewind(t, func(t *testing.T) sinktest.Topic {
				url, backup := start(t)
				topic := orders()
				topic.Window = 50
				return sinktest.Topic{
					Open:        func() sinktest.Sink { return connect(t, nats.Config{URL: url}).Sink(topic) },
					Log:         connect(t, nats.Config{URL: url}).Log(topic.Subject, ""),
					MaxEntities: nats.MaxEntities,
					Window:      topic.Window,
					Backup:      backup,
					Pause:       2 * time.Second,
				}
			})
		})
	}
}

// restartable starts the embedded server. A backup is a copy of its directory.
func restartable(t *testing.T) (url string, backup func(*testing.T) (restore func())) {
	dir, listen := t.TempDir(), freeAddress(t)
	running := startServer(t, dir, listen)
	return running.URL(), func(t *testing.T) func() {
		running.Close()
		saved := copyDir(t, dir)
		running = startServer(t, dir, listen)
		return func() {
			running.Close()
			replaceDir(t, dir, saved)
			running = startServer(t, dir, listen)
		}
	}
}

// restartableJetStream starts a server whose JetStream is stopped for a backup and a
// restore, while clients stay connected.
func restartableJetStream(t *testing.T) (url string, backup func(*testing.T) (restore func())) {
	dir := t.TempDir()
	s := runServer(t, &server.Options{JetStream: true, StoreDir: dir})
	stop := func() {
		if err := s.DisableJetStream(); err != nil {
			t.Fatal(err)
		}
	}
	start := func() {
		if err := s.EnableJetStream(&server.JetStreamConfig{StoreDir: dir, SyncInterval: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	return s.ClientURL(), func(t *testing.T) func() {
		stop()
		saved := copyDir(t, dir)
		start()
		return func() {
			stop()
			replaceDir(t, dir, saved)
			start()
		}
	}
}

func copyDir(t *testing.T, dir string) (copied string) {
	t.Helper()
	copied = t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

func replaceDir(t *testing.T, dir, by string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(by)); err != nil {
		t.Fatal(err)
	}
}
