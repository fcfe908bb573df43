package sinktest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	codec "github.com/feedbridge/feedbridge/message"
)

// WantError checks that err is permanent or not, matches is unless that is nil,
// and has all of the texts.
func WantError(t testing.TB, err error, permanent bool, is error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", texts)
	}
	if got := errors.Is(err, feed.ErrPermanent); got != permanent {
		t.Errorf("permanent is %v, want %v: %v", got, permanent, err)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("error %v does not match %v", err, is)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error\n%s\nhas no\n%s", err, text)
		}
	}
}

// Span returns the positions of a topic.
func Span(t testing.TB, log Log) feed.Span {
	t.Helper()
	span, err := log.Span(t.Context())
	must.Succeed(t, err)
	return span
}

// Records returns the records of a topic from one position up to another.
func Records(t testing.TB, log Log, from, to uint64) []feed.Record {
	t.Helper()
	var all []feed.Record
	for r, err := range log.Read(t.Context(), from, to) {
		must.Succeed(t, err)
		all = append(all, r)
	}
	return all
}

// WantFeed checks that a topic holds the first n entities of the feed.
func WantFeed(t testing.TB, log Log, n int) {
	t.Helper()
	want := Entities(0, n)
	i := 0
	for _, r := range Records(t, log, 0, Span(t, log).End) {
		if id, _ := r.Header.Get(codec.ContentID); i < n && id != want[i].ID {
			t.Fatalf("entity %d is %s, want %s", i, id, want[i].ID)
		}
		i++
	}
	if i != n {
		t.Errorf("the topic holds %d entities, want %d", i, n)
	}
}

// WantKnown checks whether a sink knows the IDs of entities, by adding them.
func WantKnown(t testing.TB, s Sink, known bool, entities ...feed.Entity) {
	t.Helper()
	for _, e := range entities {
		if s.IDs().Add(e.ID) == known {
			t.Errorf("the sink knows %s: %v, want %v", e.ID, !known, known)
		}
	}
}

// BenchmarkLog compares reading a topic page by page with a client that reads it from its first message
// to its last. The sink has resumed. bare reads up to n more messages, from the first again after total,
// and returns their number.
func BenchmarkLog(b *testing.B, s Sink, log Log, bare func(b *testing.B, n, read, total int) int) {
	const total, size = 50_000, 500
	for n := 0; n < total; n += size {
		entities := Entities(n, size)
		for i := range entities {
			entities[i].Body = bytes.Repeat([]byte("x"), 1024)
		}
		must.Succeed(b, s.Commit(b.Context(), entities, At(n+size)))
	}
	span := Span(b, log)
	b.Run("pages", func(b *testing.B) {
		n, from := 0, span.First
		for b.Loop() {
			n += len(Records(b, log, from, min(from+size, span.End)))
			if from += size; from >= span.End {
				from = span.First
			}
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("bare", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n += bare(b, size, n, total)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	})
}

// WantIDs checks how many IDs a sink holds.
func WantIDs(t testing.TB, s Sink, want int) {
	t.Helper()
	if n := s.IDs().Len(); n != want {
		t.Errorf("%d IDs are held, want %d", n, want)
	}
}
