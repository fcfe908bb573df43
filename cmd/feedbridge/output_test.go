package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// hostile is an ID of a feed that is long, moves the cursor of a terminal, and has a
// secret.
var hostile = "\x1b[2J\u009b2J https://me:w0rd@x.example/?ticket=s3cret&token=s3cret " + strings.Repeat("é", 500_000)

func wantSafe(t *testing.T, text string, most int) {
	t.Helper()
	if len(text) > most {
		t.Errorf("got %d bytes", len(text))
	}
	for _, bad := range []string{"s3cret", "w0rd", "\x1b", "\u009b"} {
		if strings.Contains(text, bad) {
			t.Errorf("it has %q: %s", bad, text)
		}
	}
}

func TestErrorsOnTheTerminalAreSafe(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	a := &app{err: &b, redact: safetext.NewRedactor("ticket")}
	if code := a.report(nil, errors.Join(fmt.Errorf("entity %s: raise the limit", hostile), errors.New("and more"))); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	wantSafe(t, b.String(), 10_000)
	if !strings.HasPrefix(b.String(), "feedbridge: entity") || !strings.HasSuffix(b.String(), ": raise the limit\nand more\n") {
		t.Errorf("got %s", b.String())
	}
}

func TestPrintedLinesAreSafe(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := newReport("https://x.example/?token=s3cret", "auto")
	r.add(&feed.Entity{ID: hostile[:200] + "ticket", Page: "https://x.example/?token=s3cret"})
	r.addViolation(feed.Violation{Kind: "kind", Page: hostile, Detail: hostile})
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	wantSafe(t, strings.ReplaceAll(b.String(), "ticket=s3cret", ""), 20_000)
}

// What scripts read is complete, and has no character that a terminal obeys.
func TestPrintedJSONIsSafe(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := newEntityWriter(&b).write([]feed.Entity{{ID: hostile, Body: []byte(hostile)}, {ID: "2"}}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\u009b") {
		t.Error("it has control characters")
	}
	var got entityLine
	if err := json.NewDecoder(&b).Decode(&got); err != nil || got.ID != hostile || *got.Body != hostile {
		t.Errorf("it is not what it was, %v", err)
	}
}
