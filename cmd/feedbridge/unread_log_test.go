package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// A daemon goes on, and ends when it is to end, whatever happens to the reader of its log.
func TestADaemonWhoseLogIsNotReadGoesOn(t *testing.T) {
	t.Parallel()
	for name, reader := range map[string]func(unread, out *os.File){
		"the pipe is full": func(_, out *os.File) {
			for err := error(nil); err == nil; {
				_ = out.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				_, err = out.Write(make([]byte, 4096))
			}
		},
		"the reader is gone": func(unread, _ *os.File) { _ = unread.Close() },
	} {
		parallel.Run(t, name, func(t *testing.T) {
			polled := make(chan struct{})
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/atom+xml")
				_, _ = io.WriteString(w, `<feed xmlns="http://www.w3.org/2005/Atom"><id>f</id><title>t</title><updated>2026-03-01T10:00:00Z</updated></feed>`)
				select {
				case polled <- struct{}{}:
				case <-r.Context().Done():
				}
			}))
			t.Cleanup(upstream.Close)
			program, err := builds.path(".")
			must.Succeed(t, err)
			unread, out, err := os.Pipe()
			must.Succeed(t, err)
			t.Cleanup(func() { _, _ = unread.Close(), out.Close() })
			reader(unread, out)
			cmd := exec.Command(program, "run", upstream.URL, "--set", "feed_defaults.every=100ms", "--set", "log.level=debug", "--set", "data_dir="+t.TempDir(), "--set", "admin.listen=off")
			cmd.Dir = t.TempDir()
			cmd.Stdout, cmd.Stderr = out, out
			must.Succeed(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			deadline := time.After(patience)
			for range 5 {
				select {
				case <-polled:
				case err := <-ended:
					t.Fatalf("the daemon has ended: %v", err)
				case <-deadline:
					t.Fatal("the feed is not polled")
				}
			}
			_ = cmd.Process.Signal(syscall.SIGTERM)
			for {
				select {
				case <-polled:
				case err := <-ended:
					must.Succeed(t, err)
					return
				case <-deadline:
					t.Fatal("the daemon does not end")
				}
			}
		})
	}
}
