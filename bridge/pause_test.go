package bridge_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// growing is a feed that has one entity more each second.
func growing(begin time.Time) sourceFunc {
	return func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
		return upTo(int(time.Since(begin)/time.Second))(ctx, after)
	}
}

// setPaused pauses or resumes the feed as a command does, with a sink of its own.
func setPaused(t *testing.T, topic *sinktest.Memory, pause bool) {
	t.Helper()
	r, err := bridge.SetPaused(t.Context(), topic.Open(sinktest.Faults{}), "numbers", "person", pause)
	if err != nil || !r.Changed || r.Checkpoint.IsPaused() != pause {
		t.Fatalf("SetPaused: %+v, %v", r, err)
	}
}

// wantExact checks that the topic has the first entities of the feed, each once.
func wantExact(t *testing.T, topic *sinktest.Memory) {
	t.Helper()
	for i, e := range topic.Entities() {
		if e.ID != strconv.Itoa(i) {
			t.Fatalf("entity %d is %s", i, e.ID)
		}
	}
	if err := topic.Err(); err != nil {
		t.Error(err)
	}
}

func wantEntities(t *testing.T, topic *sinktest.Memory, want int) {
	t.Helper()
	if n := len(topic.Entities()); n != want {
		t.Errorf("the topic has %d entities, want %d", n, want)
	}
}

func wantState(t *testing.T, name string, seen *diary, want bridge.State) {
	t.Helper()
	if s := seen.last(); s.State != want {
		t.Errorf("copy %s is %s, want %s", name, s.State, want)
	}
}

func TestPauseHoldsForAllCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		begin := time.Now()
		first, second := &diary{}, &diary{}
		a := newBridge(growing(begin), topic.Open(sinktest.Faults{}))
		b := newBridge(growing(begin), topic.Open(sinktest.Faults{}))
		a.Every, b.Every = time.Second, time.Second
		a.Observer, b.Observer = first, second
		stopA, stopB := start(t, a), start(t, b)
		time.Sleep(time.Minute)

		r, err := a.SetPaused(t.Context(), true)
		if errors.Is(err, checkpoint.ErrConflict) { // the other copy was busy
			r, err = a.SetPaused(t.Context(), true)
		}
		if err != nil || !r.Changed || !r.Checkpoint.IsPaused() {
			t.Fatalf("pause: %+v, %v", r, err)
		}
		paused := r.Checkpoint.Paused
		held := len(topic.Entities())
		time.Sleep(2 * time.Minute)
		wantState(t, "a", first, bridge.Paused)
		wantState(t, "b", second, bridge.Paused)
		if r, err := b.SetPaused(t.Context(), true); err != nil || r.Changed || !r.Checkpoint.Paused.Equal(paused) {
			t.Errorf("a second pause: %+v, %v; want that it is paused since %v", r, err, paused)
		}

		stopA() // a restart
		a = newBridge(growing(begin), topic.Open(sinktest.Faults{}))
		third := &diary{}
		a.Observer = third
		stopA = start(t, a)
		time.Sleep(time.Minute)
		wantState(t, "a", third, bridge.Paused)
		if third.count(bridge.Reading) > 0 {
			t.Error("a copy that starts while the feed is paused reads it")
		}
		if got := len(topic.Entities()); got != held {
			t.Errorf("%d entities were published while the feed was paused", got-held)
		}

		// The other copy resumes it.
		r, err = b.SetPaused(t.Context(), false)
		if err != nil || !r.Changed || r.Checkpoint.IsPaused() {
			t.Errorf("resume: %+v, %v", r, err)
		}
		time.Sleep(2 * time.Minute)
		if behind := int(time.Since(begin)/time.Second) - len(topic.Entities()); behind > 60 {
			t.Errorf("the topic is %d entities behind after the feed was resumed", behind)
		}
		if r, err := b.SetPaused(t.Context(), false); err != nil || r.Changed {
			t.Errorf("a second resume: %+v, %v", r, err)
		}
		stopA()
		stopB()
		wantExact(t, &topic)
		if topic.Checkpoint().IsPaused() {
			t.Error("a commit of entities has paused the feed")
		}
	})
}

