package nats_test

import (
	"context"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// The bucket is on three servers, and the members do not notice that one of them stops, not even
// the one that the bucket's stream has as its leader.
func TestMembershipSurvivesTheLossOfAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a cluster")
	}
	t.Parallel()
	servers, urls := runCluster(t)
	js := admin(t, urls)
	eventually(t, "the cluster has a leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err == nil
	})
	join := func(name string) *testMember {
		return joinFleetWith(t, nats.Config{URL: urls, Timeout: 4 * time.Second}, name, nats.FleetOptions{Replicas: 3})
	}
	a, b := join("a"), join("b")
	a.await(t, "a", "b")
	b.await(t, "a", "b")
	stream, err := js.Stream(t.Context(), "KV_"+fleetBucket)
	must.Succeed(t, err)
	info := stream.CachedInfo()
	if info.Config.Replicas != 3 || info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		t.Fatalf("the bucket has %d replicas, on %+v; want 3", info.Config.Replicas, info.Cluster)
	}
	for _, s := range servers {
		if s.Name() == info.Cluster.Leader {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	// A key lasts for 12 s. The copy that joins after more than that finds both in the bucket.
	written := func() (seq uint64) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if info, err := stream.Info(ctx); err == nil {
			seq = info.State.LastSeq
		}
		return seq
	}
	var after uint64
	eventually(t, "the bucket has another leader", func() bool {
		after = written()
		return after > 0
	})
	eventually(t, "both have renewed their keys often", func() bool { return written() > after+8 })
	c := join("c")
	c.awaitAll(t, []string{"a", "b"}, "a", "b", "c")
	a.awaitAll(t, []string{"a", "b"}, "a", "b", "c")
	b.awaitAll(t, []string{"a", "b"}, "a", "b", "c")
	b.Leave()
	a.awaitAll(t, []string{"a", "c"}, "a", "c")
}

// The bucket is in the domain of the hub, and the members are at a leaf node.
func TestFleetOverALeafNode(t *testing.T) {
	t.Parallel()
	h, leaf := runHub(t)
	cfg := nats.Config{URL: leaf, APIPrefix: "$JS.hub.API"}
	a, b := joinFleetWith(t, cfg, "a", nats.FleetOptions{}), joinFleetWith(t, cfg, "b", nats.FleetOptions{})
	a.await(t, "a", "b")
	b.await(t, "a", "b")
	kv, err := admin(t, h.ClientURL()).KeyValue(t.Context(), fleetBucket)
	must.Succeed(t, err)
	if keys, err := kv.Keys(t.Context()); err != nil || len(keys) != 2 {
		t.Errorf("the hub has the keys %v, error %v", keys, err)
	}
	b.Leave()
	a.awaitAll(t, []string{"a"}, "a")
	b = joinFleetWith(t, cfg, "b", nats.FleetOptions{})
	a.await(t, "a", "b")
	b.conn.Close() // as if it was killed
	a.awaitAll(t, []string{"a"}, "a")
}

// The hub is away for a moment, and the connection to the leaf node lasts.
func TestNothingMovesWhileTheHubRestarts(t *testing.T) {
	t.Parallel()
	h, leaf := runHub(t)
	cfg := nats.Config{URL: leaf, APIPrefix: "$JS.hub.API", Timeout: 2 * time.Second}
	a, b := joinFleetWith(t, cfg, "a", nats.FleetOptions{}), joinFleetWith(t, cfg, "b", nats.FleetOptions{})
	a.await(t, "a", "b")
	b.await(t, "a", "b")
	h.Shutdown()
	h.WaitForShutdown()
	h.run(t)
	c := joinFleetWith(t, cfg, "c", nats.FleetOptions{})
	a.awaitAll(t, []string{"a", "b"}, "a", "b", "c")
	b.awaitAll(t, []string{"a", "b"}, "a", "b", "c")
	c.awaitAll(t, nil, "a", "b", "c")
}
