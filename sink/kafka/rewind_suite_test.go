package kafka_test

import (
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// The broker is stopped, and comes back with the data of the backup at the same address.
func TestSinkConformsAfterARewind(t *testing.T) {
	t.Parallel()
	sinktest.TestRewind(t, func(t *testing.T) sinktest.Topic {
		dir, port := t.TempDir(), freePort(t)
		start := func(dir string) *kfake.Cluster { return startCluster(t, kfake.DataDir(dir), kfake.Ports(port)) }
		c := start(dir)
		copied := func(from string) (to string) {
			to = t.TempDir()
			c.Close()
			must.Succeed(t, os.CopyFS(to, os.DirFS(from)))
			return to
		}
		cfg, topic := configFor(c), orders()
		topic.Window, topic.DeadLetters = 50, true
		open := func() *kafka.Sink { return connect(t, cfg).Sink(topic) }
		return sinktest.Topic{
			Open:        func() sinktest.Sink { return open() },
			Log:         settled{connect(t, cfg).Log(topic.Name, 0)},
			MaxEntities: kafka.MaxEntities,
			Window:      topic.Window,
			Backup: func(*testing.T) (restore func()) {
				saved := copied(dir)
				c = start(dir)
				return func() {
					dir = copied(saved)
					c = start(dir)
				}
			},
		}
	})
}