// A copy looks at the checkpoint, however long it waits and for what.
func TestPauseOfAnotherCopyIsNoticed(t *testing.T) {
	for name, test := range map[string]struct {
		source sourceFunc
		state  bridge.State
	}{
		"idle for an hour": {upTo(5), bridge.Idle},
		"halted":           {failing(feed.Permanent(errors.New("broken"))), bridge.Halted},
		"retrying":         {failing(feed.RetryAfter(errors.New("come back later"), time.Hour)), bridge.Retrying},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			seen, src := &diary{}, &releasable{sourceFunc: test.source}
			b := newBridge(src, topic.Open(sinktest.Faults{}))
			b.Every, b.Observer = time.Hour, seen
			stop := start(t, b)
			time.Sleep(20 * time.Minute)
			wantState(t, "", seen, test.state)
			setPaused(t, &topic, true)
			time.Sleep(time.Minute)
			wantState(t, "", seen, bridge.Paused)
			if src.released.Load() == 0 {
				t.Error("the source was not released")
			}
			if until := seen.last().Until; !until.IsZero() {
				t.Errorf("the next attempt of a paused feed is at %v", until)
			}
			setPaused(t, &topic, false)
			time.Sleep(time.Minute)
			wantState(t, "", seen, test.state)
			stop()
		}))
	}
}

// failing is a feed that always fails.
func failing(err error) sourceFunc {
	return func(context.Context, feed.Cursor) (feed.Batch, error) { return feed.Batch{}, err }
}

// releasable is a source that counts calls of Release.
type releasable struct {
	sourceFunc
	released atomic.Int64
}

func (r *releasable) Release() { r.released.Add(1) }

// The command of a running copy has its effect at once.
func TestPauseAndResumeAtOnce(t *testing.T) {
	for name, source := range map[string]sourceFunc{
		"idle for an hour": upTo(5),
		"halted":           failing(feed.Permanent(errors.New("broken"))),
		"in a request that takes minutes": func(ctx context.Context, _ feed.Cursor) (feed.Batch, error) {
			<-ctx.Done()
			return feed.Batch{}, ctx.Err()
		},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			seen := &diary{}
			b := newBridge(source, topic.Open(sinktest.Faults{}))
			b.Every, b.Observer = time.Hour, seen
			stop := start(t, b)
			time.Sleep(20 * time.Minute)
			before := time.Now()
			for _, pause := range []bool{true, false} {
				if r, err := b.SetPaused(t.Context(), pause); err != nil || !r.Changed {
					t.Errorf("%+v, %v", r, err)
				}
				synctest.Wait()
				if state := seen.last().State; (state == bridge.Paused) != pause {
					t.Errorf("after the command with %v the copy is %s", pause, state)
				}
			}
			if took := time.Since(before); took > 0 {
				t.Errorf("it took %v", took)
			}
			stop()
		}))
	}
}

// A copy that publishes all the time is paused by itself at the first attempt.
func TestPauseOfABusyCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		endless := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			time.Sleep(time.Millisecond)
			n := number(after)
			return feed.Batch{Entities: entities(n, n+1), Cursor: cursorAt(n + 1), More: true}, nil
		})
		b := newBridge(endless, &busySink{topic.Open(sinktest.Faults{})})
		stop := start(t, b)
		for range 20 {
			time.Sleep(time.Second + 37*time.Millisecond)
			for _, pause := range []bool{true, false} {
				held := len(topic.Entities())
				r, err := b.SetPaused(t.Context(), pause)
				if err != nil || !r.Changed {
					t.Fatalf("%+v, %v", r, err)
				}
				if pause {
					time.Sleep(time.Second)
					if got := len(topic.Entities()); uint64(got) != r.Checkpoint.Count || got < held {
						t.Errorf("the paused topic has %d entities, and its checkpoint counts %d", got, r.Checkpoint.Count)
					}
				}
			}
		}
		stop()
		if len(topic.Entities()) < 20 {
			t.Error("nothing was published in between")
		}
		wantExact(t, &topic)
	})
}

// busySink takes 20ms for each commit.
type busySink struct{ bridge.Sink }

func (s *busySink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	time.Sleep(20 * time.Millisecond)
	return s.Sink.Commit(ctx, entities, cp)
}

func TestPauseBeforeTheFirstEntity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		setPaused(t, &topic, true)
		if cp := topic.Checkpoint(); cp.Feed != "numbers" || cp.Source != checkpoint.UnknownSource || len(cp.Cursor) > 0 || cp.Count != 0 || cp.Writer != "person" {
			t.Errorf("checkpoint %+v", cp)
		}
		seen := &diary{}
		b := newBridge(upTo(3), topic.Open(sinktest.Faults{}))
		b.Observer = seen
		open, opened := b.Open, 0
		b.Open = func(ctx context.Context, kind string) (feed.Source, string, error) {
			if opened++; opened == 1 && kind != "" {
				t.Errorf("the kind is %q", kind)
			}
			return open(ctx, kind)
		}
		stop := start(t, b)
		time.Sleep(time.Hour)
		wantState(t, "", seen, bridge.Paused)
		if opened > 0 || len(topic.Entities()) > 0 {
			t.Errorf("the source was opened %d times, and %d entities published", opened, len(topic.Entities()))
		}
		setPaused(t, &topic, false)
		time.Sleep(time.Minute)
		stop()
		wantEntities(t, &topic, 3)
		if cp := topic.Checkpoint(); cp.Source != "test" {
			t.Errorf("checkpoint %+v", cp)
		}
		wantExact(t, &topic)
	})
}

