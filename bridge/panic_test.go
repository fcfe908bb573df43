package bridge_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// panickingSink panics in the configured method, left times.
type panickingSink struct {
	bridge.Sink
	resumes, commits int
}

func (s *panickingSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	if s.resumes > 0 {
		s.resumes--
		panic("resume is broken")
	}
	return s.Sink.Resume(ctx)
}

func (s *panickingSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	if s.commits > 0 {
		s.commits--
		panic("commit is broken")
	}
	return s.Sink.Commit(ctx, entities, cp)
}

// A panic halts the feed that it happens in. The others go on, and so does this one
// once it is over.
func TestAPanicHaltsOneFeed(t *testing.T) {
	for name, fail := range map[string]func(b *bridge.Bridge){
		"of the source": func(b *bridge.Bridge) {
			open, left := b.Open, 2
			b.Open = func(ctx context.Context, kind string) (feed.Source, string, error) {
				source, kind, err := open(ctx, kind)
				return sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
					if left > 0 && number(after) == 1 {
						left--
						panic("next is broken")
					}
					return source.Next(ctx, after, feed.Limits{})
				}), kind, err
			}
		},
		"of opening the source": func(b *bridge.Bridge) {
			open, left := b.Open, 2
			b.Open = func(ctx context.Context, kind string) (feed.Source, string, error) {
				if left > 0 {
					left--
					panic("open is broken")
				}
				return open(ctx, kind)
			}
		},
		"of Resume": func(b *bridge.Bridge) { b.Sink = &panickingSink{b.Sink, 2, 0} },
		"of Commit": func(b *bridge.Bridge) { b.Sink = &panickingSink{b.Sink, 0, 2} },
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic, other sinktest.Memory
			var log logbuffer.Buffer
			seen := &diary{}
			b := newBridge(upTo(3), topic.Open(sinktest.Faults{}))
			b.Observer, b.Log = seen, slog.New(slog.NewTextHandler(&log, nil))
			fail(b)
			stop := start(t, b)
			stopOther := start(t, newBridge(upTo(3), other.Open(sinktest.Faults{})))
			time.Sleep(5 * time.Second)
			halted := seen.last()
			wantEntities(t, &other, 3)
			time.Sleep(5 * time.Minute)
			stop()
			stopOther()
			var p *bridge.PanicError
			if halted.State != bridge.Halted || !errors.As(halted.Err, &p) || !errors.Is(halted.Err, feed.ErrPermanent) || !strings.Contains(halted.Err.Error(), "is broken; this is a bug") {
				t.Errorf("the bridge is %s: %v", halted.State, halted.Err)
			}
			if n := seen.count(bridge.Halted); n != 2 {
				t.Errorf("it has halted %d times", n)
			}
			if text := log.String(); strings.Count(text, "panic_test.go") < 2 || strings.Count(text, "the feed is halted") != 2 {
				t.Errorf("the log is %s", text)
			}
			wantEntities(t, &topic, 3)
		}))
	}
}
