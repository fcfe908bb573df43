package message_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// An encoder returns the headers of each entity, whatever the entities before it had.
func TestHeaderEncoderReturnsWhatHeaderDoes(t *testing.T) {
	t.Parallel()
	text := rapid.SampledFrom([]string{"a", "b", "c", ""})
	headers := rapid.SampledFrom([][]string{
		{"Content-ID", "Last-Modified", "Operation-Type"},
		{"Content-ID", "Operation-Type", "Last-Modified"},
		{"content-id", "Last-Modified", "Operation-Type"},
		{"X", "Content-ID", "Last-Modified", "Operation-Type", "traceparent"},
		{"Content-ID", "Last-Modified", "Operation-Type", "Nats-TTL", "X", "X"},
		{"Content-ID"},
		{"Last-Modified", "Operation-Type"},
		{},
	})
	rapid.Check(t, func(t *rapid.T) {
		feedName := text.Draw(t, "feed")
		encoder := message.NewHeaderEncoder(feedName, nil, 0)
		usual := headers.Draw(t, "usual header")
		var before []string
		for range rapid.IntRange(1, 6).Draw(t, "entities") {
			e := feed.Entity{
				ID: text.Draw(t, "ID"), Page: text.Draw(t, "page"),
				Op:       rapid.SampledFrom([]feed.Operation{"", feed.Put}).Draw(t, "operation"),
				Modified: rapid.SampledFrom([]time.Time{{}, modified}).Draw(t, "modified"),
			}
			if rapid.IntRange(0, 2).Draw(t, "is marked") == 0 {
				e.Mark, e.Made = text.Draw(t, "mark"), text.Draw(t, "made")
			}
			own := usual
			if rapid.IntRange(0, 3).Draw(t, "is another header") == 0 {
				own = headers.Draw(t, "header")
			}
			for _, name := range own {
				e.Header = append(e.Header, feed.Field{Name: name, Value: text.Draw(t, name)})
			}
			got, sameNames := encoder.Encode(&e)
			if diff := cmp.Diff(message.Header(feedName, e), got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("header of %+v (-want +got):\n%s", e, diff)
			}
			names := make([]string, len(got))
			for i, f := range got {
				names[i] = f.Name
			}
			if sameNames && !slices.Equal(names, before) {
				t.Fatalf("names %q are the same as %q", names, before)
			}
			before = names
		}
	})
}

// The entities of most feeds have the same names, and the encoder depends on that to save time.
func TestHeaderEncoderUsesTheLastHeadersAgain(t *testing.T) {
	entity := func(id string) feed.Entity {
		return feed.Entity{ID: id, Op: feed.Put, Modified: modified, Page: "http://x/" + id, Header: feed.Header{
			{Name: "content-id", Value: id}, {Name: "Last-Modified", Value: message.FormatDate(modified)}, {Name: "Operation-Type", Value: "PUT"},
		}}
	}
	first, second := entity("1"), entity("2")
	encoder := message.NewHeaderEncoder("orders", nil, 0)
	if _, sameNames := encoder.Encode(&first); sameNames {
		t.Error("the first message has the names of another one")
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, sameNames := encoder.Encode(&second); !sameNames {
			t.Error("the second message has other names")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
