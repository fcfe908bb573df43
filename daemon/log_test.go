package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// A value of a feed that is long, moves the cursor of a terminal, and has secrets.
var hostile = "\x1b[2J\u009b2J https://me:w0rd@x.example/?ticket=s3cret&token=s3cret " + strings.Repeat("é", 500_000)

func TestLogIsSafe(t *testing.T) {
	t.Parallel()
	for _, format := range []config.LogFormat{"text", "json"} {
		var b bytes.Buffer
		redact := safetext.NewRedactor("ticket")
		log, _ := NewLog(&b, config.Log{Level: "info", Format: format}, false, redact.Clip)
		log = log.With("feed", hostile)
		log.Warn(hostile, "id", hostile, "error", fmt.Errorf("entity %q: %w", hostile, errors.New("raise the limit")), "limits", []string{hostile}, slog.Group("of", "page", hostile))
		text := b.String()
		if len(text) > 20_000 {
			t.Errorf("got %d bytes", len(text))
		}
		for _, bad := range []string{"s3cret", "w0rd", "\x1b", "\u009b"} {
			if strings.Contains(text, bad) {
				t.Errorf("it has %q: %s", bad, text)
			}
		}
		if !strings.Contains(text, "raise the limit") || !strings.Contains(text, "ticket=***") {
			t.Errorf("the end of the error is missing: %s", text)
		}
		if strings.Count(text, "\n") != 1 {
			t.Errorf("got %d lines", strings.Count(text, "\n"))
		}
		if format == "json" && !json.Valid(b.Bytes()) {
			t.Errorf("no JSON: %s", text)
		}
	}
}

func TestLogFormat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format   config.LogFormat
		terminal bool
		json     bool
	}{
		{"auto", true, false},
		{"auto", false, true},
		{"text", true, false},
		{"text", false, false},
		{"json", true, true},
		{"json", false, true},
	} {
		var b bytes.Buffer
		var redact *safetext.Redactor
		log, level := NewLog(&b, config.Log{Level: "warn", Format: tt.format}, tt.terminal, redact.Clip)
		log.Info("below the level")
		log.Warn("waiting", "in", 90*time.Second)
		if json.Valid(b.Bytes()) != tt.json || strings.Contains(b.String(), "below") || !strings.Contains(b.String(), "1m30s") {
			t.Errorf("%s, terminal %v: got %s", tt.format, tt.terminal, b.String())
		}
		level.Set(slog.LevelInfo)
		if log.Info("above the level"); !strings.Contains(b.String(), "above") {
			t.Error("the level cannot be changed")
		}
	}
}

// Go's HTTP client writes to the standard logger, as with bytes after a response.
func TestStandardLoggerIsCaptured(t *testing.T) { //nolint:paralleltest // the logger belongs to the process
	out, flags := stdlog.Writer(), stdlog.Flags()
	t.Cleanup(func() {
		stdlog.SetOutput(out)
		stdlog.SetFlags(flags)
	})
	var b bytes.Buffer
	var redact *safetext.Redactor
	log, _ := NewLog(&b, config.Log{Level: "info"}, false, redact.Clip)
	CaptureStandardLog(log)
	stdlog.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=<nil>", "x\x1b")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, b.String())
	}
	if line["msg"] != "a library reports" || line["level"] != "WARN" || !strings.HasPrefix(line["text"].(string), "Unsolicited response received on idle HTTP channel") {
		t.Errorf("got %v", line)
	}
}
