package daemon

import (
	"context"
	"log/slog"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
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

// feedWatchdog sends signs of life until ctx ends, four in each interval of the watchdog, and each after
// alive has returned. After an interval without one systemd ends the process with SIGABRT, so that the log
// gets the stack of every goroutine, and starts it again.
func (s *supervisor) feedWatchdog(ctx context.Context, alive func()) {
	if s.watchdog <= 0 {
		return
	}
	ticker := time.NewTicker(s.watchdog / 4)
	defer ticker.Stop()
	for {
		if alive(); ctx.Err() != nil {
			return
		}
		s.send(sdnotify.SdNotifyWatchdog)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
