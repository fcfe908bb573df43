package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
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

func TestWatchdogIsFedWhileTheProcessIsAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, text := recordingSupervisor(time.Minute)
		var failing atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.feedWatchdog(ctx, func(context.Context) error {
				if failing.Load() {
					return errors.New("no answer")
				}
				return nil
			})
		}()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if got, want := text.Take(), strings.Repeat("WATCHDOG=1\n", 4); got != want {
			t.Errorf("sent %q in 50s, want one at the start and one every 15s", got)
		}

		failing.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := text.Take(); strings.Contains(got, "WATCHDOG") || strings.Count(got, "the process does not answer itself") != 1 || !strings.Contains(got, `error="no answer"`) {
			t.Errorf("a process that does not answer has sent and logged %q", got)
		}

		failing.Store(false)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := text.Take(); got != "WATCHDOG=1\n" {
			t.Errorf("a process that answers again has sent and logged %q", got)
		}

		cancel()
		<-done
		if got := text.Take(); got != "" {
			t.Errorf("at its end it has sent and logged %q", got)
		}
	})
}

// A check that hangs is no success, whether it heeds its context or not.
func TestWatchdogIsNotFedByAProcessThatHangs(t *testing.T) {
	t.Parallel()
	for name, heeds := range map[string]bool{"with its context": true, "for ever": false} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			s, text := recordingSupervisor(time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			hangs := make(chan struct{})
			defer close(hangs)
			defer cancel()
			go s.feedWatchdog(ctx, func(ctx context.Context) error {
				if heeds {
					<-ctx.Done()
					return ctx.Err()
				}
				<-hangs
				return nil
			})
			time.Sleep(time.Hour)
			synctest.Wait()
			got := text.Take()
			if strings.Contains(got, "WATCHDOG") {
				t.Errorf("sent %q", got)
			}
			if heeds && !strings.Contains(got, "context deadline exceeded") {
				t.Errorf("logged %q", got)
			}
		})
	}
}

func TestWatchdogIsOffUnlessSystemdWantsIt(t *testing.T) {
	t.Parallel()
	s, text := recordingSupervisor(0)
	s.feedWatchdog(t.Context(), func(context.Context) error { panic("checked") })
	if got := text.Take(); got != "" {
		t.Errorf("sent %q", got)
	}
}

func TestLivenessCheckAsksTheAdminServer(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", address)
		must.Succeed(t, err)
		answer := make(chan int, 2)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/healthz" {
				t.Errorf("asked for %s", req.URL)
			}
			w.WriteHeader(<-answer)
		})}
		t.Cleanup(func() { _ = server.Close() })
		go func() { _ = server.Serve(l) }()
		alive := newLivenessCheck(nil, l)
		answer <- http.StatusOK
		if err := alive(t.Context()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		answer <- http.StatusServiceUnavailable
		if err := alive(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("%s: 503 is %v", address, err)
		}
		must.Succeed(t, server.Close())
		if err := alive(t.Context()); err == nil {
			t.Errorf("%s: it is alive without a server", address)
		}
	}
	if err := newLivenessCheck(admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)}), nil)(t.Context()); err != nil {
		t.Errorf("without an admin server: %v", err)
	}
}

// The messages of a whole run arrive at a socket as systemd provides it.
func TestDaemonReportsToSystemd(t *testing.T) {
	for _, adminListen := range []string{"127.0.0.1:0", "off"} {
		t.Run("admin "+adminListen, func(t *testing.T) {
			socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
			must.Succeed(t, err)
			t.Cleanup(func() { _ = socket.Close() })
			t.Setenv("NOTIFY_SOCKET", socket.LocalAddr().String())
			t.Setenv("WATCHDOG_USEC", "200000")
			cfg, err := config.Load(config.Options{Environ: []string{
				"FEEDBRIDGE_DATA_DIR=" + t.TempDir(),
				"FEEDBRIDGE_BUSES_HERE_EMBEDDED_LISTEN=127.0.0.1:0",
				"FEEDBRIDGE_ADMIN_LISTEN=" + adminListen,
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
		})
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
