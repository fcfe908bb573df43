package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// repeatTime is how long a line of a library is not logged again.
	repeatTime = 10 * time.Minute
	// mostLines bounds the memory for lines.
	mostLines = 1000
)

// repeatFilter is a handler for the log of a bus, to which client libraries write: with hundreds
// of feeds, the same line hundreds of times. Of warnings and errors that differ only in numbers
// it passes one on in repeatTime. The next one has the number of those that were left out.
type repeatFilter struct {
	slog.Handler
	attrs string // of the logger
	lines *lines
}

// lines are those that were logged lately.
type lines struct {
	mu   sync.Mutex // guards seen
	seen map[string]*line
}

type line struct {
	at      time.Time // when it was logged
	repeats int       // since then
}

func newRepeatFilter(next slog.Handler) *repeatFilter {
	return &repeatFilter{Handler: next, lines: &lines{seen: map[string]*line{}}}
}

// Handle implements [slog.Handler].
func (f *repeatFilter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return f.Handler.Handle(ctx, r)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%v %s %s", r.Level, f.attrs, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&text, " %s", a)
		return true
	})
	isNew, repeats := f.lines.record(digits.ReplaceAllString(text.String(), "0"), r.Time)
	if !isNew {
		return nil
	}
	if repeats > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", repeats))
	}
	return f.Handler.Handle(ctx, r)
}

// record reports whether a line is to be logged at a time, and how often it was left out before.
func (l *lines) record(text string, at time.Time) (isNew bool, repeats int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.seen[text]
	if before != nil && at.Sub(before.at) < repeatTime {
		before.repeats++
		return false, 0
	}
	if len(l.seen) >= mostLines {
		clear(l.seen)
	}
	l.seen[text] = &line{at: at}
	if before != nil {
		repeats = before.repeats
	}
	return true, repeats
}

// WithAttrs implements [slog.Handler].
func (f *repeatFilter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeatFilter{f.Handler.WithAttrs(attrs), f.attrs + fmt.Sprint(attrs), f.lines}
}

// WithGroup implements [slog.Handler].
func (f *repeatFilter) WithGroup(name string) slog.Handler {
	return &repeatFilter{f.Handler.WithGroup(name), f.attrs + name, f.lines}
}
