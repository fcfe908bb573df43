package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

func emptyTopic(t *testing.T, topic Topic) {
	s := topic.Open()
	for range 2 {
		if cp := resume(t, s); !cp.IsZero() {
			t.Errorf("checkpoint %+v, want the zero one", cp)
		}
	}
	wantFeed(t, topic, 0)
}

func checkpointComesBack(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	cp := At(1)
	cp.Cursor = []byte("\x00\xff{\"\n")
	if err := s.Commit(t.Context(), Entities(0, 1), cp); err != nil {
		t.Fatal(err)
	}
	wantCheckpoint(t, resume(t, s), cp)
	wantCheckpoint(t, resume(t, topic.Open()), cp)
}

func order(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	n := 0
	for _, k := range []int{1, 2, 5, 1, 30, 3} {
		commit(t, s, n, n+k)
		n += k
	}
	wantFeed(t, topic, n)
}

func moveCheckpoint(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	moved := At(0)
	moved.Cursor = []byte("elsewhere")
	if err := s.Commit(t.Context(), nil, moved); err != nil {
		t.Fatal(err)
	}
	wantCheckpoint(t, resume(t, topic.Open()), moved)
	commit(t, s, 0, 3)
	moved = At(3)
	moved.Cursor = nil
	if err := s.Commit(t.Context(), nil, moved); err != nil {
		t.Fatal(err)
	}
	wantCheckpoint(t, resume(t, topic.Open()), moved)
	commit(t, s, 3, 5)
	wantFeed(t, topic, 5)
}

// pausedAt returns the checkpoint behind the first n entities, which is paused.
func pausedAt(n int) checkpoint.Checkpoint {
	cp := At(n)
	cp.Paused = cp.At.Add(time.Minute)
	return cp
}

func pausedBeforeFirst(t *testing.T, topic Topic) {
	s, stale := topic.Open(), topic.Open()
	resume(t, s)
	resume(t, stale)
	paused := pausedAt(0)
	paused.Source, paused.Cursor = checkpoint.UnknownSource, nil
	if err := s.Commit(t.Context(), nil, paused); err != nil {
		t.Fatal(err)
	}
	if err := stale.Commit(t.Context(), Entities(0, 2), At(2)); !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("commit of a writer that does not know of the pause: %v, want ErrConflict", err)
	}
	other := topic.Open()
	wantCheckpoint(t, resume(t, other), paused)
	wantFeed(t, topic, 0)
	resumed := paused
	resumed.Paused = time.Time{}
	if err := other.Commit(t.Context(), nil, resumed); err != nil {
		t.Fatal(err)
	}
	wantCheckpoint(t, resume(t, s), resumed)
	commit(t, s, 0, 3)
	wantFeed(t, topic, 3)
}

func pausedBetween(t *testing.T, topic Topic) {
	busy, other := topic.Open(), topic.Open()
	resume(t, busy)
	commit(t, busy, 0, 3)
	resume(t, other)
	if err := other.Commit(t.Context(), nil, pausedAt(3)); err != nil {
		t.Fatal(err)
	}
	if err := busy.Commit(t.Context(), Entities(3, 2), At(5)); !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("commit of a writer that does not know of the pause: %v, want ErrConflict", err)
	}
	wantCheckpoint(t, resume(t, busy), pausedAt(3))
	wantFeed(t, topic, 3)
	if err := busy.Commit(t.Context(), nil, At(3)); err != nil {
		t.Fatal(err)
	}
	commit(t, busy, 3, 5)
	wantFeed(t, topic, 5)
	wantCheckpoint(t, resume(t, topic.Open()), At(5))
}

// wantConflict checks that a stale writer's commit is refused and leaves the
// topic with the first n entities of the feed.
func wantConflict(t *testing.T, topic Topic, stale Sink, entities []feed.Entity, n int) {
	t.Helper()
	err := stale.Commit(t.Context(), entities, At(1000))
	if !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("commit of a stale writer: %v, want ErrConflict", err)
	}
	if errors.Is(err, feed.ErrPermanent) {
		t.Errorf("a conflict is permanent: %v", err)
	}
	wantFeed(t, topic, n)
	wantCheckpoint(t, resume(t, topic.Open()), At(n))
}

