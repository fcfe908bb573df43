package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/message"
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

// tailedLine is a line of tail. Its body is as printed.
type tailedLine struct {
	messageLine
	Body json.RawMessage `json:"body"`
}

// text returns the text of a body, and one that was printed as JSON as it is; nil if there is none.
func (l *tailedLine) text() any {
	var text string
	switch {
	case l.Body == nil:
		return nil
	case json.Unmarshal(l.Body, &text) == nil:
		return text
	}
	return string(l.Body)
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

// A body whose type is JSON is JSON in the line if it is an object or an array, and complete.
// Otherwise it is text. A dead letter has its reason, the length of the entity and whether the
// body is cut.
func TestTailPrintsBodiesAndDeadLetters(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) // package json reads no deeper value
	for _, c := range []struct{ contentType, reason, length, body, wantDead, wantBody string }{
		{"application/json", "", "", "{\"a\": \"<b>\",\n \"n\": 1.50, \"a\": null}", "", `"body":{"a":"<b>","n":1.50,"a":null}`},
		{"Application/Vnd.x+JSON; charset=utf-8", "", "", ` [1, 2] `, "", `"body":[1,2]`},
		{"application/json", "", "", "{\"a\":\"\u009b\"}", "", `"body":{"a":"\u009b"}`},
		{"text/plain", "", "", `{"a":1}`, "", `"body":"{\"a\":1}"`},
		{"", "", "", `{"a":1}`, "", `"body":"{\"a\":1}"`},
		{"application/json", "", "", `{"a":`, "", `"body":"{\"a\":"`},
		{"application/json", "", "", `{"a":1}{}`, "", `"body":"{\"a\":1}{}"`},
		{"application/json", "", "", `[1],[2]`, "", `"body":"[1],[2]"`},
		{"application/json", "", "", `"text"`, "", `"body":"\"text\""`},
		{"application/json", "", "", `null`, "", `"body":"null"`},
		{"application/json", "", "", ``, "", `"body":""`},
		{"application/json", "", "", deep, "", `"body":"` + deep + `"`},
		{"application/json", "", "", "{\"a\":\"\xff\"}", "", `"body_base64":"eyJhIjoi/yJ9"`},
		{"application/json", "no key", "7", `{"a":1}`, `,"reason":"no key","length":7,"body_cut":false`, `"body":{"a":1}`},
		{"application/json", "too large", "9", `{"a":1}`, `,"reason":"too large","length":9,"body_cut":true`, `"body":"{\"a\":1}"`},
		{"", "headers", "0", ``, `,"reason":"headers","length":0,"body_cut":false`, `"body":""`},
		{"text/plain", "", "9", `x`, `,"length":9,"body_cut":true`, `"body":"x"`},
		{"application/json", "no length", "-1", `{"a":1}`, `,"reason":"no length"`, `"body":{"a":1}`},
	} {
		r := feed.Record{Body: []byte(c.body)}
		headers := "[]"
		if c.contentType != "" {
			r.Header = feed.Header{{Name: "content-type", Value: c.contentType}}
			headers = `[["content-type","` + c.contentType + `"]]`
		}
		for name, value := range map[string]string{message.DeadReason: c.reason, message.DeadLength: c.length} {
			if value != "" {
				r.Header = append(r.Header, feed.Field{Name: name, Value: value})
			}
		}
		var out strings.Builder
		must.Succeed(t, newEntityWriter(&out).writeLine(newMessageLine(&r, 0)))
		want := `{"position":0,"time":"0001-01-01T00:00:00Z"` + c.wantDead + `,"headers":` + headers + `,` + c.wantBody + `,"page":""}` + "\n"
		if got := out.String(); got != want || !json.Valid([]byte(got)) {
			t.Errorf("got  %swant %s", got, want)
		}
	}
}

// A message that feedbridge did not write has no ID, operation and time of modification.
func TestForeignMessageIsPrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	line := newMessageLine(&feed.Record{Position: 7, Time: time.Unix(1_700_000_000, 0).UTC(), Body: []byte("hello")}, 0)
	must.Succeed(t, newEntityWriter(&out).writeLine(line))
	const want = `{"position":7,"time":"2023-11-14T22:13:20Z","headers":[],"body":"hello","page":""}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}
