package sink

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

func TestPackedMarksAreTheSame(t *testing.T) {
	t.Parallel()
	same := func(t *rapid.T, mark string) {
		if got := unpackMark(packMark(nil, mark)); got != mark {
			t.Errorf("packed and unpacked %q is %q", mark, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		same(t, rapid.String().Draw(t, "text"))
		same(t, rapid.StringMatching(`([0-9a-f]{0,40}|[0-9]{0,25}|[1-9][0-9]{0,10}000000000|[pd]?);([0-9a-f]{30,300};)?(0|00|1;|;){0,4}.{0,70}`).Draw(t, "mark"))
	})
	for _, mark := range []string{"", ";", ";;", "18446744073709551615", "18446744073709551616", "-1", "+1", "01", "A0", strings.Repeat("ab", 200), strings.Repeat("x", 63), strings.Repeat("x", 64)} {
		if got := unpackMark(packMark(nil, mark)); got != mark {
			t.Errorf("packed and unpacked %q is %q", mark, got)
		}
	}
}

func TestMarkTableAgreesWithAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var table markTable
		model := map[string]string{}
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "n")) })
		long := strings.Repeat("m", chunkBytes/8)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				id, mark := id.Draw(t, "id"), rapid.StringMatching(`[0-9a-f]{0,6}`).Draw(t, "mark")
				table.setMark(id, mark)
				model[id] = mark
			},
			"set a long one": func(t *rapid.T) {
				// Replaced records of other lengths have the table rewritten.
				id, mark := id.Draw(t, "id"), long[rapid.IntRange(0, 9).Draw(t, "less"):]
				table.setMark(id, mark)
				model[id] = mark
			},
			"set one that is larger than a chunk": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "seldom") > 0 {
					t.Skip()
				}
				id := strings.Repeat("i", chunkBytes+rapid.IntRange(0, 2).Draw(t, "more"))
				table.setMark(id, "m")
				model[id] = "m"
			},
			"": func(t *rapid.T) {
				if table.count() != len(model) {
					t.Fatalf("%d IDs, want %d", table.count(), len(model))
				}
				ids := slices.Sorted(table.allIDs())
				if !slices.Equal(ids, slices.Sorted(maps.Keys(model))) {
					t.Fatalf("the IDs are %.100q", ids)
				}
				for id, want := range model {
					if got, held := table.mark(id); got != want || !held {
						t.Fatalf("the mark of %.20s is %.20q, want %.20q", id, got, want)
					}
				}
				if _, held := table.mark("none"); held {
					t.Fatal("an ID that was never set has a mark")
				}
				if most := 64*(len(long)+chunkBytes/2) + 8*chunkBytes; len(table.chunks)*chunkBytes > most {
					t.Fatalf("%d chunks", len(table.chunks))
				}
			},
		})
	})
}

// A source reads the marks while its sink commits others.
func TestMarksDuringCommits(t *testing.T) {
	t.Parallel()
	const n = 2000
	ids := NewIDs(0)
	entities := make([]feed.Entity, n)
	for i := range entities {
		entities[i] = feed.Entity{ID: fmt.Sprint("e", i), Mark: "1"}
	}
	ids.Commit(entities)
	var commits sync.WaitGroup
	commits.Go(func() {
		for round := range 20 {
			for i := range entities {
				ids.Commit([]feed.Entity{{ID: entities[i].ID, Mark: strings.Repeat("x", 200+round)}, {ID: fmt.Sprint("n", round, i), Mark: "2"}})
			}
		}
	})
	for range 20 {
		seen := map[string]int{}
		for id := range ids.Marks() {
			seen[id]++
		}
		for _, e := range entities {
			if seen[e.ID] != 1 {
				t.Fatalf("%s comes %d times", e.ID, seen[e.ID])
			}
		}
	}
	commits.Wait()
}

// markedEntity returns the entity number i of a large feed of Atom.
func markedEntity(i int) feed.Entity {
	at := 1_700_000_000 + i
	return feed.Entity{
		ID:   fmt.Sprintf("urn:uuid:1225c695-cfb8-4ebb-aaaa-%012d", i),
		Mark: fmt.Sprintf("1;p;%d000000000;%d000000000;%016x%016x;%08x", at, at, uint64(i)*0x9E3779B97F4A7C15, uint64(i)*0xC2B2AE3D27D4EB4F, i/100),
	}
}

// heapPerEntry loads a topic of n entries and returns the memory that each takes, in bytes.
func heapPerEntry(n int) (ids *IDs, bytes float64) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	ids = NewIDs(0)
	for i := range n {
		ids.LoadMessage(message.Header("", markedEntity(i)))
	}
	return ids, float64(int64(heap()-before)) / float64(n) // negative if earlier tests have left more
}

// BenchmarkMarks loads the marks of a topic of Atom or RSS into memory.
func BenchmarkMarks(b *testing.B) {
	for _, n := range []int{100_000, 500_000, 2_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				_, bytes := heapPerEntry(n)
				b.ReportMetric(bytes, "heap-B/entry")
			}
		})
	}
}

func TestAnEntryTakes100Bytes(t *testing.T) {
	const n = 100_000
	ids, bytes := heapPerEntry(n)
	if bytes > 100 {
		t.Errorf("an entry takes %.1f bytes", bytes)
	}
	t.Logf("%.1f bytes", bytes)
	for i := range n {
		e := markedEntity(i)
		if mark, held := ids.Mark(e.ID); !held || mark != e.Mark {
			t.Fatalf("the mark of %s is %q, want %q", e.ID, mark, e.Mark)
		}
	}
}