func staleFromZero(t *testing.T, topic Topic) {
	stale, other := topic.Open(), topic.Open()
	resume(t, stale)
	resume(t, other)
	commit(t, other, 0, 2)
	wantConflict(t, topic, stale, Entities(500, 3), 2)
}

func staleAfterCommits(t *testing.T, topic Topic) {
	stale, other := topic.Open(), topic.Open()
	resume(t, stale)
	commit(t, stale, 0, 2)
	commit(t, stale, 2, 3)
	resume(t, other)
	for n := 3; n < 10; n++ {
		commit(t, other, n, n+1)
	}
	wantConflict(t, topic, stale, Entities(500, 3), 10)
}

func staleMove(t *testing.T, topic Topic) {
	stale, other := topic.Open(), topic.Open()
	resume(t, stale)
	resume(t, other)
	commit(t, other, 0, 2)
	wantConflict(t, topic, stale, nil, 2)
	resume(t, stale)
	commit(t, other, 2, 3)
	wantConflict(t, topic, stale, nil, 3)
}

func conflictHeals(t *testing.T, topic Topic) {
	a, b := topic.Open(), topic.Open()
	resume(t, a)
	resume(t, b)
	commit(t, b, 0, 2)
	wantConflict(t, topic, a, Entities(0, 2), 2)
	wantCheckpoint(t, resume(t, a), At(2))
	commit(t, a, 2, 4)
	wantConflict(t, topic, b, Entities(2, 2), 4)
	wantCheckpoint(t, resume(t, b), At(4))
	commit(t, b, 4, 5)
	wantFeed(t, topic, 5)
}

func race(t *testing.T, topic Topic) {
	const total, writers = 200, 2
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			ctx, s := t.Context(), topic.Open()
			for k := 1; ; k = k%7 + 1 {
				cp, err := s.Resume(ctx)
				if err != nil {
					t.Errorf("writer %d: resume: %v", w, err)
					return
				}
				n := 0
				if !cp.IsZero() {
					n, _ = strconv.Atoi(string(cp.Cursor))
				}
				for n < total && err == nil {
					to := min(total, n+k+w)
					err = s.Commit(ctx, Entities(n, to-n), At(to))
					n = to
				}
				if err == nil {
					return
				}
				if !errors.Is(err, checkpoint.ErrConflict) {
					t.Errorf("writer %d: %v, want no error but ErrConflict", w, err)
					return
				}
			}
		})
	}
	group.Wait()
	wantFeed(t, topic, total)
}

// sorted puts fields in the order of their names; those of the same name stay
// in theirs. The order of fields with different names has no meaning, and not
// every bus keeps it.
func sorted(h feed.Header) feed.Header {
	h = slices.Clone(h)
	slices.SortStableFunc(h, func(a, b feed.Field) int { return cmp.Compare(a.Name, b.Name) })
	return h
}

func wantEntities(t *testing.T, topic Topic, want []feed.Entity) {
	t.Helper()
	if diff := gocmp.Diff(want, read(t, topic), gocmp.Comparer(bytes.Equal), gocmp.Transformer("sorted", sorted)); diff != "" {
		t.Errorf("entities (-want +got):\n%s", diff)
	}
}

