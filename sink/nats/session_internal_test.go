package nats

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
)

// A server that is down when the process starts is logged once, although nats.go returns one error
// at the first attempt and another one later.
func TestServerThatIsDownIsOneCause(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	tracker := &sessionTracker{log: slog.New(slog.NewTextHandler(&log, nil)), attempted: make(chan struct{})}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, err := range []error{nats.ErrNoServers, refused, refused} {
		tracker.onDisconnect(&nats.Conn{}, "cannot connect to NATS", err)
	}
	if n := strings.Count(log.String(), "cannot connect to NATS"); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, log.String())
	}
}
