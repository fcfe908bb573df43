package sink_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/sink"
)

func TestKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k sink.Kept[int]
		var mu sync.Mutex // guards discarded
		var discarded []int
		put := func(n int) {
			k.Put(n, time.Second, func(n int) {
				mu.Lock()
				defer mu.Unlock()
				discarded = append(discarded, n)
			})
		}
		take := func(n, want int) {
			t.Helper()
			if got, ok := k.Take(func(held int) bool { return held == n }); got != want || ok != (want != 0) {
				t.Errorf("took %d, %v, want %d", got, ok, want)
			}
		}
		wantDiscarded := func(want ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(discarded, want) {
				t.Errorf("%d were discarded, want %d", discarded, want)
			}
		}
		take(1, 0)
		put(1)
		take(2, 0)
		take(1, 1)
		take(1, 0)
		time.Sleep(2 * time.Second)
		wantDiscarded() // it was taken
		put(2)
		put(3)
		wantDiscarded(2)
		take(2, 0)
		time.Sleep(time.Second - time.Nanosecond)
		take(3, 3)
		put(4)
		time.Sleep(time.Second - time.Nanosecond) // which is not the time of the one before
		wantDiscarded(2)
		time.Sleep(time.Nanosecond)
		wantDiscarded(2, 4)
		take(4, 0)
	})
}
