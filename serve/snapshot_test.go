package serve

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestSnapshotPages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bytes, entities int
		want            string
	}{
		"case 137: by bytes":            {5, 100, "[[Hello] [World] [I am a] [Snapshot]]"},
		"case 137: by number":           {1000, 2, "[[Hello World] [I am] [a Snapshot]]"},
		"case 137: whichever is first":  {10, 3, "[[Hello World] [I am a] [Snapshot]]"},
		"case 139: times of everything": {1000, 100, "[[Hello World I am a Snapshot]]"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := newTopic()
			for i, body := range strings.Fields("Hello World I am a Snapshot and what is in the last second") {
				topic.add(messageOf(fmt.Sprint(i), feed.Put, later(min(i, 6)), body))
			}
			s := serveTopic(t, topic, sized(test.entities), withSnapshots(func(c *Snapshot) { c.PageBytes = test.bytes }))
			must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
			if got := fmt.Sprint(s.load(t).pages); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestSnapshotIsReadUntilItsEnd(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	body := strings.Repeat("x", 50_000)
	for i := range 8 {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i*i), body))
	}
	s := serveTopic(t, topic, sized(10), withSnapshots())
	must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
	in := s.load(t)
	w := &inTheMiddle{httptest.NewRecorder(), func() { s.snapshots.Drop(0) }}
	s.ServeHTTP(w, httptest.NewRequest("GET", in.index.Pages[0], nil))
	if got := strings.Count(w.Body.String(), body); got != 7 {
		t.Errorf("got %d entities", got)
	}
}

// A snapshot and the feed behind it are divided by time. If time runs back by more than a
// page can correct, a warning is logged.
func TestSnapshotOfATopicWhoseTimesRunBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		seconds []int
		want    string // in the log; empty if there is to be no warning
	}{
		"they do not":                 {[]int{1, 2, 3, 4, 5, 6, 7, 8, 9}, ""},
		"by less than a page":         {[]int{1, 5, 2, 6, 7, 4, 8, 9}, ""},
		"by more than a page":         {[]int{1, 90, 2, 3, 4, 5, 6, 7, 8, 91}, "messages=3"},
		"and there are too many keys": {[]int{1, 90, 2, 3, 4, 5, 6, 7, 8, 91, 92, 93, 94, 95}, "messages=3"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := newTopic()
			for i, at := range test.seconds {
				topic.add(messageOf(fmt.Sprint(i), feed.Put, later(at), "x"))
			}
			s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Key, c.Keys = nil, 4 }))
			must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
			log := s.log.String()
			if strings.Contains(log, "LogAppendTime") != (test.want != "") || !strings.Contains(log, test.want) {
				t.Errorf("logged %s, want %q", log, test.want)
			}
		})
	}
}

// Those who write to the topic may know how boundaries are made.
func TestSnapshotBoundaries(t *testing.T) {
	t.Parallel()
	guess := pageBoundary(pageID{}, nil)
	for range 3 {
		topic := newTopic()
		bodies := []string{"a", guess, "--" + guess + "\r\n\r\n", "\r\n--" + guess + "--", "in the last second"}
		for i, body := range bodies {
			topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i), body, feed.Field{Name: "X", Value: guess}))
		}
		s := serveTopic(t, topic, sized(10), withSnapshots(func(c *Snapshot) { c.Key = nil }))
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		if got, want := fmt.Sprintf("%q", s.load(t).pages), fmt.Sprintf("%q", [][]string{bodies[:4]}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		guess = readOnly(s).Boundary
	}
}
