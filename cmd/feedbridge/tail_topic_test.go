package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve"
)

// partitions are the messages of the partitions of a topic. A partition that is nil cannot be read.
type partitions struct {
	epoch    string
	messages [][]string
}

// partition is a serve.Log of one of the partitions.
type partition struct {
	serve.Log
	topic *partitions
	n     int
}

func (p partition) Span(context.Context) (feed.Span, error) {
	if p.n >= len(p.topic.messages) || p.topic.messages[p.n] == nil {
		return feed.Span{}, fmt.Errorf("no partition %d", p.n)
	}
	return feed.Span{End: uint64(len(p.topic.messages[p.n])), Epoch: p.topic.epoch}, nil
}

func (p partition) Read(_ context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		for i := from; i < to; i++ {
			if !yield(feed.Record{Position: i, Body: []byte(p.topic.messages[p.n][i])}, nil) {
				return
			}
		}
	}
}

// A partition that fails does not hide the others, and of a topic that was created again
// each message is printed once.
func TestPartitionsChangeWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	topic := &partitions{epoch: "1", messages: [][]string{{"a0"}, {"b0"}, {"c0"}}}
	var out strings.Builder
	lines := &messageWriter{lines: newEntityWriter(&out)}
	open := func(n int) *topicReader {
		return &topicReader{topic: partition{topic: topic, n: n}, partition: n, out: lines, log: slog.New(slog.DiscardHandler)}
	}
	readers := []*topicReader{open(0)}
	for _, step := range []struct {
		situation string
		change    func()
		want      string
		failed    bool
	}{
		{"three partitions", func() {}, "a0 b0 c0", false},
		{"nothing new", func() {}, "", false},
		{"one fails", func() { topic.messages = [][]string{{"a0", "a1"}, nil, {"c0", "c1"}} }, "a1 c1", true},
		{"it is back", func() { topic.messages[1] = []string{"b0", "b1"} }, "b1", false},
		{"one is added", func() { topic.messages = append(topic.messages, []string{"d0"}) }, "d0", false},
		{"created again with fewer", func() { topic.epoch, topic.messages = "2", [][]string{{"A0"}, {"B0"}} }, "A0 B0", true},
		{"the others are dropped", func() { topic.messages[1] = []string{"B0", "B1"} }, "B1", false},
		{"created again with more", func() { topic.epoch, topic.messages = "3", [][]string{{"x0"}, {"y0"}, {"z0"}} }, "x0 y0 z0", false},
		{"nothing is printed again", func() {}, "", false},
	} {
		step.change()
		out.Reset()
		readers = updatePartitions(t.Context(), readers, open)
		err := printNew(t.Context(), readers)
		var got []string
		for line := range strings.Lines(out.String()) {
			_, body, _ := strings.Cut(line, `"body":"`)
			got = append(got, body[:2])
		}
		if text := strings.Join(got, " "); text != step.want || (err != nil) != step.failed || errors.Is(err, errEnough) {
			t.Errorf("%s: printed %q, %v; want %q", step.situation, text, err, step.want)
		}
	}
}

// A message that feedbridge did not write has no ID, operation and time of modification.
func TestForeignMessageIsPrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	line := newMessageLine(&feed.Record{Position: 7, Time: time.Unix(1_700_000_000, 0).UTC(), Body: []byte("hello")}, 0)
	if err := newEntityWriter(&out).writeLine(line); err != nil {
		t.Fatal(err)
	}
	const want = `{"position":7,"time":"2023-11-14T22:13:20Z","headers":[],"body":"hello","page":""}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}
