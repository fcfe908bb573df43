package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

func TestRetrier(t *testing.T) {
	t.Parallel()
	away := errors.New("the feed is away")
	busy := feed.RetryAfter(errors.New("the feed is busy"), 7*time.Second)
	for _, tt := range []struct {
		name  string
		limit time.Duration
		begun bool
		err   error
		waits []time.Duration // in milliseconds
	}{
		{"a permanent error", time.Hour, true, feed.Permanent(away), nil},
		{"no topic", time.Hour, true, feed.ErrNoTopic, nil},
		{"no patience", 0, true, away, nil},
		{"a wrong address", time.Hour, false, away, []time.Duration{500, 1000, 2000}},
		{"an outage", time.Minute, true, away, []time.Duration{500, 1000, 2000, 4000, 8000, 15000, 15000}},
		{"it says when to come back", 10 * time.Second, true, busy, []time.Duration{7000}},
		{"it says that too late", 5 * time.Second, true, busy, nil},
	} {
		parallel.RunVirtual(t, tt.name, func(t *testing.T) {
			r := retrier{limit: tt.limit, log: slog.New(slog.DiscardHandler), begun: tt.begun}
			// Earlier errors do not count.
			for range 2 {
				var waits []time.Duration
				for at := time.Now(); r.waitForRetry(t.Context(), tt.err); at = time.Now() {
					waits = append(waits, time.Since(at)/time.Millisecond)
				}
				if !slices.Equal(waits, tt.waits) {
					t.Errorf("waits %d, want %d", waits, tt.waits)
				}
				r.succeeded()
				r.begun = tt.begun
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if at := time.Now(); r.waitForRetry(ctx, tt.err) || time.Since(at) > time.Millisecond {
				t.Errorf("it goes on %v after the end", time.Since(at))
			}
		})
	}
}

// A comparison is not over because one answer did not come, and compares nothing
// twice that it has seen before.
func TestVerifyGoesOn(t *testing.T) {
	const n, retried = 60, "cannot continue reading; trying again"
	ours, theirs := samplefeed.New(samplefeed.Options{Entity: samplefeed.Sized(100), PageSize: 5}), samplefeed.New(samplefeed.Options{Entity: samplefeed.Sized(100), PageSize: 7})
	ours.SetLen(n)
	theirs.SetLen(n)
	// Requests ahead of the page's turn fail, too, so what counts is the number of errors that were reported.
	var errs logbuffer.Buffer
	faults := &httpfault.Faults{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/feed/pages/3" && r.Method == http.MethodGet && strings.Count(errs.String(), retried) < 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ours.ServeHTTP(w, r)
	})}
	first, second := httptest.NewServer(faults), httptest.NewServer(theirs)
	t.Cleanup(first.Close)
	t.Cleanup(second.Close)
	faults.Add(http.MethodGet, "/feed/pages/7", httpfault.Cut(700))

	verify := func(more ...string) (comparison, int, string) {
		t.Helper()
		var out bytes.Buffer
		code := runProgram(append([]string{"verify", "--json", "--feed", "first", "--feed", "second"}, more...), []string{
			"FEEDBRIDGE_BUSES_HERE_EMBEDDED_LISTEN=127.0.0.1:0",
			"FEEDBRIDGE_FEEDS_FIRST_URL=" + first.URL + "/feed/latest", "FEEDBRIDGE_FEEDS_SECOND_URL=" + second.URL + "/feed/latest",
		}, nil, &out, &errs)
		var r comparison
		must.Succeed(t, json.Unmarshal(out.Bytes(), &r))
		return r, code, errs.Take()
	}
	r, code, told := verify()
	if code != 0 || r.First != n || r.Equal != n || !r.Complete || faults.Left() > 0 {
		t.Errorf("exit code %d, %+v, and %d faults are left\n%s", code, r, faults.Left(), told)
	}
	// Page 3 fails twice. The entities of page 7 before its break count, so that is no failure.
	if strings.Count(told, retried) != 2 {
		t.Errorf("it says\n%s", told)
	}
	if r, code, told = verify("--retry-for", "0s"); code != 1 || r.Complete || !strings.Contains(r.Error, "503") {
		t.Errorf("exit code %d, %+v\n%s", code, r, told)
	}
}

// flaky is a topic that fails at some positions, each time it gets there.
type flaky struct {
	records
	fails map[uint64]int
}

func (f *flaky) Span(ctx context.Context) (feed.Span, error) {
	if f.fails[0] > 0 {
		f.fails[0]--
		return feed.Span{}, errors.New("no answer")
	}
	return f.records.Span(ctx)
}

func (f *flaky) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		for r, err := range f.records.Read(ctx, from, to) {
			if f.fails[r.Position] > 0 {
				f.fails[r.Position]--
				r, err = feed.Record{}, errors.New("connection lost")
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

func TestTopicIsReadOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		topic flaky
		want  string // the positions, and the error
	}{
		{"it fails in the middle, and again", flaky{fails: map[uint64]int{5: 1, 7: 3}}, "5 6 7 8 "},
		{"it cannot be looked at", flaky{fails: map[uint64]int{0: 2}}, "5 6 7 8 "},
		{"it fails for too long", flaky{fails: map[uint64]int{7: 100}}, "5 6 connection lost"},
	} {
		parallel.RunVirtual(t, tt.name, func(t *testing.T) {
			tt.topic.headers = make([]feed.Header, 4)
			topic := (&verification{retryFor: time.Minute}).retryLog(&tt.topic, slog.New(slog.DiscardHandler))
			entities, err := (&verification{}).topicEntities(t.Context(), topic, new(int))
			must.Succeed(t, err)
			got := ""
			for e, err := range entities {
				if err != nil {
					got += strings.TrimPrefix(err.Error(), "the topic: ")
					break
				}
				got += strings.TrimPrefix(e.ID, "position ") + " "
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
