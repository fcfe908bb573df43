package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/feedbridge/feedbridge/internal/admin"
)

// supervisor reports the state of the process to systemd, as sd_notify(3) describes. It does
// nothing in a process that systemd has not started with Type=notify: without the variable
// NOTIFY_SOCKET there is no one to report to.
type supervisor struct {
	log *slog.Logger
	// notify sends a message. It reports whether there is a socket to send it to.
	notify func(message string) (bool, error)
	// watchdog is the interval within which systemd wants a sign of life (WatchdogSec). Zero
	// means that it wants none.
	watchdog time.Duration
}

func newSupervisor(log *slog.Logger) *supervisor {
	s := &supervisor{log: log, notify: func(message string) (bool, error) { return sdnotify.SdNotify(false, message) }}
	interval, err := sdnotify.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the systemd watchdog is not used", "error", err)
	}
	s.watchdog = interval
	return s
}

// reportReady reports that everything listens, after the start or a reload.
func (s *supervisor) reportReady() { s.send(sdnotify.SdNotifyReady) }

// reportReloading reports that the configuration is read again. reportReady must follow,
// whether the new one is used or not: until then systemctl reload waits.
func (s *supervisor) reportReloading() {
	// systemd 253 and newer compare the time with that of their own signal.
	s.send(sdnotify.SdNotifyMonotonicUsec() + sdnotify.SdNotifyReloading)
}

// reportStopping reports that the process ends by itself. From here on systemd wants no signs
// of life.
func (s *supervisor) reportStopping() { s.send(sdnotify.SdNotifyStopping) }

func (s *supervisor) send(message string) {
	if _, err := s.notify(message); err != nil {
		s.log.Warn("cannot report the state to systemd", "error", err)
	}
}

// feedWatchdog sends signs of life until ctx ends, four in each interval of the watchdog. Each
// needs a success of alive, which gets as much time as there is until the next one. After an
// interval without a success systemd ends the process with SIGABRT, so that the log gets the
// stack of every goroutine, and starts it again.
func (s *supervisor) feedWatchdog(ctx context.Context, alive func(ctx context.Context) error) {
	if s.watchdog <= 0 {
		return
	}
	period := s.watchdog / 4
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	failing := false // logged once, until it answers again
	for {
		switch err := runWithin(ctx, period, alive); {
		case ctx.Err() != nil:
			return
		case err != nil && failing:
		case err != nil:
			failing = true
			s.log.Warn("the process does not answer itself; systemd restarts it unless it does soon", "error", err, "within", s.watchdog)
		default:
			failing = false
			s.send(sdnotify.SdNotifyWatchdog)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// runWithin calls do with a context that ends after limit, and returns its error.
func runWithin(ctx context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// newLivenessCheck returns a function that returns nil if /healthz answers as it does for
// other programs: the process accepts a connection, and can read the state of every feed. If
// there is no admin server, the listener is nil, and only the second is checked.
func newLivenessCheck(adm *admin.Server, l net.Listener) func(ctx context.Context) error {
	if l == nil {
		return func(context.Context) error {
			adm.AwaitFeeds()
			return nil
		}
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, l.Addr().Network(), l.Addr().String())
		},
	}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/healthz: %s", resp.Status)
		}
		return nil
	}
}
