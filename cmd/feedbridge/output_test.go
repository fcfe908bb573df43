package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
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
	if code := a.reportError(nil, errors.Join(fmt.Errorf("entity %s: raise the limit", hostile), errors.New("and more"))); code != exitFailed {
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
	redact := safetext.NewRedactor("ticket")
	r := conformance.NewReport("https://x.example/?ticket=s3cret", "auto")
	r.AddEntity(&feed.Entity{ID: hostile[:200], Page: "https://x.example/?token=s3cret"})
	r.AddViolation(feed.Violation{Kind: "kind", Page: hostile, Detail: hostile})
	must.Succeed(t, printFeed(&b, redact, look{}, r))
	wantSafe(t, b.String(), 20_000)
	b.Reset()
	must.Succeed(t, printFeed(&b, redact, look{colors: true}, r))
	wantSafe(t, strings.Replace(b.String(), "\n\x1b[31mviolations\x1b[0m\n", "", 1), 20_000)
	b.Reset()
	must.Succeed(t, printReport(&b, redact, r))
	if wantSafe(t, b.String(), 5_000_000); !json.Valid(b.Bytes()) {
		t.Error("it is no JSON")
	}
}

// The parameters that the configuration names are secret wherever a command shows a
// URL of the feed, or what its server answers.
func TestCommandsHideTheParametersOfTheConfiguration(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/feed" {
			w.Header().Set("Location", "/moved?ticket=s3cret")
			w.WriteHeader(http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		// The value is at the position where a too long text is cut.
		_, _ = fmt.Fprintf(w, "no such page: %s http://x/?ticket=%s", r.URL, strings.Repeat("s3cret", 500))
	}))
	t.Cleanup(upstream.Close)
	env := []string{
		"FEEDBRIDGE_SECRET_PARAMETERS=ticket", "FEEDBRIDGE_FEEDS_ORDERS_URL=" + upstream.URL + "/feed?ticket=s3cret", "FEEDBRIDGE_FEEDS_ORDERS_TO_TOPIC=orders",
		"FEEDBRIDGE_BUSES_MAIN_NATS_URL=nats://127.0.0.1:1",
	}
	for _, args := range [][]string{
		{"inspect", "orders"},
		{"inspect", "orders", "--json"},
		{"tail", "orders"},
		{"check", "--connect"},
		{"check", "--connect", "--json"},
		{"verify", "--feed", "orders", "--feed", "orders", "--retry-for", "0s"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			var errs logbuffer.Buffer
			if code := runProgram(args, env, nil, &out, &errs); code != exitFailed {
				t.Fatalf("exit code %d: %s%s", code, out.String(), errs.String())
			}
			if wantSafe(t, out.String()+errs.String(), 20_000); !strings.Contains(out.String()+errs.String(), "ticket=***") {
				t.Errorf("got %s%s", out.String(), errs.String())
			}
		})
	}
}

// What scripts read is complete, and has no character that a terminal obeys.
func TestPrintedJSONIsSafe(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	must.Succeed(t, newEntityWriter(&b).writeEntities([]feed.Entity{{ID: hostile, Body: []byte(hostile)}, {ID: "2"}}))
	if strings.ContainsAny(b.String(), "\x1b\u009b") {
		t.Error("it has control characters")
	}
	var got entityLine
	if err := json.NewDecoder(&b).Decode(&got); err != nil || got.ID != hostile || got.Body != hostile {
		t.Errorf("it is not what it was, %v", err)
	}
}
