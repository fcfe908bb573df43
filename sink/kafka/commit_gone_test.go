package kafka_test

import (
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// A commit that the cluster has confirmed can be gone all the same, if it hung and
// was aborted. Its entities are read again, and are no duplicates then.
func TestConfirmedCommitIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configWithin(c, 20*time.Second)
		s := connect(t, cfg).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		c.ControlKey(kmsg.EndTxn.Int16(), confirm)
		commit(t, s, 2, 4)
		wantCount(t, s, 2)
		wantKnown(t, s, false, sinktest.Entities(2, 2)...)
		commitAndCheck(t, s, 2, 5)
	})
}

// So it is if another copy has gone on meanwhile, with fewer entities or with more.
func TestConfirmedCommitIsGoneAndAnotherCopyHasGoneOn(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int{"not as far": 4, "further": 8} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			cfg := configWithin(c, 20*time.Second)
			s, other := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			c.ControlKey(kmsg.EndTxn.Int16(), confirm)
			commit(t, s, 2, 6)
			resume(t, other)
			// Other entities than those that are gone, as the feed has them by now.
			must.Succeed(t, other.Commit(t.Context(), sinktest.Entities(100, to-2), sinktest.At(to)))
			wantError(t, s.Commit(t.Context(), sinktest.Entities(6, 1), sinktest.At(7)), false, checkpoint.ErrConflict)
			wantCount(t, s, uint64(to))
			wantKnown(t, s, false, sinktest.Entities(2, 4)...)
			if s.IDs().Add("nothing") && s.IDs().Add(sinktest.Entities(100, 1)[0].ID) {
				t.Error("the other copy's entities are not held")
			}
		}))
	}
}

// The cluster loses the last commits of another copy, and records that were aborted since have
// their offsets.
func TestCommitsOfAnotherCopyAreGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, saved := t.TempDir(), t.TempDir()
		port := freePort(t)
		c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
		cfg := configFor(c)
		s, other := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		c.Close()
		must.Succeed(t, os.CopyFS(saved, os.DirFS(dir)))
		c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
		resumeAndCommit(t, other, 2, 3)
		commit(t, other, 3, 4)
		resume(t, s)
		c.Close()
		c = startCluster(t, kfake.DataDir(saved), kfake.Ports(port))
		var records []*kgo.Record
		for range 9 {
			records = append(records, &kgo.Record{Topic: "shop.orders", Value: []byte("aborted")})
		}
		must.Succeed(t, begin(t, c, "someone's", records...).EndTransaction(t.Context(), kgo.TryAbort))
		wantCount(t, s, 2)
		wantKnown(t, s, false, sinktest.Entities(2, 2)...)
		commitAndCheck(t, s, 2, 5)
	})
}
