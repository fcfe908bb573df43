package kafka_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

var firstSeed = flag.Uint64("seed", 1, "the first of the three seeds of TestTwoCopiesAndEveryTrouble")

// Two copies write the same feed while all goes wrong that can: answers are lost
// after the broker has acted, requests fail, leaders and coordinators move, and
// copies die in the middle of a commit, and deposed leaders answer. The topic must hold the feed.
func TestTwoCopiesAndEveryTrouble(t *testing.T) {
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+3; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { chaos(t, seed, 2500) })
		})
	}
}

func chaos(t *testing.T, seed uint64, total int) {
	c, w := startWired(t, kfake.NumBrokers(3))
	w.takes(time.Millisecond)
	cfg := configWithin(c, time.Second)
	topic := orders()
	topic.Window = total
	ctx, stop := context.WithCancel(t.Context())
	var troubles, copies sync.WaitGroup
	troubles.Go(func() { trouble(ctx, rand.New(rand.NewPCG(seed, 0)), c, w) })
	for i := range 2 {
		copies.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i+1)))
			for !life(t, random, cfg, topic, total) {
			}
		})
	}
	copies.Wait()
	stop()
	troubles.Wait()
	w.losing(nil)

	s := connect(t, configFor(c)).Sink(topic)
	wantCount(t, s, uint64(total))
	wantIDs(t, s, total)
	wantFeed(t, s, total)
}

// life runs a copy until it has published everything or dies, and reports which.
func life(t *testing.T, random *rand.Rand, cfg kafka.Config, topic kafka.Topic, total int) (done bool) {
	conn := connect(t, cfg)
	defer conn.Close()
	// A copy that is closed in the middle of a commit leaves it open.
	if random.IntN(2) == 0 {
		death := time.AfterFunc(time.Duration(random.IntN(600))*time.Millisecond, conn.Close)
		defer death.Stop()
	}
	s := conn.Sink(topic)
	for failures := 0; failures < 20; {
		cp, err := s.Resume(t.Context())
		n, _ := strconv.Atoi(string(cp.Cursor))
		for err == nil && n < total {
			to := min(total, n+1+random.IntN(20))
			err = s.Commit(t.Context(), sinktest.Entities(n, to-n), sinktest.At(to))
			n = to
		}
		if err == nil {
			return true
		}
		if errors.Is(err, feed.ErrPermanent) {
			t.Errorf("an error that would stop the feed: %v", err)
			return true
		}
		failures++
	}
	return false
}

// trouble injects faults until ctx ends, once there is a checkpoint. Compaction is not among
// them, because kfake also compacts uncommitted records, and so loses the newest committed
// checkpoint.
func trouble(ctx context.Context, random *rand.Rand, c *kfake.Cluster, w *wire) {
	keys := []kmsg.Key{kmsg.Produce, kmsg.Produce, kmsg.EndTxn, kmsg.EndTxn, kmsg.InitProducerID, kmsg.ListOffsets, kmsg.Fetch}
	codes := []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.CoordinatorNotAvailable, kerr.NotCoordinator,
		kerr.NotEnoughReplicasAfterAppend, kerr.UnknownServerError, kerr.ConcurrentTransactions, kerr.KafkaStorageError,
	}
	for ctx.Err() == nil && !slices.ContainsFunc(c.PartitionInfos(checkpoints), func(p *kfake.PartitionInfo) bool { return p.LastStableOffset > 0 }) {
		time.Sleep(time.Millisecond)
	}
	var mu sync.Mutex // of random, which connections use too
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	w.losing(func(key kmsg.Key) bool { return key != kmsg.ApiVersions && roll(150) == 0 })
	// While leader is set, it was deposed and still answers reads.
	var leader atomic.Pointer[deposed]
	control := func(key kmsg.Key, of func(*deposed, kmsg.Request) kmsg.Response) {
		c.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if d := leader.Load(); d != nil {
				resp := of(d, r)
				return resp, nil, resp != nil
			}
			return nil, nil, false
		})
	}
	control(kmsg.ListOffsets, (*deposed).offsets)
	control(kmsg.Fetch, (*deposed).records)
	for ctx.Err() == nil {
		var fault *kfake.FaultHandle
		switch roll(10) {
		case 0:
			c.ShufflePartitionLeaders()
		case 1:
			c.RehashCoordinators()
		case 2, 3:
			leader.Store(newDeposed(c, []string{checkpoints, "shop.orders"}[roll(2)]))
		default:
			fault = c.Fault(kfake.Fault{Keys: []kmsg.Key{keys[roll(len(keys))]}, Err: codes[roll(len(codes))], Count: 1 + roll(2)})
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(10+roll(60)) * time.Millisecond):
		}
		leader.Store(nil)
		if fault != nil {
			fault.Remove()
		}
	}
}
