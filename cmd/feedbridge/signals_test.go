package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestTwoSignalsWithinASecondAreOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		situation string
		after     []time.Duration // of further signals, after the first one
		limit     time.Duration
		reason    string
		ends      time.Duration
	}{
		{"one signal", nil, 0, "", time.Minute},
		{"systemd and an orchestrator send one each", []time.Duration{10 * time.Millisecond}, 0, "", time.Minute},
		{"several within a second", []time.Duration{0, 300 * time.Millisecond, time.Second}, 0, "", time.Minute},
		{"another one later", []time.Duration{2 * time.Second}, 0, "ended by the second signal", 2 * time.Second},
		{"a pair, and another one later", []time.Duration{10 * time.Millisecond, 5 * time.Second}, 0, "ended by the second signal", 5 * time.Second},
		{"a command that does not end", []time.Duration{10 * time.Millisecond}, stopTime, "ended by the signal: what it did has not ended within 5s", stopTime},
		{"a command that does not end, and another signal", []time.Duration{2 * time.Second}, stopTime, "ended by the second signal", 2 * time.Second},
	} {
		parallel.RunVirtual(t, c.situation, func(t *testing.T) {
			signals := make(chan os.Signal, 2)
			first := time.Now()
			var sending sync.WaitGroup
			sending.Go(func() {
				for _, after := range c.after {
					time.Sleep(after - time.Since(first))
					signals <- syscall.SIGTERM
				}
				time.Sleep(time.Minute - time.Since(first))
				close(signals)
			})
			got := awaitKill(signals, c.limit)
			if took := time.Since(first); !strings.HasPrefix(got, c.reason) || (got == "") != (c.reason == "") || took != c.ends {
				t.Errorf("got %q after %v", got, took)
			}
			sending.Wait()
		})
	}
}

// A command ends after a signal, whatever it waits for: here for somebody who reads what it prints, and its
// errors.
func TestACommandWhoseOutputIsNotReadEnds(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/atom+xml")
		_, _ = io.WriteString(w, `<feed xmlns="http://www.w3.org/2005/Atom"><id>f</id><title>t</title><updated>2026-03-01T10:00:00Z</updated><entry><id>a</id><title>t</title><updated>2026-03-01T10:00:00Z</updated><content>`+strings.Repeat("x", 1<<20)+`</content></entry></feed>`)
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(upstream.Close)
	program, err := builds.path(".")
	must.Succeed(t, err)
	unread, out, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { _, _ = unread.Close(), out.Close() })
	for err == nil {
		_ = out.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // until it is full
		_, err = out.Write(make([]byte, 4096))
	}
	cmd := exec.Command(program, "tail", upstream.URL)
	cmd.Stdout, cmd.Stderr = out, out
	must.Succeed(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	<-asked
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if code := cmd.ProcessState.ExitCode(); code != exitFailed {
			t.Errorf("the exit code is %d: %v", code, err)
		}
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		t.Error("the command does not end")
	}
}
