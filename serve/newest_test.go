package serve_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve"
)

// records are a topic with gaps between its positions.
type records []feed.Record

func (r records) Span(context.Context) (feed.Span, error) {
	return feed.Span{End: r[len(r)-1].Position + 2, Epoch: "e"}, nil
}

func (r records) Read(_ context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		for _, each := range r {
			if each.Position >= from && each.Position < to && !yield(each, nil) {
				return
			}
		}
	}
}

// The newest messages are the last ones, as bounded text without markup.
func TestNewest(t *testing.T) {
	t.Parallel()
	var topic records
	for i, body := range []string{"old", "{}", strings.Repeat("<b>x</b>", 1000), "<p>Hello <script>bad()</script>you</p>\u202e"} {
		e := feed.Entity{
			ID: string(rune('a' + i)), Op: feed.Put, Body: []byte(body), Modified: time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC),
			Header: feed.Header{{Name: "Content-Type", Value: "text/html"}, {Name: "Feed-Title", Value: "The Journal"}},
		}
		topic = append(topic, feed.Record{Position: uint64(2 * i), Time: e.Modified, Header: message.Header("orders", e), Body: e.Body})
	}
	newest, err := serve.Newest(t.Context(), topic, 3)
	if err != nil || len(newest) != 3 || newest[0].ID != "d" || newest[2].ID != "b" {
		t.Fatalf("got %+v, %v", newest, err)
	}
	if got := newest[0]; got.Text != "Hello you" || got.FeedTitle != "The Journal" {
		t.Errorf("the newest is %+v", got)
	}
	if got := newest[1].Text; len(got) > 310 || strings.Contains(got, "<") {
		t.Errorf("the text has %d bytes: %.40s", len(got), got)
	}
}
