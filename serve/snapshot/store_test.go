package snapshot

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/limit"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// numbers is a topic with one PUT a second.
type numbers int

func (n numbers) Span(context.Context) (feed.Span, error) {
	return feed.Span{End: uint64(n), Epoch: "e0"}, nil
}

func (n numbers) Entities(_ context.Context, _ feed.Span, from, to uint64) iter.Seq2[*Entity, error] {
	return func(yield func(*Entity, error) bool) {
		for i := from; i < min(to, uint64(n)); i++ {
			e := &Entity{Position: i, ID: strconv.FormatUint(i, 10), HasID: true, Op: feed.Put, Modified: start.Add(time.Duration(i) * time.Second)}
			e.AppendPart = func(to []byte, boundary string) []byte {
				return append(to, "--"+boundary+"\r\n\r\n"+e.ID+"\r\n"...)
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newStore(n numbers) *Store {
	return NewStore(Topic{Span: n.Span, Entities: n.Entities}, Options{
		Config: Config{Every: time.Minute}, PageSize: 2, Turn: limit.New(1, 0), Log: slog.New(slog.DiscardHandler),
	})
}

// The progress of a build is known before its end, also of a topic with more keys than are held at a time, and ends with it.
func TestProgress(t *testing.T) {
	t.Parallel()
	for keys, passes := range map[int]uint64{100: 2, 20: 6} {
		const n = numbers(60)
		var s *Store
		read, most := uint64(0), uint64(0)
		s = NewStore(Topic{Span: n.Span, Entities: func(ctx context.Context, span feed.Span, from, to uint64) iter.Seq2[*Entity, error] {
			return func(yield func(*Entity, error) bool) {
				for e, err := range n.Entities(ctx, span, from, to) {
					if p := s.Progress(); !p.Began.IsZero() {
						if p.Read < read || p.Read > p.Total+60 {
							t.Errorf("%d keys: %d of %d after %d", keys, p.Read, p.Total, read)
						}
						read, most = p.Read, p.Total
					}
					if !yield(e, err) {
						return
					}
				}
			}
		}}, Options{Config: Config{Every: time.Minute, Keys: keys}, PageSize: 2, Turn: limit.New(1, 0), Log: slog.New(slog.DiscardHandler)})
		must.Succeed(t, s.buildAt(t.Context(), start.Add(time.Hour), true))
		// The last message is not in the snapshot.
		if read < 59*passes-2 || most < 59*2 || passes == 2 && most != 59*2 {
			t.Errorf("%d keys: the last progress is %d of %d", keys, read, most)
		}
		if p := s.Progress(); p != (Progress{}) {
			t.Errorf("%d keys: after the end: %+v", keys, p)
		}
		s.Drop(0)
	}
}

// A snapshot that is dropped stays open for the client that reads it, and no longer.
func TestDroppedSnapshotStaysOpenForItsReaders(t *testing.T) {
	t.Parallel()
	s := newStore(5)
	must.Succeed(t, s.Renew(t.Context(), start.Add(time.Hour)))
	at, _ := s.Open(s.Newest().ID, func(*Snapshot) bool { return true })
	s.Drop(0)
	if other, _ := s.Open(at.ID, func(*Snapshot) bool { return true }); other != nil {
		t.Error("a dropped snapshot is still there")
	}
	if at.reading.TryLock() {
		t.Fatal("the file may be closed while it is read")
	}
	for k, want := range []string{"\r\n0\r\n", "\r\n2\r\n"} {
		if b, err := io.ReadAll(at.Page(k)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("page %d is %q, %v", k, b, err)
		}
	}
	at.Release()
	for closed := false; !closed; runtime.Gosched() {
		at.reading.Lock()
		closed = at.file == nil
		at.reading.Unlock()
	}
}