// A pause never puts a checkpoint in the place of one that is lost or of another feed, or hides
// that messages are.
func TestPauseIsNoCure(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*sinktest.Memory)
		feed  string
		want  error
	}{
		"a lost checkpoint": {(*sinktest.Memory).LoseCheckpoint, "numbers", checkpoint.ErrMissing},
		"lost messages":     {func(m *sinktest.Memory) { m.LoseMessages(2) }, "numbers", feed.ErrPermanent},
		"another feed":      {func(*sinktest.Memory) {}, "letters", checkpoint.ErrForeign},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			b := newBridge(upTo(5), topic.Open(sinktest.Faults{}))
			stop := start(t, b)
			time.Sleep(time.Minute)
			stop()
			test.spoil(&topic)
			before := topic.Checkpoint()
			if r, err := bridge.SetPaused(t.Context(), topic.Open(sinktest.Faults{}), test.feed, "person", true); !errors.Is(err, test.want) || r.Changed {
				t.Errorf("%+v, %v", r, err)
			}
			b = newBridge(upTo(5), topic.Open(sinktest.Faults{}))
			b.Feed = test.feed
			stop = start(t, b)
			if r, err := b.SetPaused(t.Context(), true); !errors.Is(err, test.want) || r.Changed {
				t.Errorf("through a bridge: %+v, %v", r, err)
			}
			stop()
			if after := topic.Checkpoint(); string(checkpoint.Encode(after)) != string(checkpoint.Encode(before)) {
				t.Errorf("checkpoint %+v, before %+v", after, before)
			}
		}))
	}
}

// A paused checkpoint of another feed does not hide that the topic is not this feed's.
func TestPausedTopicOfAnotherFeedHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		setPaused(t, &topic, true)
		seen := &diary{}
		b := newBridge(upTo(5), topic.Open(sinktest.Faults{}))
		b.Feed, b.Observer = "letters", seen
		stop := start(t, b)
		time.Sleep(time.Minute)
		stop()
		if seen.count(bridge.Halted) == 0 || seen.count(bridge.Paused) > 0 {
			t.Errorf("states: %+v", seen.states)
		}
	})
}

func TestPoll(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		fail  error
		want  bridge.State
		count int
	}{
		"an idle feed":    {nil, bridge.Idle, 3},
		"a halted feed":   {feed.Permanent(broken), bridge.Halted, 0},
		"a retrying feed": {feed.RetryAfter(broken, time.Hour), bridge.Retrying, 0},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			var length atomic.Int64
			length.Store(5)
			b := newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
				if number(after) == 5 && test.fail != nil {
					return feed.Batch{}, test.fail
				}
				return upTo(int(length.Load()))(ctx, after)
			}), topic.Open(sinktest.Faults{}))
			b.Every = 30 * time.Minute
			stop := start(t, b)
			time.Sleep(20 * time.Minute)
			before := time.Now()
			length.Store(8)
			r, err := b.Poll(t.Context())
			if err != nil || r.Status.State != test.want || r.Published != test.count || !errors.Is(r.Status.Err, test.fail) {
				t.Errorf("%+v, %v", r, err)
			}
			if took := time.Since(before); took > 0 {
				t.Errorf("it took %v", took)
			}
			stop()
			if _, err := b.Poll(t.Context()); !errors.Is(err, bridge.ErrStopped) {
				t.Errorf("after the end: %v", err)
			}
			wantExact(t, &topic)
		}))
	}
}

func TestPollOfAPausedFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		setPaused(t, &topic, true)
		b := newBridge(upTo(5), topic.Open(sinktest.Faults{}))
		stop := start(t, b)
		time.Sleep(time.Minute)
		if r, err := b.Poll(t.Context()); err != nil || r.Status.State != bridge.Paused || r.Published != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		stop()
		if n := len(topic.Entities()); n > 0 {
			t.Errorf("%d entities of a paused feed were published", n)
		}
	})
}

