package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"

	"github.com/feedbridge/feedbridge/config"
)

// newLog returns the program's log: text on a terminal and JSON elsewhere,
// unless the configuration says otherwise.
func newLog(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // the configuration was checked
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "text" || cfg.Format != "json" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// isTerminal says whether a person may be looking at what is written to w.
func isTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}