func headers(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 2)
	want := slices.Concat(Entities(0, 2), Entities(2, 3))
	want[2].Header = append(want[2].Header, feed.Header{
		{Name: "Link", Value: "<a>; rel=\"x\""},
		{Name: "Link", Value: "<b>, c: d"},
		{Name: "link", Value: "of another case"},
		{Name: "X-Empty", Value: ""},
		{Name: "X-Unicode", Value: "naïve ☃\ttab"},
		{Name: "X-Long", Value: strings.Repeat("long", 500)},
	}...)
	want[3].Header = append(want[3].Header, feed.Header{
		{Name: "Nats-Rollup", Value: "all"},
		{Name: "Nats-Msg-Id", Value: "the same"},
		{Name: "Nats-Expected-Stream", Value: "another"},
		{Name: "nats-ttl", Value: "1s"},
		{Name: "Feedbridge-Feed", Value: "another"},
		{Name: "Feedbridge-Page", Value: "http://elsewhere.example.com"},
		{Name: "Feedbridge-Header-X", Value: "twice"},
	}...)
	want[4].Header = append(want[4].Header, feed.Header{
		{Name: "Nats-Msg-Id", Value: "the same"},
		{Name: "Status", Value: "404"},
		{Name: "Description", Value: "No Messages"},
	}...)
	want[4].Body = nil
	// The topic has well-known names in their canonical case, and the entity gets back
	// those of its feed.
	want[3].Header[0].Name, want[3].Header[2].Name = "content-id", "LAST-MODIFIED"
	if err := s.Commit(t.Context(), want[2:], At(5)); err != nil {
		t.Fatal(err)
	}
	wantEntities(t, topic, want)
	if ids := openIDs(t, topic); ids != 5 {
		t.Errorf("a new sink knows %d IDs, want 5", ids)
	}
}

func openIDs(t *testing.T, topic Topic) int {
	t.Helper()
	s := topic.Open()
	resume(t, s)
	return s.IDs().Len()
}

func bodies(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	want := Entities(0, 4)
	want[0].Body = nil
	want[1].Body = []byte("\r\n\x00\xff\xfe--boundary\r\n")
	want[2].Body = bytes.Repeat([]byte{0, 1, 2, 253, 254, 255}, 20_000)
	want[3].Body = []byte("NATS/1.0\r\nStatus: 503\r\n\r\n")
	if err := s.Commit(t.Context(), want, At(4)); err != nil {
		t.Fatal(err)
	}
	wantEntities(t, topic, want)
}

func largest(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, topic.MaxEntities)
	for _, e := range Entities(topic.MaxEntities-topic.Window, topic.Window) {
		if s.IDs().Add(e.ID) {
			t.Fatalf("%s is not held", e.ID)
		}
	}
	commit(t, s, topic.MaxEntities, topic.MaxEntities+1)
	wantFeed(t, topic, topic.MaxEntities+1)
	wantCheckpoint(t, resume(t, topic.Open()), At(topic.MaxEntities+1))
}

// wantHeld checks that exactly the first n IDs of the feed are held by s.
func wantHeld(t *testing.T, s Sink, n int) {
	t.Helper()
	if got := s.IDs().Len(); got != n {
		t.Errorf("%d IDs are held, want %d", got, n)
	}
	for _, e := range Entities(0, n) {
		if s.IDs().Add(e.ID) {
			t.Fatalf("%s is not held", e.ID)
		}
	}
}

// idsBesideEmpty commits an entity whose first Content-ID is empty, as a page has it, and one whose only
// one is, as a snapshot without IDs has it.
func idsBesideEmpty(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	entities := Entities(0, 2)
	for i := range entities {
		h := feed.Header{{Name: "content-id"}, {Name: "Content-ID", Value: entities[i].ID}}
		entities[i].Header = append(h[:2-i:2-i], slices.DeleteFunc(entities[i].Header, func(f feed.Field) bool { return f.Name == "Content-ID" })...)
	}
	if err := s.Commit(t.Context(), entities, At(2)); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, s, 2)
	s = topic.Open()
	resume(t, s)
	wantHeld(t, s, 2)
}

func idsOfNewSink(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	for n := 0; n < 50; n += 10 {
		commit(t, s, n, n+10)
	}
	wantHeld(t, s, 50)
	fresh := topic.Open()
	resume(t, fresh)
	wantHeld(t, fresh, 50)
}

