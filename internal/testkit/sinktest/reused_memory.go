package sinktest

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/feedbridge/feedbridge/feed"
)

// memoryReused writes to the memory of entities as soon as their commit has succeeded, or the sink
// has freed them, as a source does that reads the next page into it. Nothing that the sink keeps, or still
// sends, may refer to it.
func memoryReused(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	const n = 20 // a multiple of five
	entities, overwrite := sharingMemory(0, n)
	for from := 0; from < 5*n; from += n {
		next, overwriteNext := sharingMemory(from+n, n)
		if err := s.Commit(t.Context(), entities, At(from+n)); err != nil {
			t.Fatal(err)
		}
		overwrite()
		entities, overwrite = next, overwriteNext
	}
	wantFeed(t, topic, 5*n)
	for i := range 5 * n {
		id := fmt.Sprintf("<%d@feed.example.com>", i)
		if mark, _ := s.IDs().Mark(id); mark != markOf(i) {
			t.Errorf("the mark of %s is %q", id, mark)
		}
		if markOf(i) == "" && i >= 5*n-min(topic.Window, n) && s.IDs().Add(id) {
			t.Errorf("the sink does not know %s", id)
		}
	}
	s.IDs().Rollback()
}

func markOf(i int) string {
	if i%3 == 0 {
		return fmt.Sprintf("v1;%d", i)
	}
	return ""
}

// sharingMemory returns n entities of the feed of [Entities], every third with a mark, and a
// function that overwrites the memory of all of them. Every fifth overwrites that of the last five, but for
// IDs and marks, when it is freed.
func sharingMemory(from, n int) (entities []feed.Entity, overwrite func()) {
	var memory, all [][]byte
	share := func(text string) string {
		b := []byte(text)
		memory = append(memory, b)
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	entities = Entities(from, n)
	for i := range entities {
		e := &entities[i]
		e.ID, e.Page, e.Mark = share(e.ID), share(e.Page), share(markOf(from+i))
		memory = append(memory, e.Body)
		for k := range e.Header {
			e.Header[k] = feed.Field{Name: share(e.Header[k].Name), Value: share(e.Header[k].Value)}
		}
		if own := entities[max(0, i-4) : i+1]; i%5 == 4 {
			part := memory
			memory = nil
			e.Free = func() {
				for i := range own {
					own[i] = feed.Entity{ID: strings.Clone(own[i].ID), Mark: strings.Clone(own[i].Mark), Op: own[i].Op, Modified: own[i].Modified}
				}
				overwriteAll(part)
			}
			all = append(all, part...)
		}
	}
	return entities, func() {
		overwriteAll(all)
		clear(entities)
	}
}

func overwriteAll(memory [][]byte) {
	for _, b := range memory {
		for i := range b {
			b[i] = '#'
		}
	}
}
