package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"

	"github.com/feedbridge/feedbridge/config"
)

// newLog returns a log that goes to standard error by way of w: text on a
// terminal and JSON elsewhere, unless the configuration says otherwise.
func (a *app) newLog(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // the configuration was checked
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if cfg.Format == "text" || cfg.Format != "json" && isTerminal(a.err) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// readable writes durations as 1m30s: JSON would have them as nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// isTerminal says whether a person may be looking at what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
