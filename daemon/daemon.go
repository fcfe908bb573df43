package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/source"
)

// Options are the parameters of a daemon besides its configuration.
type Options struct {
	// Version holds the version of the program. It is logged, and is part of /status,
	// /metrics and the User-Agent.
	Version string
	// Log is required.
	Log *slog.Logger
	// Observer is called for all feeds, concurrently, and must not block. It may be nil.
	Observer bridge.Observer
	// Started is called once, when everything listens and before the first poll. It may
	// be nil.
	Started func(Addresses)
}

// Addresses are the URLs at which a daemon listens, without a path. One that it does not
// have is empty.
type Addresses struct {
	Bus    string // the embedded bus
	Status string // the admin server
	Feeds  string // the served feeds
}

// Run runs until ctx ends, and then lets the commits in flight finish: the feeds stop
// before the servers. It returns nil then, or an error if a commit takes longer than
// the configured grace time. Errors of a feed or a bus while it runs are logged and
// retried; they do not end Run.
//
// Run returns an error before the first poll if the embedded bus cannot start, an address
// is in use, or a file of a bus, a feed or a certificate cannot be read. It returns an error
// later only if one of its servers fails.
func Run(ctx context.Context, cfg *config.Config, o Options) error {
	d := &daemon{cfg: cfg, log: o.Log, opts: o}
	return d.run(ctx)
}

// daemon is a running feedbridge: its buses, feeds and servers.
type daemon struct {
	cfg  *config.Config
	log  *slog.Logger
	opts Options
}

func (d *daemon) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.log.Debug("connecting to the buses", "buses", len(d.cfg.Buses))
	buses, err := openBuses(ctx, d.cfg, runEmbedded, d.log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // stopped while it was waiting for a bus
	case err != nil:
		return err
	}
	defer buses.closeAll()
	listeners, err := openAdmin(d.cfg.Admin)
	if err != nil {
		return err
	}
	defer listeners.close()

	writer := WriterName()
	_, connections := connectionLimits(openFiles(), 0)
	redact := safetext.NewRedactor(d.cfg.SecretParameters...)
	adm := admin.New(admin.Options{
		Version: d.opts.Version, Started: time.Now(), Writer: writer, Buses: buses.readinessChecks(d.cfg), Log: d.log, Connections: connections, Redact: redact,
		Token: tokenReader(d.cfg.Admin), Hosts: func() []string { return d.cfg.Admin.Hosts },
	})
	bridges, err := d.bridges(writer, buses, adm, redact)
	if err != nil {
		return err
	}
	served, servedListener, err := d.openServer(ctx, buses, adm)
	if err != nil {
		return err
	}
	if servedListener != nil {
		defer servedListener.Close()
	}
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var servers errgroup.Group
	for _, serve := range listeners.servers(adm) {
		servers.Go(func() error {
			// Without health and metrics a failure of the feeds would go unnoticed.
			defer cancel()
			return serve(serving)
		})
	}
	if servedListener != nil {
		servers.Go(func() error {
			defer cancel()
			return served.Serve(serving, servedListener)
		})
	}
	d.announce(writer, buses, listeners, servedListener)

	var work errgroup.Group
	for _, b := range bridges {
		work.Go(func() error { return b.Run(ctx) })
	}
	err = d.waitForWork(ctx, &work)
	stopServing()
	return errors.Join(err, servers.Wait())
}

// bridges builds the bridges of all feeds, in the order of the feeds' names.
func (d *daemon) bridges(writer string, buses *buses, adm *admin.Server, redact *safetext.Redactor) ([]*bridge.Bridge, error) {
	hosts := &source.Hosts{}
	reading := readAhead{feed: int(d.cfg.ReadAhead.Feed), budget: bridge.NewBudget(d.cfg.ReadAhead.Total)}
	var bridges []*bridge.Bridge
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Feeds)) {
		b, err := newBridge(name, writer, d.cfg.Feeds[name], buses, hosts, reading, adm, redact, d.opts)
		bridges, errs = append(bridges, b), append(errs, err)
	}
	return bridges, errors.Join(errs...)
}

// announce logs that the daemon is up and where it listens, and calls Started.
func (d *daemon) announce(writer string, buses *buses, admin adminListeners, served net.Listener) {
	attrs := []any{"version", d.opts.Version, "writer", writer, "feeds", len(d.cfg.Feeds)}
	var at Addresses
	if buses.server != nil {
		at.Bus = buses.server.URL()
		attrs = append(attrs, "embedded_bus", at.Bus, "data_dir", d.cfg.DataDir)
	}
	if admin.tcp != nil {
		at.Status = "http://" + admin.tcp.Addr().String()
		attrs = append(attrs, "status", at.Status+"/status", "status_page", at.Status+"/")
	}
	if admin.socket != nil {
		attrs = append(attrs, "admin_socket", admin.socket.Addr().String())
	}
	if served != nil {
		at.Feeds = urlScheme(d.cfg.Serve) + "://" + served.Addr().String()
		attrs = append(attrs, "served_feeds", len(d.cfg.Serve.Feeds), "serve", at.Feeds)
	}
	d.log.Info("feedbridge is up", attrs...)
	if d.opts.Started != nil {
		d.opts.Started(at)
	}
}

// waitForWork returns when all work has ended after the end of ctx, or when the grace
// time is over.
func (d *daemon) waitForWork(ctx context.Context, work *errgroup.Group) error {
	done := make(chan error, 1)
	go func() { done <- work.Wait() }()
	<-ctx.Done()
	d.log.Info("stopping", "grace", d.cfg.Grace)
	timer := time.NewTimer(d.cfg.Grace)
	defer timer.Stop()
	select {
	case err := <-done:
		d.log.Info("stopped")
		return err
	case <-timer.C:
		return fmt.Errorf("stopped without waiting any longer: a commit was still in flight after the grace time of %v; the next start finds out whether it was stored", d.cfg.Grace)
	}
}
