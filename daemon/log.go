package daemon

import (
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"strings"

	"github.com/feedbridge/feedbridge/config"
)

// NewLog returns a logger that writes to w, in the configured format: text if w is shown on
// a terminal and JSON elsewhere, if the configuration leaves it open. The level can be changed
// while it is used. clip is called for each value that may come from outside. It returns the
// text as one line of printable characters without the secrets of URLs, and of at most that
// many characters.
func NewLog(w io.Writer, cfg config.Log, terminal bool, clip func(text string, most int) string) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(cfg.Level)) // the configuration was checked
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readable(clip)}
	if IsText(cfg, terminal) {
		return slog.New(slog.NewTextHandler(w, opts)), level
	}
	return slog.New(slog.NewJSONHandler(w, opts)), level
}

// IsText reports whether the log is text and not JSON. terminal is whether it is shown on one.
func IsText(cfg config.Log, terminal bool) bool {
	return cfg.Format == "text" || cfg.Format != "json" && terminal
}

// CaptureStandardLog passes the lines that libraries write to the standard logger to log, as
// Go's HTTP client does.
func CaptureStandardLog(log *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetPrefix("")
	stdlog.SetOutput(standardLog{log})
}

// standardLog is the output of the standard logger, which writes a line at a time.
type standardLog struct{ log *slog.Logger }

func (l standardLog) Write(line []byte) (int, error) {
	l.log.Warn("a library reports", "text", strings.TrimRight(string(line), "\n"))
	return len(line), nil
}

// longestLogged is the most characters of a value in the log.
const longestLogged = 1000

// readable returns a function that returns an attribute as it is logged. Durations are
// written as 1m30s, which JSON would have as nanoseconds. All text may come from outside.
func readable(clip func(text string, most int) string) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, attr slog.Attr) slog.Attr {
		attr.Value = readableValue(attr, clip)
		return attr
	}
}

func readableValue(attr slog.Attr, clip func(text string, most int) string) slog.Value {
	switch attr.Value.Kind() {
	case slog.KindDuration:
		return slog.StringValue(attr.Value.Duration().String())
	case slog.KindString:
		if attr.Key != "stack" {
			return slog.StringValue(clip(attr.Value.String(), longestLogged))
		}
	case slog.KindAny:
		switch v := attr.Value.Any().(type) {
		case error:
			return slog.StringValue(clip(v.Error(), longestLogged))
		case []string:
			clipped := make([]string, len(v))
			for i, text := range v {
				clipped[i] = clip(text, longestLogged)
			}
			return slog.AnyValue(clipped)
		case fmt.Stringer:
			return slog.StringValue(clip(v.String(), longestLogged))
		}
	}
	return attr.Value
}
