//go:build linux || darwin

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// On a terminal, 'status --watch' takes the whole screen, obeys keys, follows the size, shows that the daemon is gone, and
// leaves the terminal as it was.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := watchedProcess(time.Now())
		switch {
		case gone.Load():
			http.Error(w, "gone", http.StatusBadGateway)
		case r.URL.Path == "/status":
			_ = json.NewEncoder(w).Encode(s)
		default:
			_ = json.NewEncoder(w).Encode(s.Feeds[0])
		}
	}))
	t.Cleanup(daemon.Close)
	program, err := os.Executable()
	must.Succeed(t, err)
	for name, test := range map[string]struct {
		environ     []string
		sees, lacks []string
	}{
		"colors":   {[]string{"TERM=xterm-256color", "LANG=C.UTF-8"}, []string{"漢", "\x1b[31m"}, nil},
		"no color": {[]string{"TERM=xterm-256color", "LANG=C.UTF-8", "NO_COLOR=1"}, []string{"漢"}, []string{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[38;"}},
		"no UTF-8": {[]string{"TERM=xterm"}, []string{"??"}, []string{"漢", "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, "status", "--watch", "--admin", daemon.URL)
			cmd.Env = append([]string{testMainRole + "=feedbridge", "HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=20"}, test.environ...)
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 20, Cols: 80})
			must.Succeed(t, err)
			t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
			var out logbuffer.Buffer
			copied := make(chan struct{})
			go func() {
				defer close(copied)
				_, _ = io.Copy(&out, terminal) // until the process has ended
			}()
			await := func(what string) {
				t.Helper()
				for deadline := time.Now().Add(patience); !strings.Contains(out.String(), what); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("no %q in %q", what, out.String())
					}
				}
			}
			await("hostile") // the screen skips spaces
			_, err = io.WriteString(terminal, "?")
			must.Succeed(t, err)
			await("PgUp,")
			_, err = io.WriteString(terminal, "?")
			must.Succeed(t, err)
			must.Succeed(t, pty.Setsize(terminal, &pty.Winsize{Rows: 30, Cols: 160}))
			await("NEXT") // a column that needs the new width
			gone.Store(true)
			defer gone.Store(false)
			await("answer;")
			_, err = io.WriteString(terminal, "q")
			must.Succeed(t, err)
			err = cmd.Wait()
			<-copied
			must.Succeed(t, errors.Join(err, terminal.Close()))
			for _, what := range append(test.sees, "\x1b[?1049l") {
				if !strings.Contains(out.String(), what) {
					t.Errorf("no %q in %q", what, out.String())
				}
			}
			for _, what := range test.lacks {
				if strings.Contains(out.String(), what) {
					t.Errorf("%q is in %q", what, out.String())
				}
			}
		})
	}
}

// The same at three widths, with colors, without, and without UTF-8.
func TestStatusOnATerminal(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, l := range []look{{width: 20}, {width: 80, colors: true}, {width: 160, ascii: true}} {
		var out strings.Builder
		s := watchedProcess(now)
		p := &printer{w: &out, redact: safetext.NewRedactor("ticket")}
		statusReport{}.printGroups(p, groupFeeds(s), 8, now, l)
		golden(t, fmt.Sprintf("testdata/status-%d.golden", l.width), out.String())
	}
}

func TestLookHeedsTheEnvironment(t *testing.T) {
	t.Parallel()
	terminal, other, err := pty.Open()
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, errors.Join(other.Close(), terminal.Close())) })
	must.Succeed(t, pty.Setsize(terminal, &pty.Winsize{Rows: 10, Cols: 33}))
	for _, test := range []struct {
		environ string
		want    look
	}{
		{"TERM=xterm LANG=en_US.UTF-8", look{33, true, false}},
		{"TERM=xterm LC_ALL=de_DE.utf8 LANG=C", look{33, true, false}},
		{"TERM=xterm LC_ALL=C LANG=en_US.UTF-8", look{33, true, true}},
		{"TERM=xterm", look{33, true, true}},
		{"TERM=dumb LANG=C.UTF-8", look{33, false, false}},
		{"TERM=xterm NO_COLOR=1 LANG=C.UTF-8", look{33, false, false}},
		{"TERM=xterm NO_COLOR= LANG=C.UTF-8", look{33, true, false}},
	} {
		a := &app{environ: strings.Fields(test.environ)}
		if got := lookOf(a, other); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.environ, got, test.want)
		}
	}
	if got := lookOf(&app{}, io.Discard); got != (look{}) {
		t.Errorf("a pipe has %+v", got)
	}
	if got := (look{colors: true, ascii: true}).paintFirst("FAIL  feed … ✗ é"); got != "\x1b[31mFAIL\x1b[0m  feed ~ x ?" {
		t.Errorf("painted %q", got)
	}
}
