package nats

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A key that is not renewed, as after a purge of the stream, is removed; none is while the watch is late.
func TestKeysThatAreNotRenewed(t *testing.T) {
	t.Parallel()
	k := &memberKeys{prefix: "$KV.shop.", values: map[string][]byte{}, seen: map[string]time.Time{}}
	now := time.Now()
	put := func(names ...string) {
		for _, name := range names {
			m := nats.NewMsg(k.prefix + name)
			m.Header.Set(ttl, "12s")
			m.Data = []byte(name)
			k.take(m, now)
		}
	}
	put("a", "b", "c")
	now = now.Add(fleetStale + time.Second)
	if k.removeStale("a", now) {
		t.Error("keys are removed though the key of this copy is as old")
	}
	put("a")
	if k.removeStale("b", now) {
		t.Error("keys are removed by a copy that has not seen its own")
	}
	put("c")
	if got := slices.Sorted(maps.Keys(k.values)); !k.removeStale("a", now) || k.values["b"] != nil || len(k.values) != 2 || k.removeStale("a", now) {
		t.Errorf("of the keys %q remain %q", got, slices.Sorted(maps.Keys(k.values)))
	}
}
