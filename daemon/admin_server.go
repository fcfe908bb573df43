package daemon

import (
	"context"
	"net"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/credential"
)

// adminListeners are the listeners of the admin server. Each is nil if it is not configured.
type adminListeners struct{ tcp, socket net.Listener }

// openAdmin opens the listeners of the admin server. It reads the token once, so that a
// missing file is an error now and not at the first change.
func openAdmin(cfg config.Admin) (l adminListeners, err error) {
	if _, err := cfg.ReadToken(); err != nil {
		return l, err
	}
	if cfg.Listen != "" {
		if l.tcp, err = admin.Listen(cfg.Listen); err != nil {
			return l, err
		}
	}
	if cfg.Socket != "" {
		if l.socket, err = admin.ListenSocket(cfg.Socket); err != nil {
			l.close()
		}
	}
	return l, err
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
