//go:build integration

package kafka_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// The cluster deletes a transactional id that was idle for long, with its producer epoch. The
// next commit with it fails, and then the feed continues; a copy that is stale by then does not
// commit.
func TestRealIDsAreForgotten(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t,
		kafkatest.Property("transactional.id.expiration.ms", "5000"),
		kafkatest.Property("transaction.remove.expired.transaction.cleanup.interval.ms", "300"))
	for _, test := range []struct {
		name      string
		succeeded bool // another copy has committed since
	}{{"of the copy that committed last", false}, {"of a copy that was succeeded", true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			topic := ordersIn(t)
			cfg := atReal(b.Addr())
			cfg.Checkpoints = kafkatest.Name(t)
			forgotten := func() {
				until(t, func() bool {
					return errors.Is(describe(t, b.Addr(), "feedbridge."+topic.Name+"/orders").Err, kerr.TransactionalIDNotFound)
				})
			}
			s := connect(t, cfg).Sink(topic)
			resumeAndCommit(t, s, 0, 2)
			commit(t, s, 2, 3)
			forgotten()
			n := 3
			if test.succeeded {
				other := connect(t, cfg).Sink(topic)
				resumeAndCommit(t, other, 3, 5)
				forgotten()
				n = 5
			}
			wantError(t, s.Commit(t.Context(), sinktest.Entities(3, 4), sinktest.At(7)), false, nil, "commit")
			wantCount(t, s, uint64(n))
			commit(t, s, n, 9)
			commitAndCheck(t, s, 9, 10)
		})
	}
}
