package sink_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// naive does the same as IDs, with lists.
type naive struct {
	window    int
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
	n.read = slices.DeleteFunc(n.read, func(r string) bool { return r == id })
	if !slices.Contains(n.permanent, id) {
		n.permanent = append(n.permanent, id)
	}
	n.permanent = n.permanent[max(0, len(n.permanent)-n.window):]
}

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
			"rollback": func(*rapid.T) {
				ids.Rollback()
				model.read = nil
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					t.Skip()
				}
				ids.Reset()
				model.read, model.permanent = nil, nil
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
	ids := sink.NewIDs(0)
	batch := make([]feed.Entity, 1)
	for i := 0; b.Loop(); i++ {
		batch[0].ID = fmt.Sprintf("<%d@shop.example.com>", i)
		ids.Add(batch[0].ID)
		ids.Commit(batch)
	}
}
