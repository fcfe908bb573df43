package sink_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// naive does the same as IDs, with lists.
type naive struct {
	window    int
	kept      int // beside the window
	permanent []string
	read      []string
}

func (n *naive) add(id string) bool {
	if slices.Contains(n.permanent, id) || slices.Contains(n.read, id) {
		return false
	}
	n.read = append(n.read, id)
	return true
}

func (n *naive) keep(id string) {
	n.kept = 0
	n.evict()
	n.keepBeside(id)
	n.kept = 0
	n.evict()
}

// keepBeside is keep beside the window.
func (n *naive) keepBeside(id string) {
	n.read = slices.DeleteFunc(n.read, func(r string) bool { return r == id })
	if !slices.Contains(n.permanent, id) {
		n.permanent = append(n.permanent, id)
		n.kept++
	}
}

func (n *naive) evict() { n.permanent = n.permanent[max(0, len(n.permanent)-n.window-n.kept):] }

func TestIDsAgreeWithLists(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 8).Draw(t, "window")
		ids, model := sink.NewIDs(window), &naive{window: window}
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "n")) })
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := id.Draw(t, "id")
				if got, want := ids.Add(id), model.add(id); got != want {
					t.Fatalf("Add(%s) = %v, want %v", id, got, want)
				}
			},
			// More than are looked up at once.
			"add all": func(t *rapid.T) {
				entities := make([]feed.Entity, rapid.IntRange(0, 70).Draw(t, "n"))
				wanted := make([]bool, len(entities))
				var repeated []int
				for i := range entities {
					entities[i].ID = fmt.Sprint(rapid.IntRange(0, 100).Draw(t, "id"))
					wanted[i] = rapid.Bool().Draw(t, "wanted")
					if wanted[i] && !model.add(entities[i].ID) {
						repeated = append(repeated, i)
					}
				}
				if got := ids.AddAll(entities, func(i int) bool { return wanted[i] }); !slices.Equal(got, repeated) {
					t.Fatalf("AddAll returned %v, want %v", got, repeated)
				}
			},
			"commit what was read": func(t *rapid.T) {
				n := rapid.IntRange(0, len(model.read)).Draw(t, "n")
				entities := make([]feed.Entity, n)
				for i, id := range slices.Clone(model.read[:n]) {
					entities[i].ID = id
					model.keep(id)
				}
				ids.Commit(entities)
			},
			"commit anything": func(t *rapid.T) {
				id := id.Draw(t, "id")
				ids.Commit([]feed.Entity{{ID: id}})
				model.keep(id)
			},
			"load": func(t *rapid.T) {
				id := id.Draw(t, "id")
				ids.Load(id)
				model.keep(id)
			},
			"load what may be read again": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					id := id.Draw(t, "id")
					ids.LoadUncommitted(feed.Header{{Name: message.ContentID, Value: id}})
					model.keepBeside(id)
				}
			},
			"rollback": func(*rapid.T) {
				ids.Rollback()
				model.read = nil
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					t.Skip()
				}
				ids.Reset()
				model.read, model.permanent, model.kept = nil, nil, 0
			},
			"": func(t *rapid.T) {
				if got, want := ids.Len(), len(model.permanent)+len(model.read); got != want {
					t.Fatalf("Len() = %d, want %d", got, want)
				}
			},
		})
	})
}

func TestMarksAgreeWithMaps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := sink.NewIDs(1)
		permanent, read := map[string]string{}, []feed.Entity{}
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "n")) })
		version := 0
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				// An entity may return to an earlier version.
				e := feed.Entity{ID: id.Draw(t, "id"), Mark: fmt.Sprint("r", rapid.IntRange(0, 2).Draw(t, "mark"))}
				ids.SetMark(e.ID, e.Mark)
				read = append(read, e)
			},
			"commit": func(t *rapid.T) {
				n := rapid.IntRange(0, len(read)).Draw(t, "n")
				ids.Commit(read[:n])
				for _, e := range read[:n] {
					permanent[e.ID] = e.Mark
				}
				read = read[n:]
			},
			"load": func(t *rapid.T) {
				version++
				e := feed.Entity{ID: id.Draw(t, "id"), Mark: fmt.Sprint("v", version)}
				ids.LoadMessage(message.Header("", e))
				permanent[e.ID] = e.Mark
			},
			"rollback": func(*rapid.T) {
				ids.Rollback()
				read = nil
			},
			"": func(t *rapid.T) {
				want := maps.Clone(permanent)
				for _, e := range read {
					want[e.ID] = e.Mark
				}
				if diff := cmp.Diff(want, maps.Collect(ids.Marks())); diff != "" {
					t.Fatalf("marks (-want +got):\n%s", diff)
				}
			},
		})
	})
}

