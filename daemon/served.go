package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/trace"
	"github.com/feedbridge/feedbridge/serve"
)

// servedFeeds are the topics that are served as feeds, by name, and their server. One goroutine
// at a time uses them.
type servedFeeds struct {
	server   *serve.Server // nil if nothing is served
	listener net.Listener
	memory   *serve.PageCache
	adm      *admin.Server
	log      *slog.Logger
	running  map[string]*runningServed
}

// runningServed is a topic that is being served.
type runningServed struct {
	cfg  config.Served
	feed *serve.Feed
}

// openServer opens the server of topics as feeds and its listener, if one is configured.
func openServer(ctx context.Context, cfg *config.Serve, memory int64, b *buses, adm *admin.Server, traces *trace.Tracer, log *slog.Logger) (*servedFeeds, error) {
	s := &servedFeeds{adm: adm, log: log, running: map[string]*runningServed{}}
	if cfg == nil {
		return s, nil
	}
	connections, _ := connectionLimits(openFiles())
	if connections < serve.DefaultConnections {
		log.Warn("fewer clients can be connected than usual: the process may not have enough open files", "open_files", openFiles(), "connections", connections)
	}
	certificate, err := newCertificate(cfg.TLS)
	if err != nil {
		return nil, err
	}
	s.memory = serve.NewPageCache(memory)
	s.server = serve.NewServer(serve.ServerOptions{Connections: connections, TLS: certificate, Wrap: traces.Handler, Log: log})
	add := map[string]*runningServed{}
	for name, f := range cfg.Feeds {
		if add[name], err = s.prepare(name, f, b); err != nil {
			return nil, err
		}
	}
	s.replace(nil, add)
	s.listener, err = listenServer(ctx, cfg)
	return s, err
}

// listenServer listens at the address of the server of feeds.
func listenServer(ctx context.Context, cfg *config.Serve) (net.Listener, error) {
	l, err := listenTCP(ctx, cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve feeds: %w; set serve.listen to another address", err)
	}
	return l, nil
}

// prepare returns a feed that can be served. It takes the place of the feed with the same name
// on the admin server.
func (s *servedFeeds) prepare(name string, f config.Served, b *buses) (*runningServed, error) {
	served, err := newServed(name, f, b.byName[f.From.Bus].openLog(f.From), s.memory, s.adm, s.log)
	if err != nil {
		return nil, err
	}
	return &runningServed{f, served}, nil
}

// replace stops to serve some feeds, and begins to serve others.
func (s *servedFeeds) replace(remove []string, add map[string]*runningServed) {
	if s.server == nil {
		return
	}
	var removed, added []*serve.Feed
	for _, name := range remove {
		removed = append(removed, s.running[name].feed)
		delete(s.running, name)
	}
	for name, r := range add {
		added = append(added, r.feed)
		s.running[name] = r
	}
	s.server.Replace(removed, added)
}

func (s *servedFeeds) close() {
	if s.listener != nil {
		_ = s.listener.Close()
	}
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
	cfg := serve.Config{
		Name: name, Format: f.Format, PageSize: f.PageSize, PublicURL: f.PublicURL, Title: f.Title,
		Snapshot: serve.Snapshot{Every: f.Snapshot.Every, Key: f.Snapshot.Key.Find()}, Memory: memory, Log: log,
	}
	readAuth := func() (serve.Auth, error) {
		auth, err := servedAuth(f.Auth)
		if err != nil {
			err = feed.Permanent(fmt.Errorf("serve.feeds.%s.auth: %w", name, err))
		}
		return auth, err
	}
	if f.Auth != (config.ServedAuth{}) {
		cfg.ReadAuth = readAuth
	}
	var served *serve.Feed
	if adm != nil {
		cfg.Observe = adm.AddServed(admin.ServedOptions{
			Name: name, URL: entryOf(name, f), Format: string(f.Format), Bus: f.From.Bus, Topic: f.From.Topic, Snapshots: f.Snapshot.Every > 0,
			Look: func(ctx context.Context) (admin.ServedTopic, error) {
				if _, err := readAuth(); err != nil {
					return admin.ServedTopic{}, admin.CredentialsError{Err: err}
				}
				v, err := served.View(ctx)
				return admin.ServedTopic{Span: v.Span, Newest: v.Newest, Snapshot: v.Snapshot, Created: v.Created, Unmatched: v.Unmatched, BuildBegan: v.Building.Began, Read: v.Building.Read, ToRead: v.Building.Total}, err
			},
		}).Answered
	}
	var err error
	served, err = serve.New(cfg, topic)
	return served, err
}

// entryOf returns the URL at which clients of a served feed begin, or its path.
func entryOf(name string, f config.Served) string {
	return f.Format.EntryURL(cmp.Or(strings.TrimSuffix(f.PublicURL, "/"), "/feeds/"+name))
}

// servedAuth returns the credentials that clients of a served feed need. It reads their files.
func servedAuth(a config.ServedAuth) (serve.Auth, error) {
	bearer, err := credential.ReadTrimmed(a.Bearer, "bearer")
	if err != nil {
		return serve.Auth{}, err
	}
	password, err := credential.ReadTrimmed(a.Basic.Password, "basic.password")
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
