package daemon

import (
	"fmt"
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
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: a.readable}
	if cfg.Format == "text" || cfg.Format != "json" && isTerminal(a.err) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// longestLogged is how many characters a value has in the log.
const longestLogged = 1000

// readable returns an attribute as it is logged. Durations are written as 1m30s,
// which JSON would have as nanoseconds. All text may come from outside, so it is
// one line of printable characters, of bounded length and without the secrets of
// URLs.
func (a *app) readable(_ []string, attr slog.Attr) slog.Attr {
	switch attr.Value.Kind() {
	case slog.KindDuration:
		attr.Value = slog.StringValue(attr.Value.Duration().String())
	case slog.KindString:
		if attr.Key != "stack" {
			attr.Value = slog.StringValue(a.redact.Clip(attr.Value.String(), longestLogged))
		}
	case slog.KindAny:
		switch v := attr.Value.Any().(type) {
		case error:
			attr.Value = slog.StringValue(a.redact.Clip(v.Error(), longestLogged))
		case []string:
			clipped := make([]string, len(v))
			for i, text := range v {
				clipped[i] = a.redact.Clip(text, longestLogged)
			}
			attr.Value = slog.AnyValue(clipped)
		case fmt.Stringer:
			attr.Value = slog.StringValue(a.redact.Clip(v.String(), longestLogged))
		}
	}
	return attr
}

// isTerminal says whether a person may be looking at what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
