package kafka_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// A returned error is not logged a second time.
func TestClientSaysNothingTwice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var out logbuffer.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		open := func(cfg kafka.Config) *kafka.Conn {
			return connectLogging(t, cfg, log)
		}
		quiet := func(conns ...*kafka.Conn) {
			t.Helper()
			for _, c := range conns {
				c.Close()
			}
			if text := out.Take(); strings.Contains(text, "kafka client:") {
				t.Errorf("the log has\n%s", text)
			}
		}

		// One copy takes over from another, whichever way transactions are begun.
		for _, start := range []func(testing.TB, ...kfake.Opt) *kfake.Cluster{startCluster, downgraded} {
			c := start(t)
			a, b := open(configFor(c)), open(configFor(c))
			s, other := a.Sink(orders()), b.Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			resumeAndCommit(t, other, 2, 4)
			commit(t, other, 4, 6)
			wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 900), sinktest.At(902)), false, checkpoint.ErrConflict)
			quiet(a, b)
		}

		c := startCluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "fb", "right"))
		cfg := configFor(c)
		cfg.SASL = kafka.SASL{Mechanism: kafka.ScramSHA512, Username: "fb", Password: "wrong"}
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1}) // kfake hangs up
		a := open(cfg)
		wantError(t, a.Check(t.Context()), true, nil, "refuses the credentials")
		quiet(a)
	})
}
