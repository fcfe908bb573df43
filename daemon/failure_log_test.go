package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/logonce"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// brokenSink is the sink of a bus that can be down.
type brokenSink struct {
	topic string
	down  *atomic.Bool
}

func (s brokenSink) Resume(context.Context) (checkpoint.Checkpoint, error) {
	if s.down.Load() {
		return checkpoint.Checkpoint{}, fmt.Errorf("resume: topic %q: no answer within %v", s.topic, time.Since(time.Time{}))
	}
	return checkpoint.Checkpoint{}, nil
}

func (s brokenSink) Commit(context.Context, []feed.Entity, checkpoint.Checkpoint) error {
	return nil
}

// emptySource is a feed without entities.
type emptySource struct{}

func (emptySource) Release() {}

func (emptySource) Next(_ context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	return feed.Batch{Cursor: after}, nil
}

// logged returns what was logged in the bubble since the last call, a map for each line.
func logged(t *testing.T, b *logText) (all []map[string]any) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		m := map[string]any{}
		must.Succeed(t, json.Unmarshal([]byte(line), &m))
		all = append(all, m)
	}
	b.text.Reset()
	return all
}

// logText is a log that several goroutines write.
type logText struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func newTestLog(b *logText) *slog.Logger {
	log, _ := NewLog(b, config.Log{Level: "info"}, false, func(text string, _ int) string { return text })
	return log
}

func wantLine(t *testing.T, got map[string]any, want string) {
	t.Helper()
	delete(got, "time")
	text, err := json.Marshal(got)
	if err != nil || string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// 300 feeds whose bus went down wrote 2,100 lines in 75 seconds.
func TestBusThatIsDownIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b logText
		log := newTestLog(&b)
		failures := newFailureLog(log)
		var down atomic.Bool
		down.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i := range 300 {
			name := fmt.Sprintf("feed-%03d", i)
			cfg := config.Feed{To: config.To{Bus: "main", Topic: fmt.Sprintf("shop.orders-%c", 'a'+i%26)}}
			copied := &bridge.Bridge{
				Feed: name, Every: 10 * time.Second, Log: log, Sink: brokenSink{cfg.To.Topic, &down},
				Open:     func(context.Context, string) (feed.Source, string, error) { return emptySource{}, "x", nil },
				Observer: failures.newObserver(name, cfg),
			}
			running.Add(1)
			copied.Start(ctx, running.Done)
			if i == 0 {
				synctest.Wait() // so that it is the first
			}
		}
		time.Sleep(4 * time.Second)
		lines := logged(t, &b)
		if len(lines) != 1 {
			t.Fatalf("%d lines at first", len(lines))
		}
		if lines[0]["feed"] != "feed-000" || lines[0]["bus"] != "main" || lines[0]["attempt"] != 1.0 || lines[0]["msg"] != "feed retrying" || lines[0]["level"] != "WARN" {
			t.Errorf("got %v", lines[0])
		}
		time.Sleep(71 * time.Second)
		lines = logged(t, &b)
		if len(lines) != 1 {
			t.Fatalf("%d lines in 75 seconds", len(lines))
		}
		delete(lines[0], "error")
		wantLine(t, lines[0], `{"bus":"main","feeds":300,"for":"5s","level":"WARN","msg":"feeds retrying after the same error","names":"feed-000, feed-001, feed-002, feed-003, feed-004, feed-005, feed-006, feed-007, feed-008, feed-009"}`)
		time.Sleep(time.Hour)
		if lines := logged(t, &b); len(lines) != 6 {
			t.Errorf("%d lines in the next hour", len(lines))
		}
		down.Store(false)
		time.Sleep(2 * time.Minute)
		lines = logged(t, &b)
		if len(lines) != 2 || lines[0]["msg"] != "feed works again" {
			t.Fatalf("when it is over: %v", lines)
		}
		if lines = lines[1:]; lines[0]["msg"] != "all feeds that had the error work again" || lines[0]["feeds"] != 300.0 || lines[0]["bus"] != "main" || lines[0]["level"] != "INFO" {
			t.Errorf("got %v", lines[0])
		}
		cancel()
		running.Wait()
		if len(failures.causes)+len(failures.feeds) != 0 {
			t.Errorf("%d causes and %d feeds remain", len(failures.causes), len(failures.feeds))
		}
	})
}

func TestFailuresWithOtherCausesAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b logText
		failures := newFailureLog(newTestLog(&b))
		observer := func(name string) bridge.Observer {
			return failures.newObserver(name, config.Feed{To: config.To{Bus: "main", Topic: name}})
		}
		orders, parcels := observer("orders"), observer("parcels")
		fail := func(o bridge.Observer, state bridge.State, text string) {
			o.Entered(bridge.Status{State: state, Err: errors.New(text), Attempt: 1, Until: time.Now().Add(time.Second)})
		}
		for _, c := range []struct {
			situation string
			do        func()
			lines     int
		}{
			{"a first error", func() { fail(orders, bridge.Retrying, "GET http://x/orders/7: 503") }, 1},
			{"the same again", func() { fail(orders, bridge.Retrying, "GET http://x/orders/8: 503") }, 0},
			{"the same of another feed", func() { fail(parcels, bridge.Retrying, "GET http://x/parcels/1: 503") }, 0},
			{"another server", func() { fail(parcels, bridge.Retrying, "GET http://y/parcels/1: 503") }, 1},
			{"an error that was there before", func() { fail(parcels, bridge.Retrying, "GET http://x/parcels/1: 503") }, 0},
			{"and again", func() { fail(parcels, bridge.Retrying, "GET http://y/parcels/1: 503") }, 0},
			{"a person has to act", func() { fail(orders, bridge.Halted, "GET http://x/orders/7: 503") }, 1},
			{"one of them works", func() { orders.Entered(bridge.Status{State: bridge.Reading}) }, 1},
			{"it goes on to work", func() { orders.Entered(bridge.Status{State: bridge.Idle}) }, 0},
			{"the other one is stopped", func() { parcels.Entered(bridge.Status{State: bridge.Stopped}) }, 0},
			{"the first error is back", func() { fail(orders, bridge.Retrying, "GET http://x/orders/7: 503") }, 1},
			{"it is paused", func() { orders.Entered(bridge.Status{State: bridge.Paused}) }, 0},
			{"it stays paused", func() { time.Sleep(time.Hour) }, 0},
			{"it is resumed, and the error is back", func() { fail(orders, bridge.Retrying, "GET http://x/orders/7: 503") }, 1},
			{"nothing else is to come", func() { orders.Entered(bridge.Status{State: bridge.Stopped}); time.Sleep(time.Hour) }, 0},
		} {
			c.do()
			if lines := logged(t, &b); len(lines) != c.lines {
				t.Errorf("%s: %v", c.situation, lines)
			}
		}
	})
}

// The first feed of several that works again is logged with the time that it was away, and so is a feed that was alone.
func TestFeedsThatWorkAgainAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b logText
		failures := newFailureLog(newTestLog(&b))
		var observers []bridge.Observer
		for _, name := range []string{"orders", "parcels", "stock"} {
			o := failures.newObserver(name, config.Feed{To: config.To{Bus: "main", Topic: name}})
			o.Entered(bridge.Status{State: bridge.Retrying, Err: errors.New("GET http://x/: 503"), Attempt: 1, Until: time.Now().Add(time.Second)})
			observers = append(observers, o)
			time.Sleep(time.Second)
		}
		logged(t, &b)
		for i, want := range [][]string{
			{`{"after":"2s","error":"GET http://x/: 503","feed":"parcels","level":"INFO","msg":"feed works again","others":2}`},
			{},
			{`{"after":"3s","error":"GET http://x/: 503","feeds":3,"last":"orders","level":"INFO","msg":"all feeds that had the error work again"}`},
		} {
			observers[(i+1)%3].Entered(bridge.Status{State: bridge.Idle})
			lines := logged(t, &b)
			if len(lines) != len(want) {
				t.Fatalf("%d: %v", i, lines)
			}
			for n, line := range lines {
				wantLine(t, line, want[n])
			}
		}
		observers[0].Entered(bridge.Status{State: bridge.Halted, Err: errors.New("404"), Attempt: 1, Until: time.Now().Add(time.Second)})
		logged(t, &b)
		time.Sleep(time.Hour)
		logged(t, &b)
		observers[0].Entered(bridge.Status{State: bridge.Reading})
		wantLine(t, logged(t, &b)[0], `{"after":"1h0m0s","error":"404","feed":"orders","level":"INFO","msg":"feed works again"}`)
	})
}

// Causes are bounded, even if the text of an error is another one each time.
func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures := newFailureLog(slog.New(slog.DiscardHandler))
		o := failures.newObserver("orders", config.Feed{To: config.To{Bus: "main", Topic: "orders"}})
		for i := range 3 * mostCauses {
			o.Entered(bridge.Status{State: bridge.Retrying, Err: errors.New(strings.Repeat("x", i%7) + string(rune('a'+i%26)) + fmt.Sprintf("%c%c", 'a'+i/26%26, 'a'+i/676%26))})
		}
		if n := len(failures.causes); n > mostCauses {
			t.Errorf("%d causes", n)
		}
		o.Entered(bridge.Status{State: bridge.Stopped})
		if n := len(failures.causes); n != 0 {
			t.Errorf("%d causes remain", n)
		}
	})
}

func TestRepeatedLinesOfLibraries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b logText
		log := slog.New(newRepeatFilter(newTestLog(&b).Handler()))
		main, spare := log.With("bus", "main"), log.With("bus", "spare")
		for i := range 300 {
			main.Warn("kafka client: unable to open connection", "broker", i, "error", errors.New("refused"))
			main.Info("connected")
		}
		spare.Warn("kafka client: unable to open connection", "broker", 1, "error", errors.New("refused"))
		main.Warn("kafka client: unable to open connection", "broker", 1, "error", errors.New("timeout"))
		counts := map[string]int{}
		for _, line := range logged(t, &b) {
			counts[fmt.Sprint(line["bus"], " ", line["msg"], " ", line["error"])]++
		}
		for text, want := range map[string]int{
			"main kafka client: unable to open connection refused": 1, "main kafka client: unable to open connection timeout": 1,
			"spare kafka client: unable to open connection refused": 1, "main connected <nil>": 300,
		} {
			if counts[text] != want {
				t.Errorf("%s: %d lines, want %d", text, counts[text], want)
			}
		}
		time.Sleep(logonce.Reminder)
		main.Warn("kafka client: unable to open connection", "broker", 3, "error", errors.New("refused"))
		if lines := logged(t, &b); len(lines) != 1 || lines[0]["repeated"] != 299.0 {
			t.Errorf("got %v", lines)
		}
	})
}
