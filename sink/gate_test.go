package sink_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/sink"
)

type sourceFunc func(context.Context, feed.Cursor) (feed.Batch, error)

func (f sourceFunc) Next(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	return f(ctx, after)
}

// gate has a gate in front of one batch with those IDs, behind which the topic
// holds "old", and whose bus takes bodies of three bytes.
func gate(batch feed.Batch) (*sink.Gate, *bytes.Buffer) {
	var log bytes.Buffer
	ids := sink.NewIDs(0)
	ids.Load("old")
	return &sink.Gate{
		Source: sourceFunc(func(context.Context, feed.Cursor) (feed.Batch, error) { return batch, nil }),
		IDs:    ids,
		Fits: func(e feed.Entity) error {
			if e.ID == "unsendable" {
				return errors.New("it has a header without a name")
			}
			if len(e.Body) > 3 {
				return fmt.Errorf("%w: it has %d bytes and the bus takes 3; raise max", sink.ErrTooLarge, len(e.Body))
			}
			return nil
		},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

func batchOf(ids ...string) feed.Batch {
	b := feed.Batch{Cursor: feed.Cursor("c"), More: true}
	for _, id := range ids {
		e := feed.Entity{ID: id, Page: "http://x/1"}
		if strings.HasPrefix(id, "large") {
			e.Body = []byte("four")
		}
		b.Entities = append(b.Entities, e)
	}
	return b
}

func idsOf(b feed.Batch) []string {
	var ids []string
	for _, e := range b.Entities {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestGateLeavesOutWhatTheTopicHolds(t *testing.T) {
	t.Parallel()
	in := batchOf("a", "old", "b", "a")
	in.Violations = make([]feed.Violation, 1, 8)
	g, _ := gate(in)
	got, err := g.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, idsOf(got)); diff != "" {
		t.Errorf("entities (-want +got):\n%s", diff)
	}
	if got.Duplicates != 2 || len(got.Violations) != 3 || !got.More || string(got.Cursor) != "c" {
		t.Errorf("batch %+v", got)
	}
	v := got.Violations[1]
	if v.Kind != "repeated_content_id" || v.Page != "http://x/1" || !strings.Contains(v.Detail, `"old"`) {
		t.Errorf("violation %+v", v)
	}
	if diff := cmp.Diff([]string{"a", "old", "b", "a"}, idsOf(in)); diff != "" || in.Violations[:2][1] != (feed.Violation{}) {
		t.Errorf("the source's batch was written to: %s", diff)
	}
}

func TestGatePassesABatchOnAsItIs(t *testing.T) {
	t.Parallel()
	in := batchOf("a", "b")
	g, _ := gate(in)
	got, err := g.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if &got.Entities[0] != &in.Entities[0] {
		t.Error("a batch from which nothing is left out was copied")
	}
}

// The URL of an entity's page becomes a header of its message.
func TestGateHidesTheSecretsOfPages(t *testing.T) {
	t.Parallel()
	in := batchOf("1", "2", "3", "old")
	in.Entities[1].Page = "https://me:word@x/2?token=abc&page=2"
	in.Entities[2].Page = "https://x/3?ticket=abc&page=3"
	g, _ := gate(in)
	g.Redact = safetext.NewRedactor("ticket")
	b, err := g.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, e := range b.Entities {
		pages = append(pages, e.Page)
	}
	if diff := cmp.Diff([]string{"http://x/1", "https://x/2?token=***&page=2", "https://x/3?ticket=***&page=3"}, pages); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if in.Entities[1].Page != "https://me:word@x/2?token=abc&page=2" {
		t.Errorf("the source's own entity has the page %s", in.Entities[1].Page)
	}
}

func TestGateStopsAtALargeEntity(t *testing.T) {
	t.Parallel()
	g, _ := gate(batchOf("a", "large", "b"))
	got, err := g.Next(t.Context(), nil)
	if !errors.Is(err, sink.ErrTooLarge) || !errors.Is(err, feed.ErrPermanent) {
		t.Fatalf("error %v, want one that matches ErrTooLarge and ErrPermanent", err)
	}
	want := `entity "large" on http://x/1: the entity is too large for the bus: it has 4 bytes and the bus takes 3; raise max, ` +
		`or set "oversize: skip" for this feed to leave such entities out`
	if err.Error() != want {
		t.Errorf("error\n%s\nwant\n%s", err, want)
	}
	if len(got.Entities) != 0 || got.Cursor != nil {
		t.Errorf("the batch was not withheld: %+v", got)
	}
	g.IDs.Rollback()
	if !g.IDs.Add("a") {
		t.Error("a rollback does not forget what was read before the large entity")
	}
}

func TestGateSkipsLargeEntities(t *testing.T) {
	t.Parallel()
	g, log := gate(batchOf("large1", "a", "large2"))
	g.Oversize = sink.Skip
	got, err := g.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a"}, idsOf(got)); diff != "" || got.Oversized != 2 {
		t.Errorf("oversized %d, want 2; entities (-want +got):\n%s", got.Oversized, diff)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 || !strings.Contains(log.String(), "id=large2") {
		t.Errorf("log:\n%s", log)
	}
	if !g.IDs.Add("large1") {
		t.Error("an entity that was skipped counts as held")
	}
}

func TestGateDoesNotSkipWhatIsUnfitForAnotherReason(t *testing.T) {
	t.Parallel()
	g, _ := gate(batchOf("unsendable"))
	g.Oversize = sink.Skip
	if _, err := g.Next(t.Context(), nil); !errors.Is(err, feed.ErrPermanent) || errors.Is(err, sink.ErrTooLarge) {
		t.Errorf("error %v, want a permanent one that does not match ErrTooLarge", err)
	}
}

func TestGatePassesErrorsOn(t *testing.T) {
	t.Parallel()
	g, _ := gate(feed.Batch{})
	boom := errors.New("boom")
	g.Source = sourceFunc(func(context.Context, feed.Cursor) (feed.Batch, error) { return feed.Batch{}, boom })
	if _, err := g.Next(t.Context(), nil); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}

func TestParseOversize(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]sink.Oversize{"": sink.Stop, "stop": sink.Stop, "skip": sink.Skip} {
		var got sink.Oversize
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q is %q (%v), want %q", in, got, err, want)
		}
	}
	if _, err := sink.ParseOversize("ignore"); err == nil || err.Error() != `oversize "ignore": want stop or skip` {
		t.Errorf("error %v", err)
	}
}
