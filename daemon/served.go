package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/credential"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/trace"
)

// openServer returns the server of topics as feeds, and its listener; nil if none is
// configured.
func (d *daemon) openServer(ctx context.Context, b *buses, adm *admin.Server) (*serve.Server, net.Listener, error) {
	cfg := d.cfg.Serve
	if cfg == nil {
		return nil, nil, nil
	}
	connections, _ := connectionLimits(openFiles(), cfg.Connections)
	if connections < cfg.Connections {
		d.log.Warn("fewer clients can be connected than configured: the process may not have enough open files", "open_files", openFiles(), "serve.connections", cfg.Connections, "connections", connections)
	}
	server, err := newServer(cfg, connections, b, adm, d.traces, d.log)
	if err != nil {
		return nil, nil, err
	}
	listener, err := listenTCP(ctx, cfg.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("serve feeds: %w; set serve.listen to another address", err)
	}
	return server, listener, nil
}

func newServer(cfg *config.Serve, connections int, b *buses, adm *admin.Server, traces *trace.Tracer, log *slog.Logger) (*serve.Server, error) {
	memory := serve.NewPageCache(cfg.Memory)
	var feeds []*serve.Feed
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Feeds)) {
		f, err := newServed(name, cfg.Feeds[name], b.openLog(cfg.Feeds[name].From), memory, adm, log)
		feeds, errs = append(feeds, f), append(errs, err)
	}
	certificate, err := newCertificate(cfg.TLS)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return serve.NewServer(serve.ServerOptions{Connections: connections, TLS: certificate, Wrap: traces.Handler, Log: log}, feeds...), nil
}

// ServedFeed returns a topic as the feed that a daemon would serve of it, to be read
// within this process. It needs no credentials. memory is the size of its page cache in
// bytes.
func ServedFeed(name string, f config.Served, topic serve.Log, memory int64, log *slog.Logger) (*serve.Feed, error) {
	f.Auth = config.ServedAuth{}
	return newServed(name, f, topic, serve.NewPageCache(memory), nil, log)
}

// newServed returns a topic as a feed. adm shows its status, unless adm is nil.
func newServed(name string, f config.Served, topic serve.Log, memory *serve.PageCache, adm *admin.Server, log *slog.Logger) (*serve.Feed, error) {
	auth, err := servedAuth(f.Auth)
	if err != nil {
		return nil, fmt.Errorf("serve.feeds.%s.auth: %w", name, err)
	}
	cfg := serve.Config{
		Name: name, Format: f.Format, PageSize: f.PageSize, PublicURL: f.PublicURL, Title: f.Title, BusTime: f.BusTime,
		Auth: auth, Snapshot: serve.Snapshot{Every: f.Snapshot.Every, Key: f.Snapshot.Key.Find(), Dir: f.Snapshot.Dir}, Memory: memory, Log: log,
	}
	var served *serve.Feed
	if adm != nil {
		cfg.Observe = adm.AddServed(admin.ServedOptions{
			Name: name, URL: entryOf(name, f), Format: string(f.Format), Bus: f.From.Bus, Topic: f.From.Topic, Snapshots: f.Snapshot.Every > 0,
			Look: func(ctx context.Context) (admin.ServedTopic, error) {
				v, err := served.View(ctx)
				return admin.ServedTopic{Span: v.Span, Newest: v.Newest, Snapshot: v.Snapshot, Created: v.Created, Unmatched: v.Unmatched}, err
			},
		}).Answered
	}
	served, err = serve.New(cfg, topic)
	return served, err
}

// entryOf returns the URL at which clients of a served feed begin, or its path.
func entryOf(name string, f config.Served) string {
	if f.PublicURL != "" {
		return strings.TrimSuffix(f.PublicURL, "/") + "/latest"
	}
	return "/feeds/" + name + "/latest"
}

// servedAuth returns the credentials that clients of a served feed need. It reads their files.
func servedAuth(a config.ServedAuth) (serve.Auth, error) {
	bearer, err := credential.ReadTrimmed(a.Bearer, "bearer_file", a.BearerFile)
	if err != nil {
		return serve.Auth{}, err
	}
	password, err := credential.ReadTrimmed(a.Basic.Password, "basic.password_file", a.Basic.PasswordFile)
	if err != nil {
		return serve.Auth{}, err
	}
	return serve.Auth{Bearer: bearer.Reveal(), Username: a.Basic.Username, Password: password.Reveal()}, nil
}

// newCertificate returns nil if no certificate is configured.
func newCertificate(cfg config.Certificate) (*tls.Config, error) {
	if cfg == (config.Certificate{}) {
		return nil, nil
	}
	settings, err := credential.ServerConfig(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("serve.tls: %w", err)
	}
	return settings, nil
}

// urlScheme returns the scheme of the URLs of served feeds.
func urlScheme(cfg *config.Serve) string {
	if cfg.TLS.CertFile != "" {
		return "https"
	}
	return "http"
}

func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}
