package nats_test

import (
	"os"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// The stream returns to an earlier state, in two ways. If sinks are connected to the
// server that is restarted, they lose their connection. If they are connected to a leaf
// node, they keep it, as in a cluster whose stream is on another node. (JetStream cannot be
// restarted without its server while clients are connected: nats-server 2.15.2 has a data
// race there.)
func TestSinkConformsAfterARewind(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (config nats.Config, backup func(*testing.T) (restore func())){
		"the server is restarted":                       restartable,
		"the hub is restarted and the connection lives": restartableHub,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.TestRewind(t, func(t *testing.T) sinktest.Topic {
				config, backup := start(t)
				topic := orders()
				topic.Window = 50
				return sinktest.Topic{
					Open:        func() sinktest.Sink { return connect(t, config).Sink(topic) },
					Log:         connect(t, config).Log(topic.Subject, ""),
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
func restartable(t *testing.T) (config nats.Config, backup func(*testing.T) (restore func())) {
	dir, listen := t.TempDir(), freeAddress(t)
	running := startServer(t, dir, listen)
	return nats.Config{URL: running.URL()}, func(t *testing.T) func() {
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

// restartableHub starts a hub and a leaf node, to which clients stay connected during a
// backup and a restore of the hub.
func restartableHub(t *testing.T) (config nats.Config, backup func(*testing.T) (restore func())) {
	h, leaf := runHub(t)
	restart := func(between func()) {
		h.Shutdown()
		h.WaitForShutdown()
		between()
		h.run(t)
	}
	return nats.Config{URL: leaf, APIPrefix: "$JS.hub.API"}, func(t *testing.T) func() {
		var saved string
		restart(func() { saved = copyDir(t, h.dir) })
		return func() {
			restart(func() { replaceDir(t, h.dir, saved) })
		}
	}
}

func copyDir(t *testing.T, dir string) (copied string) {
	t.Helper()
	copied = t.TempDir()
	must.Succeed(t, os.CopyFS(copied, os.DirFS(dir)))
	return copied
}

func replaceDir(t *testing.T, dir, by string) {
	t.Helper()
	must.Succeed(t, os.RemoveAll(dir))
	must.Succeed(t, os.CopyFS(dir, os.DirFS(by)))
}
