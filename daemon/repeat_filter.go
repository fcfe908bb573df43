package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/feedbridge/feedbridge/internal/logonce"
)

// repeatFilter is a handler for the log of a bus, to which client libraries write: with hundreds
// of feeds, the same line hundreds of times. Of warnings and errors that differ only in numbers
// it passes one on in [logonce.Reminder]. The next one has the number of those that were left out.
type repeatFilter struct {
	slog.Handler
	attrs string // of the logger
	lines *logonce.Causes
}

func newRepeatFilter(next slog.Handler) *repeatFilter {
	return &repeatFilter{Handler: next, lines: &logonce.Causes{}}
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
	isNew, repeats := f.lines.Add(text.String())
	if !isNew {
		return nil
	}
	if repeats > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", repeats))
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (f *repeatFilter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeatFilter{f.Handler.WithAttrs(attrs), f.attrs + fmt.Sprint(attrs), f.lines}
}

// WithGroup implements [slog.Handler].
func (f *repeatFilter) WithGroup(name string) slog.Handler {
	return &repeatFilter{f.Handler.WithGroup(name), f.attrs + name, f.lines}
}
