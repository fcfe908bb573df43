package daemon

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/credential"
)

// adminListeners are the listeners of the admin server. Each is nil if it is not configured.
type adminListeners struct{ tcp, socket net.Listener }

// openAdmin opens the listeners of the admin server. It reads the token once, so that a
// missing file is an error now and not at the first change.
func openAdmin(cfg config.Admin, log *slog.Logger) (l adminListeners, err error) {
	if _, err := cfg.ReadToken(); err != nil {
		return l, err
	}
	if cfg.Listen != "" {
		if l.tcp, err = admin.Listen(cfg.Listen); err != nil {
			return l, err
		}
	}
	switch {
	case cfg.Socket != "":
		if l.socket, err = admin.ListenSocket(cfg.Socket); err != nil {
			l.close()
		}
	case len(cfg.DefaultSockets) > 0:
		var unavailable error
		if l.socket, unavailable = openDefaultSocket(cfg.DefaultSockets[0]); unavailable != nil {
			log.Warn("there is no admin socket; set admin.socket to another path, or to off", "error", unavailable)
		}
	}
	return l, err
}

// openDefaultSocket listens on the default socket. It creates the socket's directory if that is missing.
func openDefaultSocket(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return admin.ListenSocket(path)
}

// servers returns the functions that serve on each listener until their context ends.
func (l adminListeners) servers(adm *admin.Server) []func(context.Context) error {
	var all []func(context.Context) error
	if l.tcp != nil {
		all = append(all, func(ctx context.Context) error { return adm.Serve(ctx, l.tcp) })
	}
	if l.socket != nil {
		all = append(all, func(ctx context.Context) error { return adm.ServeSocket(ctx, l.socket) })
	}
	return all
}

func (l adminListeners) close() {
	for _, listener := range []net.Listener{l.tcp, l.socket} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

// tokenReader returns a function that returns the token for changes; nil if none is configured.
func tokenReader(cfg config.Admin) func() (credential.Secret, error) {
	if !cfg.HasToken() {
		return nil
	}
	return cfg.ReadToken
}

// advertisedAddress returns where the other members of the fleet reach the admin server of this copy: as
// configured, or where it listens. If it listens on all addresses, that is the one of the machine. It is empty
// if there is none.
func advertisedAddress(cfg *config.Config, tcp net.Listener) string {
	switch {
	case cfg.Fleet.Advertise != "":
		return cfg.Fleet.Advertise
	case tcp == nil:
		return ""
	}
	at, ok := tcp.Addr().(*net.TCPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return tcp.Addr().String()
	}
	// Nothing is sent: the system only chooses the address from which it would send to the documentation's
	// networks.
	for _, anywhere := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		if c, err := new(net.Dialer).DialContext(context.Background(), "udp", anywhere); err == nil {
			_ = c.Close()
			if own, ok := c.LocalAddr().(*net.UDPAddr); ok {
				return (&net.TCPAddr{IP: own.IP, Port: at.Port}).String()
			}
		}
	}
	return ""
}
