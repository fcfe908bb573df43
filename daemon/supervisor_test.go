package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// recordingSupervisor returns a supervisor whose messages and warnings go to a buffer.
func recordingSupervisor(watchdog time.Duration) (*supervisor, *logbuffer.Buffer) {
	text := &logbuffer.Buffer{}
	log := slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return &supervisor{log: log, watchdog: watchdog, notify: func(message string) (bool, error) {
		_, err := fmt.Fprintln(text, message)
		return true, err
	}}, text
}

func TestWatchdogIsFedUntilTheProcessHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, text := recordingSupervisor(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		feeds := make(chan struct{}, 1) // full while it hangs
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.feedWatchdog(ctx, func() { feeds <- struct{}{}; <-feeds })
		}()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if got, want := text.Take(), strings.Repeat("WATCHDOG=1\n", 4); got != want {
			t.Errorf("sent %q in 50s, want one at the start and one every 15s", got)
		}
		feeds <- struct{}{}
		time.Sleep(time.Hour)
		if got := text.Take(); got != "" {
			t.Errorf("a process that hangs has sent and logged %q", got)
		}
		cancel()
		<-feeds
		<-done
		if got := text.Take(); got != "" {
			t.Errorf("at its end it has sent and logged %q", got)
		}
	})
}

func TestWatchdogIsOffUnlessSystemdWantsIt(t *testing.T) {
	t.Parallel()
	s, text := recordingSupervisor(0)
	s.feedWatchdog(t.Context(), func() { panic("checked") })
	if got := text.Take(); got != "" {
		t.Errorf("sent %q", got)
	}
}

// The messages of a whole run arrive at a socket as systemd provides it.
func TestDaemonReportsToSystemd(t *testing.T) {
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", socket.LocalAddr().String())
	t.Setenv("WATCHDOG_USEC", "200000")
	cfg, err := config.Load(config.Options{Environ: []string{
		"FEEDBRIDGE_DATA_DIR=" + t.TempDir(),
		"FEEDBRIDGE_BUSES_HERE_EMBEDDED_LISTEN=127.0.0.1:0",
		"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0",
		"FEEDBRIDGE_FEEDS_ORDERS_URL=http://127.0.0.1:9/feed",
	}})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg, Options{Log: slog.New(slog.DiscardHandler)}) }()

	receive := func() string {
		must.Succeed(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
		message := make([]byte, 4096)
		n, err := socket.Read(message)
		must.Succeed(t, err)
		return string(message[:n])
	}
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := receive(); got != want {
			t.Errorf("received %q, want %q", got, want)
		}
	}
	cancel()
	for {
		got := receive()
		if got == "STOPPING=1" {
			break
		}
		if got != "WATCHDOG=1" {
			t.Errorf("received %q before STOPPING=1", got)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReloadIsReportedToSystemd(t *testing.T) {
	t.Parallel()
	s, text := recordingSupervisor(0)
	s.reportReloading()
	s.reportReady()
	if lines := strings.Split(text.Take(), "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "MONOTONIC_USEC=") || lines[1] != "RELOADING=1" || lines[2] != "READY=1" {
		t.Errorf("sent %q", lines)
	}
}

func TestSupervisorThatCannotBeReachedIsLogged(t *testing.T) {
	t.Parallel()
	s, text := recordingSupervisor(0)
	s.notify = func(string) (bool, error) { return false, errors.New("no such socket") }
	s.reportReady()
	if got := text.Take(); !strings.Contains(got, `msg="cannot report the state to systemd" error="no such socket"`) {
		t.Errorf("logged %q", got)
	}
}