func idsOfOther(t *testing.T, topic Topic) {
	a, b := topic.Open(), topic.Open()
	resume(t, a)
	commit(t, a, 0, 3)
	resume(t, b)
	commit(t, b, 3, 4)
	commit(t, b, 4, 9)
	wantHeld(t, a, 3)
	resume(t, a)
	wantHeld(t, a, 9)
	commit(t, a, 9, 10)
	wantHeld(t, a, 10)
	resume(t, a)
	wantHeld(t, a, 10)
}

func idsForgotten(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 2)
	for _, e := range Entities(2, 3) {
		s.IDs().Add(e.ID)
	}
	wantHeld(t, s, 5)
	resume(t, s)
	wantHeld(t, s, 2)

	other := topic.Open()
	resume(t, other)
	commit(t, other, 2, 3)
	refused := Entities(700, 2)
	for _, e := range refused {
		s.IDs().Add(e.ID)
	}
	if err := s.Commit(t.Context(), refused, At(1000)); !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("commit of a stale writer: %v, want ErrConflict", err)
	}
	resume(t, s)
	wantHeld(t, s, 3)
}

func marks(t *testing.T, topic Topic) {
	s, other := topic.Open(), topic.Open()
	resume(t, s)
	// Entity 1 comes back, changed.
	entities := append(Entities(0, 2), Entities(1, 1)...)
	for i := range entities {
		entities[i].Mark = "v1;" + strconv.Itoa(i)
	}
	if err := s.Commit(t.Context(), entities, At(3)); err != nil {
		t.Fatal(err)
	}
	resume(t, other)
	for name, s := range map[string]Sink{"the one that committed": s, "another": other} {
		for i, want := range []string{"v1;0", "v1;2"} {
			if got, held := s.IDs().Mark(entities[i].ID); !held || got != want {
				t.Errorf("%s has the mark %q (%v) of %s, want %q", name, got, held, entities[i].ID, want)
			}
		}
		s.IDs().SetMark(entities[1].ID, "v1;later")
		s.IDs().SetMark("<new@feed.example.com>", "v1;new")
		resume(t, s)
		if got, _ := s.IDs().Mark(entities[1].ID); got != "v1;2" {
			t.Errorf("%s has the mark %q, which was never committed", name, got)
		}
		n := 0
		for id := range s.IDs().Marks() {
			if n++; id != entities[0].ID && id != entities[1].ID {
				t.Errorf("%s has a mark of %s, which was never committed", name, id)
			}
		}
		if n != 2 {
			t.Errorf("%s has %d marks, want 2", name, n)
		}
	}
	wantEntities(t, topic, entities)
}

// marked are entities with marks of a version; each third deletes.
func marked(from, n, version int) []feed.Entity {
	entities := Entities(from, n)
	for i := range entities {
		entities[i].Mark = fmt.Sprintf("v%d;%d", version, from+i)
		if i%3 == 0 {
			entities[i].Op, entities[i].Header[3].Value = feed.Delete, "http-equiv=DELETE"
		}
	}
	return entities
}