// A source uses the memory of an entity again after its commit, while newer versions of it wait
// for theirs.
func TestMarksDoNotReferToCommittedEntities(t *testing.T) {
	t.Parallel()
	ids := sink.NewIDs(0)
	shared := func(id, mark string) (e feed.Entity, overwrite func()) {
		b := []byte(id + mark)
		text := unsafe.String(unsafe.SliceData(b), len(b))
		return feed.Entity{ID: text[:len(id)], Mark: text[len(id):]}, func() { clear(b) }
	}
	var versions []feed.Entity
	var overwrite []func()
	for i := range 3 {
		e, clear := shared("a", fmt.Sprint("v", i))
		ids.SetMark(e.ID, e.Mark)
		versions, overwrite = append(versions, e), append(overwrite, clear)
	}
	for i := range versions {
		ids.Commit(versions[i : i+1])
		overwrite[i]()
		if diff := cmp.Diff(map[string]string{"a": "v2"}, maps.Collect(ids.Marks())); diff != "" {
			t.Fatalf("marks after commit %d (-want +got):\n%s", i, diff)
		}
	}
	if got := ids.Len(); got != 1 {
		t.Errorf("Len() = %d, want 1", got)
	}
}

// An ID and a mark are cut out of something larger.
func TestMarksHoldNothingElse(t *testing.T) {
	const n, size = 100, 1 << 20
	ids := sink.NewIDs(0)
	before := heap()
	for i := range n {
		header := fmt.Sprintf("%09d v1;%d", i, i) + strings.Repeat(" ", size)
		e := feed.Entity{ID: header[:9], Mark: header[10:14]}
		if i%2 == 0 {
			ids.LoadMessage(message.Header("", e))
		} else {
			ids.SetMark(e.ID, e.Mark)
			ids.Commit([]feed.Entity{e})
		}
	}
	if grown := heap() - before; grown > n*size/10 {
		t.Errorf("%d marks hold %d bytes", n, grown)
	}
	runtime.KeepAlive(ids)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestIDsAddedWhileOthersAreCommitted(t *testing.T) {
	t.Parallel()
	const n = 20_000
	ids := sink.NewIDs(1000)
	read := make(chan string, 100)
	go func() {
		defer close(read)
		for i := range n {
			id := fmt.Sprint(i)
			if !ids.Add(id) {
				t.Errorf("%s is not fresh", id)
			}
			read <- id
		}
	}()
	for id := range read {
		ids.Commit([]feed.Entity{{ID: id}})
	}
	if got := ids.Len(); got != 1000 {
		t.Errorf("Len() = %d, want the window of 1000", got)
	}
	if ids.Add(fmt.Sprint(n-1000)) || !ids.Add(fmt.Sprint(n-1001)) {
		t.Error("the window does not hold the newest 1000")
	}
}

func BenchmarkIDs(b *testing.B) {
	b.ReportAllocs()
	const all, batch = 300_000, 100
	ids := sink.NewIDs(0)
	entities := make([]feed.Entity, all)
	for i := range entities {
		entities[i].ID = fmt.Sprintf("<%d@shop.example.com>", i)
	}
	isWanted := func(int) bool { return true }
	for i := 0; b.Loop(); i = (i + batch) % all {
		ids.AddAll(entities[i:i+batch], isWanted)
		ids.Commit(entities[i : i+batch])
	}
}
