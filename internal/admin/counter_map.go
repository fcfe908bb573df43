package admin

import (
	"iter"
	"slices"
)

// counterMap counts by key. It takes far less memory than a map: the counterMaps of all feeds share their
// keys.
type counterMap[K comparable] struct {
	keys   []K
	counts []uint64 // of the keys, in their order
}

// newCounterMap returns a counterMap with all keys at zero, so that rates are right from the first event on.
// It never changes keys.
func newCounterMap[K comparable](keys []K) counterMap[K] {
	return counterMap[K]{slices.Clip(keys), make([]uint64, len(keys))}
}

// add counts one more of a key.
func (t *counterMap[K]) add(key K) {
	i := slices.Index(t.keys, key)
	if i < 0 {
		i = len(t.keys)
		t.keys, t.counts = append(t.keys, key), append(t.counts, 0)
	}
	t.counts[i]++
}

// all iterates over the keys and their counts.
func (t *counterMap[K]) all() iter.Seq2[K, uint64] {
	return func(yield func(K, uint64) bool) {
		for i, key := range t.keys {
			if !yield(key, t.counts[i]) {
				return
			}
		}
	}
}

// clone returns a copy that shares only the keys.
func (t *counterMap[K]) clone() counterMap[K] {
	return counterMap[K]{slices.Clip(t.keys), slices.Clone(t.counts)}
}