// commitAll commits entities in as many commits as it takes, and returns how many
// the topic has then, of which there were n before.
func commitAll(t *testing.T, topic Topic, s Sink, n int, entities []feed.Entity) int {
	t.Helper()
	for part := range slices.Chunk(entities, min(topic.MaxEntities, 200)) {
		n += len(part)
		if err := s.Commit(t.Context(), part, At(n)); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// wantMarks checks that s holds the marks of entities and no others.
func wantMarks(t testing.TB, s Sink, entities ...[]feed.Entity) {
	t.Helper()
	want := map[string]string{}
	for _, e := range slices.Concat(entities...) {
		want[e.ID] = e.Mark
	}
	if diff := gocmp.Diff(want, maps.Collect(s.IDs().Marks())); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}

func marksOfNewSink(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	// Nobody had marks at first.
	n := commitAll(t, topic, s, 0, Entities(0, topic.Window))
	many := marked(n, 10*topic.Window, 1)
	n = commitAll(t, topic, s, n, many)
	changed := marked(topic.Window, 5, 2)
	n = commitAll(t, topic, s, n, changed)
	wantMarks(t, s, many, changed)
	fresh := topic.Open()
	resume(t, fresh)
	wantMarks(t, fresh, many, changed)
	// It is caught up, and stays so.
	resume(t, fresh)
	wantMarks(t, fresh, many, changed)
	commitAll(t, topic, fresh, n, marked(topic.Window, 1, 3))
	resume(t, s)
	wantMarks(t, s, many, changed, marked(topic.Window, 1, 3))
}

func marksOfOther(t *testing.T, topic Topic) {
	s, other := topic.Open(), topic.Open()
	resume(t, s)
	first := marked(0, 3, 1)
	n := commitAll(t, topic, s, 0, first)
	resume(t, other)
	many := marked(3, 20*topic.Window, 1)
	commitAll(t, topic, other, n, many)
	wantMarks(t, s, first)
	resume(t, s)
	wantMarks(t, s, first, many)
}

// openMover opens a sink whose checkpoint can be moved, or skips the test.
func openMover(t *testing.T, topic Topic) Mover {
	t.Helper()
	s, ok := topic.Open().(Mover)
	if !ok {
		t.Skip("nobody can move the checkpoint of this sink")
	}
	return s
}

func movedFromNewest(t *testing.T, topic Topic) {
	person, s := openMover(t, topic), topic.Open()
	resume(t, person)
	resume(t, s)
	commit(t, s, 0, 2)
	commit(t, s, 2, 5)
	back := At(0)
	if err := person.Overwrite(t.Context(), func(old checkpoint.Checkpoint) checkpoint.Checkpoint {
		wantCheckpoint(t, old, At(5))
		back.Count = old.Count
		return back
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), Entities(5, 1), At(6)); !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("commit of a sink that resumed before the move: %v, want ErrConflict", err)
	}
	if err := s.Commit(t.Context(), Entities(5, 1), At(6)); err == nil {
		t.Error("a commit without a resume after an error is not refused")
	}
	wantCheckpoint(t, resume(t, s), back)
	commit(t, s, 5, 6)
	wantFeed(t, topic, 6)
}

func movedAtOnce(t *testing.T, topic Topic) {
	person, s := openMover(t, topic), topic.Open()
	resume(t, s)
	commit(t, s, 0, 2)
	back := At(0)
	var commits error
	moves := person.Overwrite(t.Context(), func(old checkpoint.Checkpoint) checkpoint.Checkpoint {
		commits = s.Commit(t.Context(), Entities(2, 3), At(5))
		back.Count = old.Count
		return back
	})
	want, n := back, 2
	refused := commits
	if commits == nil {
		want, n, refused = At(5), 5, moves
	} else if moves != nil {
		t.Errorf("neither took place: %v", moves)
	}
	if !errors.Is(refused, checkpoint.ErrConflict) {
		t.Errorf("the one of them that did not take place: %v, want ErrConflict", refused)
	}
	wantCheckpoint(t, resume(t, topic.Open()), want)
	wantFeed(t, topic, n)
}

func foreign(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	cp := At(1)
	cp.Feed, cp.Source = "customers", "syndication"
	if err := s.Commit(t.Context(), Entities(0, 1), cp); err != nil {
		t.Fatal(err)
	}
	wantCheckpoint(t, resume(t, topic.Open()), cp)
}

func cancelled(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Commit(ctx, Entities(2, 2), At(4)); !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v, want that the context was cancelled", err)
	}
	if _, err := topic.Open().Resume(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("resume: %v, want that the context was cancelled", err)
	}
	wantCheckpoint(t, resume(t, s), At(2))
	commit(t, s, 2, 3)
	wantFeed(t, topic, 3)
}
