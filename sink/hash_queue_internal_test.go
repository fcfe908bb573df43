package sink

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Hashes with the same tag, or with tags whose search begins at the same slot, are distinguished.
func TestHashQueueAgreesWithAList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q hashQueue
		var model []idHash
		hash := rapid.Custom(func(t *rapid.T) idHash {
			tag := rapid.SampledFrom([]uint64{0, 1, 1 << 31, 1<<32 - 1}).Draw(t, "tag")
			return idHash{tag << 32, rapid.Uint64Range(0, 8).Draw(t, "rest")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				h := hash.Draw(t, "hash")
				fresh := !slices.Contains(model, h)
				if got := q.push(h); got != fresh {
					t.Fatalf("push(%x) = %v, want %v", h, got, fresh)
				}
				if fresh {
					model = append(model, h)
				}
			},
			"pop": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				q.popOldest()
				model = model[1:]
			},
			"truncate": func(t *rapid.T) {
				n := rapid.IntRange(0, len(model)).Draw(t, "n")
				q.truncate(n)
				model = model[:n]
			},
			"move": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				from := rapid.IntRange(0, len(model)-1).Draw(t, "from")
				to := rapid.IntRange(0, from).Draw(t, "to")
				q.move(from, to)
				h := model[from]
				model = slices.Insert(slices.Delete(slices.Clone(model), from, from+1), to, h)
			},
			"": func(t *rapid.T) {
				if q.n != len(model) {
					t.Fatalf("it has %d hashes, want %d", q.n, len(model))
				}
				for i, h := range model {
					if at, found := q.indexOf(h); q.at(i) != h || at != i || !found {
						t.Fatalf("hash %d is %x and found at %d, %v; want %x", i, q.at(i), at, found, h)
					}
				}
				used := 0
				for _, s := range q.slots {
					if s != 0 {
						used++
					}
				}
				if used != len(model) {
					t.Fatalf("%d slots are used, want %d", used, len(model))
				}
			},
		})
	})
}
