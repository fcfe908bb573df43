package sinktest

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/feedbridge/feedbridge/feed"
)

// spanOf returns the positions of a topic; none if there is no topic.
func spanOf(t *testing.T, log Log) feed.Span {
	t.Helper()
	span, err := log.Span(t.Context())
	if err != nil && !errors.Is(err, feed.ErrNoTopic) {
		t.Fatalf("span: %v", err)
	}
	return span
}

func positions(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	before := spanOf(t, topic.Log)
	if before.First != before.End {
		t.Errorf("an empty topic has the positions %+v", before)
	}
	var held []feed.Record
	for n := 0; n < 40; n += 8 {
		commit(t, s, n, n+8)
		now := spanOf(t, topic.Log)
		if now.Epoch != before.Epoch || !regexp.MustCompile(`^[a-z0-9]{1,16}$`).MatchString(now.Epoch) {
			t.Errorf("epoch %q after %q", now.Epoch, before.Epoch)
		}
		if now.End <= before.End || before.First < before.End && now.First < before.First {
			t.Errorf("positions %+v after %+v", now, before)
		}
		before = now
		all := Records(t, topic.Log, now.First, now.End)
		if len(all) != n+8 {
			t.Fatalf("%d records, want %d", len(all), n+8)
		}
		if diff := gocmp.Diff(held, all[:len(held)], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("what was read before has changed (-before +now):\n%s", diff)
		}
		for i, r := range all {
			if r.Position < now.First || r.Position >= now.End || i > 0 && r.Position <= all[i-1].Position {
				t.Errorf("record %d has position %d of %+v", i, r.Position, now)
			}
			if r.Time.IsZero() || r.Tombstone {
				t.Errorf("record %d has time %v, tombstone is %v", i, r.Time, r.Tombstone)
			}
		}
		held = all
	}
}

func parts(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 3)
	commit(t, s, 3, 4)
	commit(t, s, 4, 6)
	span := spanOf(t, topic.Log)
	all := Records(t, topic.Log, 0, span.End)
	for from := span.First; from <= span.End; from++ {
		for to := span.First; to <= span.End; to++ {
			var want []feed.Record
			for _, r := range all {
				if from <= r.Position && r.Position < to {
					want = append(want, r)
				}
			}
			if diff := gocmp.Diff(want, Records(t, topic.Log, from, to)); diff != "" {
				t.Errorf("from %d to %d of %+v (-want +got):\n%s", from, to, span, diff)
			}
		}
	}
}

func readByMany(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	const total = 3000
	for n := 0; n < total; n += 300 {
		commit(t, s, n, n+300)
	}
	span := spanOf(t, topic.Log)
	all := Records(t, topic.Log, span.First, span.End)
	if len(all) != total {
		t.Fatalf("%d records, want %d", len(all), total)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			var got []feed.Record
			step := uint64(100 + 250*i)
			for from := span.First; from < span.End; from += step {
				for r, err := range topic.Log.Read(t.Context(), from, min(from+step, span.End)) {
					if err != nil {
						t.Error(err)
						return
					}
					got = append(got, r)
				}
			}
			if diff := gocmp.Diff(all, got); diff != "" {
				t.Errorf("in steps of %d (-want +got):\n%s", step, diff)
			}
		})
	}
	group.Wait()
}

func readersEnd(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 5)
	span := spanOf(t, topic.Log)
	n := 0
	for _, err := range topic.Log.Read(t.Context(), span.First, span.End) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 2 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := topic.Log.Span(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("span: %v, want that the context was cancelled", err)
	}
	n = 0
	for _, err := range topic.Log.Read(ctx, span.First, span.End) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v, want that the context was cancelled", err)
		}
	}
	if n != 1 {
		t.Errorf("read has yielded %d times, want the error alone", n)
	}
}