// However often a feed is polled, each poll ends, and all are answered.
func TestPollsByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		calls := 0
		b := newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			calls++
			select {
			case <-time.After(time.Second): // longer than the interval of the polls below
			case <-ctx.Done():
				return feed.Batch{}, ctx.Err()
			}
			return upTo(5)(ctx, after)
		}), topic.Open(sinktest.Faults{}))
		stop := start(t, b)
		before := time.Now()
		var polls sync.WaitGroup
		for n := range 50 {
			polls.Go(func() {
				time.Sleep(time.Duration(n) * 10 * time.Millisecond)
				if r, err := b.Poll(t.Context()); err != nil || r.Status.State != bridge.Idle {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		polls.Wait()
		if took := time.Since(before); took > 15*time.Second {
			t.Errorf("the last result came after %v", took)
		}
		stop()
		wantEntities(t, &topic, 5)
		if calls > 15 {
			t.Errorf("the source was called %d times", calls)
		}
		wantExact(t, &topic)
	})
}

// Nobody waits for ever for a bus that is down, or for a feed that stops.
func TestCommandsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		down := errors.New("the bus is down")
		b := newBridge(upTo(5), topic.Open(sinktest.Faults{Resume: func() error { return down }}))
		stop := start(t, b)
		time.Sleep(20 * time.Minute)
		if _, err := b.SetPaused(t.Context(), true); !errors.Is(err, down) {
			t.Errorf("pause: %v", err)
		}
		if r, err := b.Poll(t.Context()); err != nil || !errors.Is(r.Status.Err, down) {
			t.Errorf("poll: %+v, %v", r, err)
		}
		stop()

		silent := sourceFunc(func(ctx context.Context, _ feed.Cursor) (feed.Batch, error) {
			<-ctx.Done()
			return feed.Batch{}, ctx.Err()
		})
		stuck := newBridge(silent, topic.Open(sinktest.Faults{}))
		stop = start(t, stuck)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := stuck.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a poll that takes too long: %v", err)
		}
		stop()

		// One that is going on, and one that waits for its end.
		stuck = newBridge(silent, topic.Open(sinktest.Faults{}))
		stop = start(t, stuck)
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := stuck.Poll(t.Context())
				ended <- err
			}()
			synctest.Wait()
		}
		stop()
		for range 2 {
			if err := <-ended; !errors.Is(err, bridge.ErrStopped) {
				t.Errorf("a poll of a feed that stops: %v", err)
			}
		}
	})
}

// A stop, or another command, lets the commit of a pause finish.
func TestCommitOfAPauseIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		sink := &slowSink{topic.Open(sinktest.Faults{}), make(chan struct{}, 1), 10 * time.Second}
		b := newBridge(upTo(5), sink)
		stop := start(t, b)
		time.Sleep(time.Minute)
		<-sink.begun // of the entities
		result := make(chan error, 1)
		go func() {
			r, err := b.SetPaused(t.Context(), true)
			if err == nil && !r.Changed {
				err = errors.New("unchanged")
			}
			result <- err
		}()
		<-sink.begun
		stop()
		if err := <-result; err != nil || !topic.Checkpoint().IsPaused() {
			t.Errorf("%v, checkpoint %+v", err, topic.Checkpoint())
		}
	})
}

// The bus stores a pause, or does not, and its answer is lost. The error says where to look.
func TestPauseWithoutAnAnswer(t *testing.T) {
	for name, kind := range map[string]sinktest.Kind{"it is stored": sinktest.FailAfter, "it is not stored": sinktest.FailBefore} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			fails := sinktest.Faults{Commit: func() sinktest.Fault { return sinktest.Fault{Kind: kind} }}
			const hint = "; it is not known whether this was stored: look with 'feedbridge status numbers'"
			_, err := bridge.SetPaused(t.Context(), topic.Open(fails), "numbers", "person", true)
			if err == nil || !strings.HasSuffix(err.Error(), hint) || !errors.Is(err, sinktest.ErrFault) {
				t.Errorf("got %v", err)
			}
			if paused := topic.Checkpoint().IsPaused(); paused != (kind == sinktest.FailAfter) {
				t.Errorf("the feed is paused: %v", paused)
			}
		}))
	}
}

// A copy that loses its commit to a pause shows the pause at once, and not that another copy publishes.
func TestCommitThatLosesToAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		begin := time.Now()
		var once sync.Once
		paused := make(chan struct{})
		source := sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			if time.Since(begin) > 5*time.Minute {
				once.Do(func() {
					setPaused(t, &topic, true)
					close(paused)
				})
			}
			return growing(begin)(ctx, after)
		})
		seen := &diary{}
		b := newBridge(source, topic.Open(sinktest.Faults{}))
		b.Every, b.Observer = time.Minute, seen
		stop := start(t, b)
		<-paused
		time.Sleep(5 * time.Second)
		wantState(t, "a", seen, bridge.Paused)
		stop()
		wantExact(t, &topic)
	})
}
